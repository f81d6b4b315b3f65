"""Typical errors of the gradients, by the chain rule of `stages.backward`."""

import numpy as np

from worked_attention.referee.typical.projections import turned
from worked_attention.referee.typical.rounding import Spread, flat, product, rounding
from worked_attention.referee.typical.scores import latest, turn
from worked_attention.stages import backward
from worked_attention.stages.catalogue import SOURCES
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import SHARED, split_heads


def linear(of: Spread, dy: str, x: str, w: str) -> np.ndarray:
    """Notes dW = dY^T X and db = sum dY over n rows; the variance of dX = dY W before it is stored."""
    a = of.centre
    vy, y, vx, rows = flat(of.variance.get(f"d_{dy}")), flat(a[f"d_{dy}"]), flat(of.variance.get(x)), flat(a[x])
    of.settle(f"d_{w}", product(turn(vy), y.T, vx, rows, of.u))
    bias = f"d_b{w[1:]}"
    if bias in a:
        ones = np.ones((1, len(y)))
        of.settle(bias, product(None, ones, vy, y, of.u)[0])
    return product(of.variance.get(f"d_{dy}"), a[f"d_{dy}"], None, a[w], of.u)


def softmax(of: Spread) -> None:
    """dS = P (dP - t), t = sum_j P_j dP_j. Errors e of the scores move t by sum_j P_j e_j (dP_j - t), storing the weights by sum_j (error
    of P_j) dP_j; products and differences are rounded one by one."""
    a = of.centre
    p, dp = np.where(np.isnan(a["weights"]), 0.0, a["weights"]), a["d_weights"]
    t = (p * dp).sum(axis=-1, keepdims=True)
    away, vp, vdp = dp - t, of.of("weights"), of.of("d_weights")
    soft = np.zeros(p.shape) if of.moved is None else np.minimum(of.moved[..., : p.shape[-1]] ** 2, 1e200)
    stored = vp if of.moved is None else of.rounding("weights", p)
    vt = (p * p * vdp + soft * away**2 + stored * dp**2).sum(axis=-1, keepdims=True) + of.total * t * t
    vt = vt + (of.rounding("d_masked", p * dp)).sum(axis=-1, keepdims=True) + of.rounding("d_masked", t)
    found = vp * away**2 + p * p * (vdp + vt + of.rounding("d_masked", np.abs(dp) + np.abs(t)))
    of.settle("d_masked", np.where(np.isneginf(a["masked"]), 0.0, found), 2)


def none(of: Spread) -> None:
    """dS = dP, 0 where blocked."""
    of.settle("d_masked", np.where(np.isneginf(of.centre["masked"]), 0.0, of.of("d_weights")), 0)


SOFTMAX = {"plain": softmax, "plus_one": softmax, "none": none}


def softcap(of: Spread) -> None:
    """Blocked scores have no gradient. Softcap multiplies by f = 1 - t^2, t = capped / c."""
    a, cap = of.centre, of.case["softcap"]
    found = np.where(a["keep"], of.of("d_masked"), 0.0) if "keep" in a else of.of("d_masked")
    if not cap:
        of.settle("d_scaled", found, 0)
        return
    t = a["capped"] / cap
    vf = 4 * t * t * (of.of("capped") / cap**2 + 2 * of.rounding("d_scaled", t)) + of.rounding("d_scaled", np.ones(()))
    d = np.where(a.get("keep", True), a["d_masked"], 0.0)
    of.settle("d_scaled", found * (1 - t * t) ** 2 + d * d * vf)


def norm(of: Spread, name: str, dy: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Variance of dX = (y - h w) / r with y = g dY, h = x / r, w = h . y / n; every step is rounded.

    dy, variance: gradient and variance at the normed heads.
    """
    a, options, own = of.centre, of.case["qk_norm"], f"d_{name}_heads"
    x, vx = a[f"{name}_heads"], of.of(f"{name}_heads")
    n = SHARED[options["kind"]](x.shape[-1])
    inverse = 1 / ((x * x).sum(axis=-1, keepdims=True) / n + options["eps"])  # 1 / r^2
    vr = (x * x * vx).sum(axis=-1, keepdims=True) * (inverse / n) ** 2  # variance of the relative error of r
    g = a.get(f"g_{name}", np.ones(()))
    y, h = dy * g, x * np.sqrt(inverse)
    vy = variance * g * g + of.rounding(own, y)
    vh = vx * inverse + h * h * vr + 2 * of.rounding(own, h)
    w = (h * y).sum(axis=-1, keepdims=True) / n
    vw = (h * h * vy + y * y * vh + of.rounding(own, h * y)).sum(axis=-1, keepdims=True) / n**2 + 2 * of.rounding(own, w)
    top = y - h * w
    return inverse * (vy + h * h * vw + w * w * vh + of.rounding(own, h * w) + of.rounding(own, top) + top * top * vr) + 2 * rounding(
        top * np.sqrt(inverse), of.unit(own)
    )


def stage(of: Spread) -> None:
    """Every gradient, in the order of `stages.backward`."""
    case, a = of.case, of.centre
    if not case["backward"]:
        return
    of.variance["d_output"] = np.zeros(a["d_output"].shape)
    of.settle("d_concat", linear(of, "output", "concat", "w_o") if "w_o" in a else of.of("d_output"), int("w_o" in a))
    of.variance["d_contexts"] = split_heads(of.of("d_concat"), case["heads"])
    (vq, q), (vk, k), (vv, v) = (latest(of, name) for name in "qkv")
    used = "dropped" if "dropped" in a else "weights"
    new = slice(case["dims"]["Lp"], case["dims"]["Lc"])

    def grouped(x: np.ndarray) -> np.ndarray:
        return backward.sum_groups(x, case["kv_heads"])[..., new, :]

    vc, dc = of.of("d_contexts"), a["d_contexts"]
    weights = np.where(np.isnan(a[used]), 0.0, a[used])
    of.settle("d_v_heads", grouped(product(turn(of.of(used)), turn(weights), vc, dc, of.u)), 2)
    found = product(vc, dc, turn(vv), turn(v), of.u)
    if "dropout_keep" in a:
        of.settle("d_weights", found * (a["dropout_keep"] / (1 - case["dropout"])) ** 2, 4)
    else:
        of.settle("d_weights", found)
    SOFTMAX[case["softmax"]](of)
    softcap(of)
    of.settle("d_qk", case["scale_factor"] ** 2 * of.of("d_scaled"), 3)
    vd, d = of.of("d_qk"), a["d_qk"]
    back = {"q": (product(vd, d, vk, k, of.u), d @ k), "k": (grouped(product(turn(vd), turn(d), vq, q, of.u)), grouped(turn(d) @ q))}
    for name, where in (("q", case["query_positions"]), ("k", case["key_positions"])):
        variance, centre = back[name]
        own = f"d_{name}_heads"
        if case["rotary"]:
            variance = turned(of, own, centre, variance + of.rounding(own, centre), where)
            centre = backward.unrotate(centre, np.array(where), case["rotary"])
        if case["qk_norm"]:
            variance = norm(of, name, centre, variance + of.rounding(own, centre))
        of.settle(own, variance, 2)
    parts: dict[str, list[np.ndarray]] = {}
    for name in "qkv":
        if f"d_{name}" in a:
            of.variance[f"d_{name}"] = merge_heads(of.of(f"d_{name}_heads"))
        source = next((s for s in SOURCES[name] if s in a and not s.endswith("_pos")), None)
        if source is None:
            continue
        part, size = of.of(f"d_{name}"), a[f"d_{name}"]
        if f"w_{name}" in a:
            part, size = linear(of, name, f"{source}_pos" if f"{source}_pos" in a else source, f"w_{name}"), size @ a[f"w_{name}"]
        parts.setdefault(source, []).append(part + 2 * of.rounding(f"d_{source}", size))
    for source, variances in parts.items():
        of.settle(f"d_{source}", sum(variances))
