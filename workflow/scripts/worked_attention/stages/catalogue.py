"""The catalogue: every array of every stage, its axes, its formula and the names that others give it.

An axis is a size of the case (`Lq`, `d_k`, ...) or a product of two (`H*d_k`). "..." stands for the optional batch axis B.
Ln counts the new keys, Lp the past ones, Lc both together, Lk all keys that the scores have (with those the layer appends).
"""

from dataclasses import dataclass, field
from math import prod

STAGES = ("parameters", "projections", "scores", "weights", "contexts", "outputs", "backward")


@dataclass(frozen=True)
class Array:
    """One kind of array: where it is made, what its axes are, how it is computed, from what, and its other names."""

    stage: str
    axes: tuple[str, ...]
    formula: str
    made_from: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)


def _array(stage: str, axes: str, formula: str, made_from: str = "", **aliases: str) -> Array:
    return Array(stage, tuple(axes.split()), formula, tuple(made_from.split()), aliases)


CATALOGUE: dict[str, Array] = {
    "x": _array("parameters", "... Lq d_model", "input"),
    "x_kv": _array("parameters", "... Ln d_kv", "input of keys and values (cross-attention)", onnx="encoder states"),
    "x_k": _array("parameters", "... Ln d_kv", "input of the keys", torch="key"),
    "x_v": _array("parameters", "... Ln d_vv", "input of the values", torch="value"),
    "w_q": _array("parameters", "H*d_k d_model", "query weight, stored [out, in]", torch="q_proj_weight", transformer_lens="W_Q"),
    "b_q": _array("parameters", "H*d_k", "query bias", transformer_lens="b_Q"),
    "w_k": _array("parameters", "H_kv*d_k d_kv", "key weight, stored [out, in]", torch="k_proj_weight", transformer_lens="W_K"),
    "b_k": _array("parameters", "H_kv*d_k", "key bias", transformer_lens="b_K"),
    "w_v": _array("parameters", "H_kv*d_v d_vv", "value weight, stored [out, in]", torch="v_proj_weight", transformer_lens="W_V"),
    "b_v": _array("parameters", "H_kv*d_v", "value bias", transformer_lens="b_V"),
    "w_o": _array("parameters", "d_out H*d_v", "output weight, stored [out, in]", torch="out_proj.weight", transformer_lens="W_O"),
    "b_o": _array("parameters", "d_out", "output bias", torch="out_proj.bias", transformer_lens="b_O"),
    "g_q": _array("parameters", "d_k", "gain of the normed queries"),
    "g_k": _array("parameters", "d_k", "gain of the normed keys"),
    "bias_k": _array("parameters", "H_kv*d_k", "a key that the layer appends", torch="bias_k"),
    "bias_v": _array("parameters", "H_kv*d_v", "the value that goes with it", torch="bias_v"),
    "past_k": _array("parameters", "... H_kv Lp d_k", "keys in the cache", onnx="past_key"),
    "past_v": _array("parameters", "... H_kv Lp d_v", "values in the cache", onnx="past_value"),
    "bias_table": _array("parameters", "... H Lq Lc", "a table added to the scores", onnx="attn_mask"),
    "t5_table": _array("parameters", "buckets H", "bias by bucket of relative position", transformers="relative_attention_bias"),
    "sinks": _array("parameters", "H", "logits that join the denominator"),
    "mask_keep": _array("parameters", "... H Lq Lc", "boolean mask, True = attend", torch="attn_mask", onnx="attn_mask"),
    "mask_block": _array("parameters", "... H Lq Lc", "boolean mask, True = blocked", torch="attn_mask of MultiheadAttention"),
    "mask_add": _array("parameters", "... H Lq Lc", "mask that is added", torch="attn_mask"),
    "mask_key_keep": _array("parameters", "... Lc", "key padding, True = attend"),
    "mask_key_block": _array("parameters", "... Lc", "key padding, True = blocked", torch="key_padding_mask"),
    "mask_key_add": _array("parameters", "... Lc", "key padding that is added", torch="key_padding_mask"),
    "dropout_keep": _array("parameters", "... H Lq Lk", "weights that dropout keeps"),
    "upstream": _array("parameters", "... Lq d_out", "gradient of the loss at the output"),
    "x_pos": _array("projections", "... Lq d_model", "x + sinusoids", "x", transformer_lens="hook_embed + hook_pos_embed"),
    "x_kv_pos": _array("projections", "... Ln d_kv", "x_kv + sinusoids", "x_kv"),
    "q": _array("projections", "... Lq H*d_k", "X W_Q^T + b_Q", "x x_pos w_q b_q"),
    "k": _array("projections", "... Ln H_kv*d_k", "X W_K^T + b_K", "x x_pos x_kv x_kv_pos x_k w_k b_k"),
    "v": _array("projections", "... Ln H_kv*d_v", "X W_V^T + b_V", "x x_pos x_kv x_kv_pos x_v w_v b_v"),
    "q_heads": _array("projections", "... H Lq d_k", "q split into heads", "q", transformer_lens="hook_q", onnx="Q"),
    "k_heads": _array("projections", "... H_kv Ln d_k", "k split into heads", "k", transformer_lens="hook_k", onnx="K"),
    "v_heads": _array("projections", "... H_kv Ln d_v", "v split into heads", "v", transformer_lens="hook_v", onnx="V"),
    "q_norm": _array("projections", "... H Lq d_k", "q_heads normed", "q_heads g_q"),
    "k_norm": _array("projections", "... H_kv Ln d_k", "k_heads normed", "k_heads g_k"),
    "q_rot": _array("projections", "... H Lq d_k", "queries rotated by their positions", "q_heads q_norm", transformer_lens="hook_rot_q"),
    "k_rot": _array("projections", "... H_kv Ln d_k", "keys rotated by their positions", "k_heads k_norm", transformer_lens="hook_rot_k"),
    "present_k": _array("projections", "... H_kv Lc d_k", "past and new keys", "past_k k_heads k_norm k_rot", onnx="present_key"),
    "present_v": _array("projections", "... H_kv Lc d_v", "past and new values", "past_v v_heads", onnx="present_value"),
    "k_extended": _array("projections", "... H_kv Lk d_k", "keys and those the layer appends", "k_heads k_norm k_rot present_k bias_k"),
    "v_extended": _array("projections", "... H_kv Lk d_v", "values and those the layer appends", "v_heads present_v bias_v"),
    "qk": _array("scores", "... H Lq Lk", "Q K^T, unscaled", "q_heads q_norm q_rot k_heads k_norm k_rot present_k k_extended"),
    "scaled": _array("scores", "... H Lq Lk", "scale * Q K^T", "qk", transformer_lens="hook_attn_scores", onnx="qk_matmul_output_mode 0"),
    "capped": _array("scores", "... H Lq Lk", "softcap * tanh(scaled / softcap)", "scaled", onnx="qk_matmul_output_mode 1"),
    "bias": _array("scores", "... H Lq Lk", "all additive terms together", "bias_table mask_add mask_key_add t5_table"),
    "keep": _array(
        "scores", "... H Lq Lk", "all masks together, True = attend", "mask_keep mask_block mask_key_keep mask_key_block", torch="attn_mask"
    ),
    "masked": _array("scores", "... H Lq Lk", "what enters the softmax", "scaled capped bias keep", onnx="qk_matmul_output_mode 2"),
    "weights": _array(
        "weights",
        "... H Lq Lk",
        "softmax of masked along the keys",
        "masked sinks",
        torch="attn_output_weights",
        transformer_lens="hook_pattern",
        onnx="qk_matmul_output_mode 3",
    ),
    "dropped": _array("weights", "... H Lq Lk", "weights * dropout_keep / (1 - p)", "weights dropout_keep"),
    "contexts": _array(
        "contexts",
        "... H Lq d_v",
        "weights V",
        "weights dropped v_heads present_v v_extended",
        torch="scaled_dot_product_attention",
        transformer_lens="hook_z",
    ),
    "concat": _array("contexts", "... Lq H*d_v", "contexts, heads side by side", "contexts"),
    "output": _array(
        "outputs", "... Lq d_out", "concat W_O^T + b_O", "concat w_o b_o", torch="attn_output", transformer_lens="hook_attn_out"
    ),
}

WEIGHTS = tuple(name for name in CATALOGUE if name.startswith(("w_", "b_", "g_")))
DRAWABLE = tuple(name for name, array in CATALOGUE.items() if array.stage == "parameters" and not name.startswith(("mask_", "dropout_")))
BOOLEAN = ("mask_keep", "mask_block", "mask_key_keep", "mask_key_block", "dropout_keep", "keep")
RANKS = {"bias_table": (2, 3, 4), "mask_keep": (2, 4), "mask_block": (2, 4), "mask_add": (2, 4)}  # these broadcast to [B, H, Lq, Lc]

GRADIENTS = "output concat w_o b_o contexts weights masked scaled qk v_heads q_heads k_heads q k v w_q b_q w_k b_k w_v b_v x x_kv x_k x_v"
for _name in GRADIENTS.split():
    CATALOGUE[f"d_{_name}"] = Array("backward", CATALOGUE[_name].axes, f"gradient of the loss by {_name}", (_name,))


def size(axis: str, dims: dict[str, int]) -> int:
    """Length of an axis: of a size, or of a product of sizes such as `H*d_k`."""
    return prod(dims[name] for name in axis.split("*"))


def axes(name: str, dims: dict[str, int]) -> tuple[str, ...]:
    """Axis names of array `name` in a case with these `dims`; B leads if the case has a batch. Masks without one are [Lq, Lc]."""
    batch = ("B",) if "B" in dims else ()
    named = sum(((batch if axis == "..." else (axis,)) for axis in CATALOGUE[name].axes), ())
    return named if len(named) in RANKS.get(name, (len(named),)) else named[-2:]


def shape(name: str, dims: dict[str, int]) -> tuple[int, ...]:
    """Shape of array `name` in a case with these `dims`."""
    return tuple(size(axis, dims) for axis in axes(name, dims))
