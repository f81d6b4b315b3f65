"""Stage backward: every gradient of a loss whose gradient at the output is given, from the output back to x.

For Y = X W^T + b: dX = dY W, dW = dY^T X, db = sum of dY over rows. For P = softmax(S): dS = P (dP - sum_j P_j dP_j), row
by row; the same holds with a sink, since the sink only joins the denominator. All else is the chain rule through the stages.
"""

import numpy as np

from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.positions import angles, frequencies, rotate
from worked_attention.stages.projections import latest, split_heads
from worked_attention.stages.scores import repeat_heads


def linear(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(dX, dW, db) of Y = X W^T + b from dY [..., L, d_out], X [..., L, d_in] and W [d_out, d_in]; dW and db sum over the batch."""
    rows, inputs = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    return dy @ w, rows.T @ inputs, rows.sum(axis=0)


def softmax(dp: np.ndarray, p: np.ndarray) -> np.ndarray:
    """dS = P (dP - sum_j P_j dP_j), all [..., Lk]: the softmax Jacobian diag(P) - P P^T applied to dP."""
    return p * (dp - (p * dp).sum(axis=-1, keepdims=True))


def norm(dy: np.ndarray, x: np.ndarray, options: dict, gain: np.ndarray | None) -> np.ndarray:
    """dX of y = gain * x / r with r^2 = mean or sum of x^2, plus eps: (g dY - u (u . g dY) / n) / r, where u = x/r; n = d or 1."""
    n = x.shape[-1] if options["kind"] == "rms" else 1
    r = np.sqrt((x * x).sum(axis=-1, keepdims=True) / n + options["eps"])
    unit, dy = x / r, dy if gain is None else dy * gain
    return (dy - unit * (unit * dy).sum(axis=-1, keepdims=True) / n) / r


def unrotate(dy: np.ndarray, positions: np.ndarray, options: dict) -> np.ndarray:
    """dX of the rotation: turned back by the same angles."""
    theta, stretch = frequencies(options.get("dims", dy.shape[-1]), options.get("base", 10000.0), options.get("scaling"))
    turned = angles(positions, theta, np.dtype(options.get("angles", "float64")))
    return rotate(dy, (stretch * np.cos(turned)).astype(dy.dtype), (-stretch * np.sin(turned)).astype(dy.dtype), options["pairing"])


def sum_groups(x: np.ndarray, kv_heads: int) -> np.ndarray:
    """[..., H, L, d] to [..., H_kv, L, d]: what the query heads of a block ask of their one key or value head, added up."""
    return x.reshape(*x.shape[:-3], kv_heads, -1, *x.shape[-2:]).sum(axis=-3)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients `d_name` of every array on the way, from `upstream` or ones at the output; nothing if the case asks for none."""
    if not case["backward"]:
        return {}
    a, d = arrays, {}
    d["output"] = a["upstream"] if "upstream" in a else np.ones_like(a["output"])
    d["concat"] = d["output"]
    if "w_o" in a:
        d["concat"], d["w_o"], d["b_o"] = linear(d["output"], a["concat"], a["w_o"])
    d["contexts"] = split_heads(d["concat"], case["heads"])
    values, keys = repeat_heads(latest(a, "v"), case["heads"]), repeat_heads(latest(a, "k"), case["heads"])
    used = a.get("dropped", a["weights"])
    d_values = np.swapaxes(used, -1, -2) @ d["contexts"]
    d["weights"] = d["contexts"] @ np.swapaxes(values, -1, -2)
    if "dropout_keep" in a:
        d["weights"] = d["weights"] * a["dropout_keep"] / (1 - case["dropout"])
    d["masked"] = np.where(a["masked"] == -np.inf, 0, softmax(d["weights"], a["weights"]))  # nothing moves a blocked score
    d["scaled"] = np.where(a["keep"], d["masked"], 0) if "keep" in a else d["masked"]
    if case["softcap"]:
        d["scaled"] = d["scaled"] * (1 - (a["capped"] / case["softcap"]) ** 2)
    d["qk"] = d["scaled"] * case["scale_factor"]
    new = slice(case["dims"]["Lp"], case["dims"]["Lc"])  # neither the past nor what the layer appends
    d["v_heads"] = sum_groups(d_values, case["kv_heads"])[..., new, :]
    d["q_heads"] = d["qk"] @ keys
    d["k_heads"] = sum_groups(np.swapaxes(d["qk"], -1, -2) @ latest(a, "q"), case["kv_heads"])[..., new, :]
    for name, positions in (("q", case["query_positions"]), ("k", case["key_positions"])):
        if case["rotary"]:
            d[f"{name}_heads"] = unrotate(d[f"{name}_heads"], np.array(positions), case["rotary"])
        if case["qk_norm"]:
            d[f"{name}_heads"] = norm(d[f"{name}_heads"], a[f"{name}_heads"], case["qk_norm"], a.get(f"g_{name}"))
    sources = {"q": ("x",), "k": ("x_k", "x_kv", "x"), "v": ("x_v", "x_kv", "x")}
    for name in ("q", "k", "v"):
        d[name] = merge_heads(d[f"{name}_heads"])
        source = next((s for s in sources[name] if s in a), None)
        if source is None:
            continue
        d_source = d[name]
        if f"w_{name}" in a:
            x = a.get(f"{source}_pos", a[source])
            d_source, d[f"w_{name}"], d[f"b_{name}"] = linear(d[name], x, a[f"w_{name}"])
        d[source] = d[source] + d_source if source in d else d_source
    made = {f"d_{name}": np.asarray(value, dtype=case["dtype"]) for name, value in d.items()}
    return {name: made[name] for name in case["arrays"]["backward"]}
