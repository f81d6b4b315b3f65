"""Stage backward: every gradient of a loss whose gradient at the output is given, from the output back to x.

For Y = X W^T + b: dX = dY W, dW = dY^T X, db = sum of dY over rows. For P = softmax(S): dS = P (dP - sum_j P_j dP_j), row
by row; the same holds with a sink, since the sink only joins the denominator. All else is the chain rule through the stages.
"""

import numpy as np

from worked_attention.stages.catalogue import SOURCES
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.positions import rotate, turns
from worked_attention.stages.precision import matmul, rounded, total, widened
from worked_attention.stages.projections import SHARED, latest, size, split_heads
from worked_attention.stages.scores import repeat_heads


def linear(dy: np.ndarray, x: np.ndarray, w: np.ndarray, accumulate: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(dX, dW, db) of Y = X W^T + b from dY [..., L, d_out], X [..., L, d_in] and W [d_out, d_in]; dW and db sum over the batch."""
    rows, inputs = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    return matmul(dy, w, accumulate), matmul(rows.T, inputs, accumulate), total(rounded(rows.T, accumulate))[:, 0]


def plain(dp: np.ndarray, p: np.ndarray) -> np.ndarray:
    """dS = P (dP - sum_j P_j dP_j), all [..., Lk]: the softmax Jacobian diag(P) - P P^T applied to dP, with or without a sink."""
    return p * (dp - (p * dp).sum(axis=-1, keepdims=True))


def none(dp: np.ndarray, p: np.ndarray) -> np.ndarray:
    """dS = dP: without a softmax the weights are the scores."""
    return dp


SOFTMAX = {"plain": plain, "plus_one": plain, "none": none}  # hardmax has no gradient, and a case that asks for it is refused


def norm(dy: np.ndarray, x: np.ndarray, options: dict, gain: np.ndarray | None) -> np.ndarray:
    """dX of y = gain * x / r with r^2 = mean or sum of x^2, plus eps: (g dY - u (u . g dY) / n) / r, where u = x/r; n = d or 1."""
    n = SHARED[options["kind"]](x.shape[-1])
    y, r, s = size(x, options["kind"], options["eps"])
    unit, dy = y / r, dy if gain is None else dy * gain
    return (dy - unit * (unit * dy).sum(axis=-1, keepdims=True) / n) / r / s


def unrotate(dy: np.ndarray, positions: np.ndarray, options: dict) -> np.ndarray:
    """dX of the rotation: turned back by the same angles."""
    cos, sin = (table.astype(dy.dtype) for table in turns(positions, options))
    return rotate(dy, cos, -sin, options["pairing"])


def sum_groups(x: np.ndarray, kv_heads: int) -> np.ndarray:
    """[..., H, L, d] to [..., H_kv, L, d]: what the query heads of a block ask of their one key or value head, added up."""
    return x.reshape(*x.shape[:-3], kv_heads, -1, *x.shape[-2:]).sum(axis=-3)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients `d_name` of every array on the way, from `upstream` or ones at the output; nothing if the case asks for none.

    Operands are widened, sums of products made in `precision.accumulate`, and each gradient is rounded once to the dtype of the case.
    """
    if not case["backward"]:
        return {}
    accumulate = case["precision"]["accumulate"]
    a = {name: widened(array) for name, array in arrays.items()}
    d: dict[str, np.ndarray] = {}

    def keep(name: str, gradient: np.ndarray) -> None:
        d[name] = widened(rounded(gradient, case["dtype"]))

    keep("output", a["upstream"] if "upstream" in a else np.ones_like(a["output"]))
    d["concat"] = d["output"]
    if "w_o" in a:
        for name, gradient in zip(("concat", "w_o", "b_o"), linear(d["output"], a["concat"], a["w_o"], accumulate), strict=True):
            keep(name, gradient)
    d["contexts"] = split_heads(d["concat"], case["heads"])
    values, keys = repeat_heads(latest(a, "v"), case["heads"]), repeat_heads(latest(a, "k"), case["heads"])
    d_values = matmul(np.swapaxes(a["dropped"] if "dropped" in a else a["weights"], -1, -2), d["contexts"], accumulate)
    d_weights = matmul(d["contexts"], np.swapaxes(values, -1, -2), accumulate)
    keep("weights", d_weights * a["dropout_keep"] / (1 - case["dropout"]) if "dropout_keep" in a else d_weights)
    through = SOFTMAX[case["softmax"]](d["weights"], a["weights"])
    keep("masked", np.where(a["masked"] == -np.inf, 0, through))  # nothing moves a blocked score
    d_scaled = np.where(a["keep"], d["masked"], 0) if "keep" in a else d["masked"]
    if case["softcap"]:
        d_scaled = d_scaled * (1 - (a["capped"] / case["softcap"]) ** 2)
    keep("scaled", d_scaled)
    keep("qk", d["scaled"] * case["scale_factor"])
    new = slice(case["dims"]["Lp"], case["dims"]["Lc"])  # neither the past nor what the layer appends
    keep("v_heads", sum_groups(d_values, case["kv_heads"])[..., new, :])
    last = {"q": matmul(d["qk"], keys, accumulate)}
    last["k"] = sum_groups(matmul(np.swapaxes(d["qk"], -1, -2), latest(a, "q"), accumulate), case["kv_heads"])[..., new, :]
    for name, positions in (("q", case["query_positions"]), ("k", case["key_positions"])):
        gradient = last[name]
        if case["rotary"]:
            gradient = unrotate(gradient, np.array(positions), case["rotary"])
        if case["qk_norm"]:
            gradient = norm(gradient, a[f"{name}_heads"], case["qk_norm"], a.get(f"g_{name}"))
        keep(f"{name}_heads", gradient)
    for name in ("q", "k", "v"):
        d[name] = merge_heads(d[f"{name}_heads"])
        source = next((s for s in SOURCES[name] if s in a and not s.endswith("_pos")), None)
        if source is None:
            continue
        d_source = d[name]
        if f"w_{name}" in a:
            x = a[f"{source}_pos"] if f"{source}_pos" in a else a[source]
            d_source, d_w, d_b = linear(d[name], x, a[f"w_{name}"], accumulate)
            keep(f"w_{name}", d_w)
            keep(f"b_{name}", d_b)
        d[source] = d[source] + d_source if source in d else d_source
    return {f"d_{name}": rounded(d[name], case["dtype"]) for name in (key[2:] for key in case["arrays"]["backward"])}
