"""The catalogue: every array of every stage, its axes, its formula and the names that others give it.

An axis is a size of the case (`Lq`, `d_k`, ...) or a product of two (`H*d_k`). "..." stands for the optional batch axis B.
Ln counts the new keys, Lp the past ones, Lc both together, Lk all keys that the scores have (with those the layer appends); `pairs`
are those of columns that rotate.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import prod

STAGES = ("parameters", "projections", "scores", "weights", "contexts", "outputs", "backward")
COMPUTED = STAGES[1:]  # all but what a case starts from
Has = set[str]  # what a case has: names of its parameters and of the options that it uses


@dataclass(frozen=True)
class Array:
    """One kind of array: where it is made, what its axes are, how it is computed, from what, its other names, and which cases have it."""

    stage: str
    axes: tuple[str, ...]
    formula: str
    made_from: tuple[str, ...]
    when: Callable[[Has], bool]
    aliases: dict[str, str] = field(default_factory=dict)


def any_of(*names: str) -> Callable[[Has], bool]:
    """A case that has one of `names`."""
    return lambda has: not has.isdisjoint(names)


def all_of(*names: str) -> Callable[[Has], bool]:
    """A case that has all of `names`."""
    return lambda has: has.issuperset(names)


def always(has: Has) -> bool:
    """Every case."""
    return True


def before_scores(has: Has) -> bool:
    """A case that has queries and keys, for it does not begin at scaled scores."""
    return "scaled" not in has


def values(has: Has) -> bool:
    """A case that has something to average: all but those that begin at scaled scores and give no values."""
    return before_scores(has) or any_of("v", "v_heads")(has)


def _array(stage: str, axes: str, formula: str, made_from: str, when: Callable[[Has], bool], **aliases: str) -> Array:
    return Array(stage, tuple(axes.split()), formula, tuple(made_from.split()), when, aliases)


def _parameter(name: str, axes: str, formula: str, **aliases: str) -> Array:
    return _array("parameters", axes, formula, "", all_of(name), **aliases)


ADDED = ("alibi", "t5_table", "bias_table", "mask_add", "mask_key_add")  # what is added to the scores
MASKS = ("mask.causal", "mask.window", "mask.documents", "mask.key_lengths", "mask_keep", "mask_block", "mask_key_keep", "mask_key_block")

CATALOGUE: dict[str, Array] = {
    "x": _parameter("x", "... Lq d_model", "input"),
    "x_kv": _parameter("x_kv", "... Ln d_kv", "input of keys and values (cross-attention)", onnx="encoder states"),
    "x_k": _parameter("x_k", "... Ln d_kv", "input of the keys", torch="key"),
    "x_v": _parameter("x_v", "... Ln d_vv", "input of the values", torch="value"),
    "w_q": _parameter("w_q", "H*d_k d_model", "query weight, stored [out, in]", torch="q_proj_weight", transformer_lens="W_Q"),
    "b_q": _parameter("b_q", "H*d_k", "query bias", transformer_lens="b_Q"),
    "w_k": _parameter("w_k", "H_kv*d_k d_kv", "key weight, stored [out, in]", torch="k_proj_weight", transformer_lens="W_K"),
    "b_k": _parameter("b_k", "H_kv*d_k", "key bias", transformer_lens="b_K"),
    "w_v": _parameter("w_v", "H_kv*d_v d_vv", "value weight, stored [out, in]", torch="v_proj_weight", transformer_lens="W_V"),
    "b_v": _parameter("b_v", "H_kv*d_v", "value bias", transformer_lens="b_V"),
    "w_o": _parameter("w_o", "d_out H*d_v", "output weight, stored [out, in]", torch="out_proj.weight", transformer_lens="W_O"),
    "b_o": _parameter("b_o", "d_out", "output bias", torch="out_proj.bias", transformer_lens="b_O"),
    "g_q": _parameter("g_q", "d_k", "gain of the normed queries"),
    "g_k": _parameter("g_k", "d_k", "gain of the normed keys"),
    "bias_k": _parameter("bias_k", "H_kv*d_k", "a key that the layer appends", torch="bias_k"),
    "bias_v": _parameter("bias_v", "H_kv*d_v", "the value that goes with it", torch="bias_v"),
    "past_k": _parameter("past_k", "... H_kv Lp d_k", "keys in the cache", onnx="past_key"),
    "past_v": _parameter("past_v", "... H_kv Lp d_v", "values in the cache", onnx="past_value"),
    "bias_table": _parameter("bias_table", "... H Lq Lc", "a table added to the scores", onnx="attn_mask"),
    "t5_table": _parameter("t5_table", "buckets H", "bias by bucket of relative position", transformers="relative_attention_bias"),
    "sinks": _parameter("sinks", "H", "logits that join the denominator"),
    "mask_keep": _parameter("mask_keep", "... H Lq Lc", "boolean mask, True = attend", torch="attn_mask", onnx="attn_mask"),
    "mask_block": _parameter("mask_block", "... H Lq Lc", "boolean mask, True = blocked", torch="attn_mask of MultiheadAttention"),
    "mask_add": _parameter("mask_add", "... H Lq Lc", "mask that is added", torch="attn_mask"),
    "mask_key_keep": _parameter("mask_key_keep", "... Lc", "key padding, True = attend"),
    "mask_key_block": _parameter("mask_key_block", "... Lc", "key padding, True = blocked", torch="key_padding_mask"),
    "mask_key_add": _parameter("mask_key_add", "... Lc", "key padding that is added", torch="key_padding_mask"),
    "dropout_keep": _parameter("dropout_keep", "... H Lq Lk", "weights that dropout keeps"),
    "upstream": _parameter("upstream", "... Lq d_out", "gradient of the loss at the output"),
    "x_pos": _array(
        "projections", "... Lq d_model", "x + sinusoids", "x", all_of("sinusoidal", "x"), transformer_lens="hook_embed + hook_pos_embed"
    ),
    "x_kv_pos": _array("projections", "... Ln d_kv", "x_kv + sinusoids", "x_kv", all_of("sinusoidal", "x_kv")),
    "q": _array("projections", "... Lq H*d_k", "X W_Q^T + b_Q", "x x_pos w_q b_q", any_of("x", "q")),
    "k": _array("projections", "... Ln H_kv*d_k", "X W_K^T + b_K", "x x_pos x_kv x_kv_pos x_k w_k b_k", any_of("x", "k")),
    "v": _array("projections", "... Ln H_kv*d_v", "X W_V^T + b_V", "x x_pos x_kv x_kv_pos x_v w_v b_v", any_of("x", "v")),
    "q_heads": _array("projections", "... H Lq d_k", "q split into heads", "q", before_scores, transformer_lens="hook_q", onnx="Q"),
    "k_heads": _array("projections", "... H_kv Ln d_k", "k split into heads", "k", before_scores, transformer_lens="hook_k", onnx="K"),
    "v_heads": _array("projections", "... H_kv Ln d_v", "v split into heads", "v", values, transformer_lens="hook_v", onnx="V"),
    "q_norm": _array("projections", "... H Lq d_k", "q_heads normed", "q_heads g_q", all_of("qk_norm")),
    "k_norm": _array("projections", "... H_kv Ln d_k", "k_heads normed", "k_heads g_k", all_of("qk_norm")),
    "inv_freq": _array(
        "projections", "pairs", "angle by which a pair of columns turns from one position to the next", "", all_of("rotary")
    ),
    "query_cos": _array("projections", "Lq pairs", "cosines of position * inv_freq", "", all_of("rotary")),
    "query_sin": _array("projections", "Lq pairs", "sines of position * inv_freq", "", all_of("rotary")),
    "key_cos": _array("projections", "Ln pairs", "cosines of position * inv_freq", "", all_of("rotary")),
    "key_sin": _array("projections", "Ln pairs", "sines of position * inv_freq", "", all_of("rotary")),
    "q_rot": _array(
        "projections",
        "... H Lq d_k",
        "queries rotated by their positions",
        "q_heads q_norm",
        all_of("rotary"),
        transformer_lens="hook_rot_q",
    ),
    "k_rot": _array(
        "projections",
        "... H_kv Ln d_k",
        "keys rotated by their positions",
        "k_heads k_norm",
        all_of("rotary"),
        transformer_lens="hook_rot_k",
    ),
    "present_k": _array(
        "projections", "... H_kv Lc d_k", "past and new keys", "past_k k_heads k_norm k_rot", all_of("past_k"), onnx="present_key"
    ),
    "present_v": _array("projections", "... H_kv Lc d_v", "past and new values", "past_v v_heads", all_of("past_k"), onnx="present_value"),
    "k_extended": _array(
        "projections",
        "... H_kv Lk d_k",
        "keys and those the layer appends",
        "k_heads k_norm k_rot present_k bias_k",
        any_of("bias_k", "extra_key"),
    ),
    "v_extended": _array(
        "projections", "... H_kv Lk d_v", "values and those the layer appends", "v_heads present_v bias_v", any_of("bias_k", "extra_key")
    ),
    "qk": _array(
        "scores", "... H Lq Lk", "Q K^T, unscaled", "q_heads q_norm q_rot k_heads k_norm k_rot present_k k_extended", before_scores
    ),
    "scaled": _array(
        "scores", "... H Lq Lk", "scale * Q K^T", "qk", always, transformer_lens="hook_attn_scores", onnx="qk_matmul_output_mode 0"
    ),
    "capped": _array(
        "scores", "... H Lq Lk", "softcap * tanh(scaled / softcap)", "scaled", all_of("softcap"), onnx="qk_matmul_output_mode 1"
    ),
    "slopes": _array("scores", "H", "slopes of ALiBi", "", all_of("alibi")),
    "buckets": _array("scores", "Lq Lc", "row of t5_table for each relative position", "t5_table", all_of("t5_table")),
    "bias": _array("scores", "... H Lq Lk", "all additive terms together", "bias_table mask_add mask_key_add t5_table", any_of(*ADDED)),
    "keep": _array(
        "scores",
        "... H Lq Lk",
        "all masks together, True = attend",
        "mask_keep mask_block mask_key_keep mask_key_block",
        any_of(*MASKS),
        torch="attn_mask",
    ),
    "masked": _array("scores", "... H Lq Lk", "what enters the softmax", "scaled capped bias keep", always, onnx="qk_matmul_output_mode 2"),
    "weights": _array(
        "weights",
        "... H Lq Lk",
        "softmax of masked along the keys",
        "masked sinks",
        always,
        torch="attn_output_weights",
        transformer_lens="hook_pattern",
        onnx="qk_matmul_output_mode 3",
    ),
    "dropped": _array("weights", "... H Lq Lk", "weights * dropout_keep / (1 - p)", "weights dropout_keep", all_of("dropout_keep")),
    "contexts": _array(
        "contexts",
        "... H Lq d_v",
        "weights V",
        "weights dropped v_heads present_v v_extended",
        values,
        torch="scaled_dot_product_attention",
        transformer_lens="hook_z",
    ),
    "concat": _array("contexts", "... Lq H*d_v", "contexts, heads side by side", "contexts", values),
    "output": _array(
        "outputs", "... Lq d_out", "concat W_O^T + b_O", "concat w_o b_o", values, torch="attn_output", transformer_lens="hook_attn_out"
    ),
}

WEIGHTS = tuple(name for name in CATALOGUE if name.startswith(("w_", "b_", "g_")))
DRAWABLE = tuple(name for name, array in CATALOGUE.items() if array.stage == "parameters" and not name.startswith(("mask_", "dropout_")))
TABLES = ("inv_freq", "query_cos", "query_sin", "key_cos", "key_sin", "slopes", "buckets")  # of positions alone
BOOLEAN = ("mask_keep", "mask_block", "mask_key_keep", "mask_key_block", "dropout_keep", "keep")
RANKS = {"bias_table": (2, 3, 4), "mask_keep": (2, 4), "mask_block": (2, 4), "mask_add": (2, 4)}  # these broadcast to [B, H, Lq, Lc]

GRADIENTS = "output concat w_o b_o contexts weights masked scaled qk v_heads q_heads k_heads q k v w_q b_q w_k b_k w_v b_v x x_kv x_k x_v"
for _name in GRADIENTS.split():
    _of = CATALOGUE[_name]
    CATALOGUE[f"d_{_name}"] = Array(
        "backward", _of.axes, f"gradient of the loss by {_name}", (_name,), lambda has, there=_of.when: "backward" in has and there(has)
    )


def existing(has: Has) -> dict[str, list[str]]:
    """Names of the arrays of each stage, in the order of the catalogue, of a case that `has` these parameters and options."""
    given = {name for name in CATALOGUE if name in has}
    made = [name for name, array in CATALOGUE.items() if array.stage != "parameters" and array.when(has)]
    stages = {stage: [name for name in made if CATALOGUE[name].stage == stage] for stage in STAGES}
    return {**stages, "parameters": [name for name in CATALOGUE if name in given]}


def computed(case: dict) -> list[str]:
    """Names of the arrays that the stages make of a resolved `case`, in their order."""
    return [name for stage in COMPUTED for name in case["arrays"][stage]]


SOURCES = {  # what queries, keys and values are projected from: the first that the case has
    "q": ("x_pos", "x"),
    "k": ("x_k", "x_kv_pos", "x_kv", "x_pos", "x"),
    "v": ("x_v", "x_kv_pos", "x_kv", "x_pos", "x"),
}


def source(name: str, arrays: Collection[str]) -> str | None:
    """Which of `arrays` the queries, keys or values (`name` q, k or v) are projected from; None in a case that begins later."""
    return next((found for found in SOURCES[name] if found in arrays), None)


def kept_in(name: str, stage: str, dtype: str, scores: str) -> str:
    """The dtype in which array `name` of a `stage` is kept by a case of `dtype` that keeps its scores in the dtype `scores`."""
    return "bool" if name in BOOLEAN else scores if stage == "scores" else dtype


def size(axis: str, dims: dict[str, int]) -> int:
    """Length of an axis: of a size, or of a product of sizes such as `H*d_k`."""
    return dims[axis] if axis in dims else prod(dims[name] for name in axis.split("*"))


def axes(name: str, dims: dict[str, int]) -> tuple[str, ...]:
    """Axis names of array `name` in a case with these `dims`; B leads if the case has a batch. Masks without one are [Lq, Lc]."""
    batch = ("B",) if "B" in dims else ()
    named = tuple(part for axis in CATALOGUE[name].axes for part in (batch if axis == "..." else (axis,)))
    return named if len(named) in RANKS.get(name, (len(named),)) else named[-2:]


def shape(name: str, dims: dict[str, int]) -> tuple[int, ...]:
    """Shape of array `name` in a case with these `dims`."""
    return tuple(size(axis, dims) for axis in axes(name, dims))
