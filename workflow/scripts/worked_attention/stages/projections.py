"""Stage projections: queries, keys and values, whole and split into heads, normed, rotated, behind what the cache holds.

Q = X W_Q^T + b_Q, and likewise K and V (Vaswani et al. 2017, section 3.2.2); head h takes its own d columns.
"""

from collections.abc import Collection

import numpy as np

from worked_attention.stages.catalogue import source
from worked_attention.stages.positions import rotary, sinusoids, tables
from worked_attention.stages.precision import matmul, rounded, widened

ZERO_VECTOR = {"zero": 0.0, "nan": np.nan}  # what a norm makes of a vector of zeros where eps is 0
SHARED = {"rms": lambda width: width, "l2": lambda width: 1}  # over how many columns a norm shares the sum of squares


def project(x: np.ndarray, w: np.ndarray | None = None, b: np.ndarray | None = None, accumulate: str = "float64") -> np.ndarray:
    """X W^T + b; a factor that is None is left out.

    x: [..., L, d_in]; w: [d_out, d_in]; b: [d_out]. Returns [..., L, d_out] in the dtype of x, summed in `accumulate`.
    """
    y = x if w is None else matmul(x, w.T, accumulate)
    return rounded(y if b is None else widened(y) + widened(b), x.dtype)


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[..., L, H*d] to [..., H, L, d]: head h takes the columns h*d to (h+1)*d."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def size(x: np.ndarray, kind: str, eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x / s, r / s, s) with r = sqrt(mean or sum of x^2 + eps) along the last axis.

    x: [..., d]. s [..., 1] is the power of two next to the largest |x| or sqrt(eps), so that no square over- or underflows; to divide
    by a power of two rounds nothing.
    """
    largest = np.maximum(np.abs(x).max(axis=-1, keepdims=True), np.sqrt(x.dtype.type(eps)))
    s = np.ldexp(x.dtype.type(1), np.frexp(np.where(np.isfinite(largest) & (largest > 0), largest, 1))[1] - 1)
    y = x / s
    return y, np.sqrt((y * y).sum(axis=-1, keepdims=True) / SHARED[kind](x.shape[-1]) + x.dtype.type(eps) / s / s), s


def norm(x: np.ndarray, options: dict, gain: np.ndarray | None = None) -> np.ndarray:
    """x divided, along its last axis, by its root mean square (`rms`) or its length (`l2`), times a gain [d] if there is one.

    rms: sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019, equation 4). l2: sqrt(sum(x^2) + eps) (Henry et al. 2020, section 2.1).
    options: {kind, eps, zero_vector}; the last says what 0/0 is, where x and eps are 0.
    """
    y, r, _ = size(widened(x), options["kind"], options["eps"])
    with np.errstate(invalid="ignore"):
        y = np.where(r == 0, x.dtype.type(ZERO_VECTOR[options["zero_vector"]]), y / r)
    return rounded(y if gain is None else y * widened(gain), x.dtype)


def extend(x: np.ndarray, bias: np.ndarray | None, zero: bool, heads: int) -> np.ndarray:
    """`x` [..., H, L, d] with the key (or value) `bias` [H*d] and a zero one behind the others, as torch.nn.MultiheadAttention does."""
    more = [split_heads(bias[None], heads)] if bias is not None else []
    more += [np.zeros((1, x.shape[-1]), x.dtype)] if zero else []
    return np.concatenate([x, *(np.broadcast_to(m, (*x.shape[:-2], 1, x.shape[-1])) for m in more)], axis=-2)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """From x (or from q, k, v, whole or per head) to what the scores and contexts use, as far as the case has it."""
    wanted, made = case["arrays"]["projections"], dict(arrays)
    positions = {"q": np.array(case["query_positions"]), "k": np.array(case["key_positions"])}
    for name, where in (("x", "q"), ("x_kv", "k")):
        if f"{name}_pos" in wanted:
            x = widened(arrays[name])
            waves = sinusoids(positions[where], x.shape[-1], case["sinusoidal"]["base"])
            made[f"{name}_pos"] = rounded(x + waves.astype(x.dtype), arrays[name].dtype)
    for name in ("q", "k", "v"):
        heads = case["heads"] if name == "q" else case["kv_heads"]
        if name in wanted and name not in made:
            made[name] = project(
                made[source(name, made)], arrays.get(f"w_{name}"), arrays.get(f"b_{name}"), case["precision"]["accumulate"]
            )
        if f"{name}_heads" in wanted and f"{name}_heads" not in made:
            made[f"{name}_heads"] = split_heads(made[name], heads)
    if "inv_freq" in wanted:
        found = tables(case["query_positions"], case["key_positions"], case["rotary"])
        made |= {name: rounded(table, np.dtype(case["dtype"])) for name, table in found.items()}
    for name in ("q", "k"):
        if f"{name}_norm" in wanted:
            made[f"{name}_norm"] = norm(made[f"{name}_heads"], case["qk_norm"], arrays.get(f"g_{name}"))
        if f"{name}_rot" in wanted:
            made[f"{name}_rot"] = rotary(unrotated(made, name), positions[name], case["rotary"])
    if "present_k" in wanted:
        made["present_k"] = np.concatenate([arrays["past_k"], latest(made, "k")], axis=-2)
        made["present_v"] = np.concatenate([arrays["past_v"], made["v_heads"]], axis=-2)
    if "k_extended" in wanted:
        for name in ("k", "v"):
            zero = case["extra_key"] == "zero"
            made[f"{name}_extended"] = extend(latest(made, name), arrays.get(f"bias_{name}"), zero, case["kv_heads"])
    return {name: made[name] for name in wanted}


def unrotated(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The queries, keys or values per head before a rotation: normed, where they are."""
    return arrays[f"{name}_norm" if f"{name}_norm" in arrays else f"{name}_heads"]


def latest(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The queries, keys or values (`name` q, k or v) per head after everything that the case does to them."""
    return arrays[last_form(arrays, name)]


def last_form(there: Collection[str], name: str) -> str:
    """Which of the arrays that are `there` these queries, keys or values are."""
    forms = (f"{name}_extended", f"present_{name}", f"{name}_rot", f"{name}_norm", f"{name}_heads")
    return next(form for form in forms if form in there)
