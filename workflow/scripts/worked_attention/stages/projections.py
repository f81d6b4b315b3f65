"""Stage projections: queries, keys and values, whole and split into heads, normed, rotated, behind what the cache holds.

Q = X W_Q^T + b_Q, and likewise K and V (Vaswani et al. 2017, section 3.2.2); head h takes its own d columns.
"""

import numpy as np

from worked_attention.stages.positions import rotary, sinusoids
from worked_attention.stages.precision import matmul


def project(x: np.ndarray, w: np.ndarray | None = None, b: np.ndarray | None = None, accumulate: str = "float64") -> np.ndarray:
    """X W^T + b; a factor that is None is left out.

    x: [..., L, d_in]; w: [d_out, d_in]; b: [d_out]. Returns [..., L, d_out] in the dtype of x, summed in `accumulate`.
    """
    y = x if w is None else matmul(x, w.T, accumulate)
    return y if b is None else y + b


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[..., L, H*d] to [..., H, L, d]: head h takes the columns h*d to (h+1)*d."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def norm(x: np.ndarray, kind: str, eps: float, gain: np.ndarray | None = None) -> np.ndarray:
    """x divided, along its last axis, by its root mean square (`rms`) or its length (`l2`), times a gain [d] if there is one.

    rms: sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019, equation 4). l2: sqrt(sum(x^2) + eps) (Henry et al. 2020, section 2.1).
    """
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    size = {"rms": np.mean, "l2": np.sum}[kind](wide * wide, axis=-1, keepdims=True)
    y = (wide / np.sqrt(size + eps)).astype(x.dtype)
    return y if gain is None else y * gain


def extend(x: np.ndarray, bias: np.ndarray | None, zero: bool, heads: int) -> np.ndarray:
    """`x` [..., H, L, d] with the key (or value) `bias` [H*d] and a zero one behind the others, as torch.nn.MultiheadAttention does."""
    more = [split_heads(bias[None], heads)] if bias is not None else []
    more += [np.zeros((1, x.shape[-1]), x.dtype)] if zero else []
    return np.concatenate([x, *(np.broadcast_to(m, (*x.shape[:-2], 1, x.shape[-1])) for m in more)], axis=-2)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """From x (or from q, k, v, whole or per head) to what the scores and contexts use, as far as the case has it."""
    wanted, made = case["arrays"]["projections"], dict(arrays)
    positions = {"q": np.array(case["query_positions"]), "k": np.array(case["key_positions"])}
    if "x_pos" in wanted:
        sinusoidal = sinusoids(positions["q"], case["dims"]["d_model"], case["sinusoidal"]["base"])
        made["x_pos"] = arrays["x"] + sinusoidal.astype(arrays["x"].dtype)
    if "x_kv_pos" in wanted:
        sinusoidal = sinusoids(positions["k"], case["dims"]["d_kv"], case["sinusoidal"]["base"])
        made["x_kv_pos"] = arrays["x_kv"] + sinusoidal.astype(arrays["x_kv"].dtype)
    sources = {"q": ("x_pos", "x"), "k": ("x_k", "x_kv_pos", "x_kv", "x_pos", "x"), "v": ("x_v", "x_kv_pos", "x_kv", "x_pos", "x")}
    for name in ("q", "k", "v"):
        heads = case["heads"] if name == "q" else case["kv_heads"]
        if name in wanted and name not in made:
            x = next(made[source] for source in sources[name] if source in made)
            made[name] = project(x, arrays.get(f"w_{name}"), arrays.get(f"b_{name}"), case["precision"]["accumulate"])
        if f"{name}_heads" in wanted and f"{name}_heads" not in made:
            made[f"{name}_heads"] = split_heads(made[name], heads)
    for name in ("q", "k"):
        if f"{name}_norm" in wanted:
            options = case["qk_norm"]
            made[f"{name}_norm"] = norm(made[f"{name}_heads"], options["kind"], options["eps"], arrays.get(f"g_{name}"))
        if f"{name}_rot" in wanted:
            made[f"{name}_rot"] = rotary(made.get(f"{name}_norm", made[f"{name}_heads"]), positions[name], case["rotary"])
    if "present_k" in wanted:
        made["present_k"] = np.concatenate([arrays["past_k"], latest(made, "k")], axis=-2)
        made["present_v"] = np.concatenate([arrays["past_v"], made["v_heads"]], axis=-2)
    if "k_extended" in wanted:
        for name in ("k", "v"):
            zero = case["extra_key"] == "zero"
            made[f"{name}_extended"] = extend(latest(made, name), arrays.get(f"bias_{name}"), zero, case["kv_heads"])
    return {name: made[name] for name in wanted}


def latest(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The queries, keys or values (`name` q, k or v) per head after everything that the case does to them."""
    forms = (f"{name}_extended", f"present_{name}", f"{name}_rot", f"{name}_norm", f"{name}_heads")
    return next(arrays[form] for form in forms if form in arrays)
