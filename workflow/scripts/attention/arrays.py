"""The catalogue: every array of every stage, its axes, its formula and the names that others give it.

An axis is a size of the case (`Lq`, `d_k`, …) or a product of two (`H*d_k`). "..." stands for the optional batch axis B.
"""

from dataclasses import dataclass, field
from math import prod

STAGES = ("parameters", "projections", "scores", "weights", "contexts", "outputs")


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
    "w_q": _array("parameters", "H*d_k d_model", "query weight, stored [out, in]", transformer_lens="W_Q"),
    "b_q": _array("parameters", "H*d_k", "query bias", transformer_lens="b_Q"),
    "w_k": _array("parameters", "H*d_k d_model", "key weight, stored [out, in]", transformer_lens="W_K"),
    "b_k": _array("parameters", "H*d_k", "key bias", transformer_lens="b_K"),
    "w_v": _array("parameters", "H*d_v d_model", "value weight, stored [out, in]", transformer_lens="W_V"),
    "b_v": _array("parameters", "H*d_v", "value bias", transformer_lens="b_V"),
    "w_o": _array("parameters", "d_out H*d_v", "output weight, stored [out, in]", torch="out_proj.weight", transformer_lens="W_O"),
    "b_o": _array("parameters", "d_out", "output bias", torch="out_proj.bias", transformer_lens="b_O"),
    "q": _array("projections", "... Lq H*d_k", "X W_Q^T + b_Q", "x w_q b_q"),
    "k": _array("projections", "... Lk H*d_k", "X W_K^T + b_K", "x w_k b_k"),
    "v": _array("projections", "... Lk H*d_v", "X W_V^T + b_V", "x w_v b_v"),
    "q_heads": _array("projections", "... H Lq d_k", "q split into heads", "q", transformer_lens="hook_q", onnx="Q"),
    "k_heads": _array("projections", "... H Lk d_k", "k split into heads", "k", transformer_lens="hook_k", onnx="K"),
    "v_heads": _array("projections", "... H Lk d_v", "v split into heads", "v", transformer_lens="hook_v", onnx="V"),
    "qk": _array("scores", "... H Lq Lk", "Q K^T, unscaled", "q_heads k_heads"),
    "scaled": _array("scores", "... H Lq Lk", "scale * Q K^T", "qk", transformer_lens="hook_attn_scores", onnx="qk_matmul_output_mode 0"),
    "masked": _array("scores", "... H Lq Lk", "what enters the softmax", "scaled", onnx="qk_matmul_output_mode 2"),
    "weights": _array(
        "weights",
        "... H Lq Lk",
        "softmax of masked along the keys",
        "masked",
        torch="attn_output_weights",
        transformer_lens="hook_pattern",
        onnx="qk_matmul_output_mode 3",
    ),
    "contexts": _array(
        "contexts", "... H Lq d_v", "weights V", "weights v_heads", torch="scaled_dot_product_attention", transformer_lens="hook_z"
    ),
    "concat": _array("contexts", "... Lq H*d_v", "contexts, heads side by side", "contexts"),
    "output": _array(
        "outputs", "... Lq d_out", "concat W_O^T + b_O", "concat w_o b_o", torch="attn_output", transformer_lens="hook_attn_out"
    ),
}

INPUTS = ("x", "q", "k", "v", "scaled")  # arrays of which a case gives some to begin with; they may carry a batch axis
WEIGHTS = tuple(name for name in CATALOGUE if name.startswith(("w_", "b_")))


def size(axis: str, dims: dict[str, int]) -> int:
    """Length of an axis: of a size, or of a product of sizes such as `H*d_k`."""
    return prod(dims[name] for name in axis.split("*"))


def axes(name: str, dims: dict[str, int]) -> tuple[str, ...]:
    """Axis names of array `name` in a case with these `dims`; B leads if the case has a batch."""
    batch = ("B",) if "B" in dims else ()
    return sum(((batch if axis == "..." else (axis,)) for axis in CATALOGUE[name].axes), ())


def shape(name: str, dims: dict[str, int]) -> tuple[int, ...]:
    """Shape of array `name` in a case with these `dims`."""
    return tuple(size(axis, dims) for axis in axes(name, dims))
