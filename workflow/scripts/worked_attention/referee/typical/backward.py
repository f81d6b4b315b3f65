"""Typical errors of the gradients, by the chain rule of `stages.backward`."""

import numpy as np

from worked_attention.referee.typical.projections import turned
from worked_attention.referee.typical.rounding import Spread, flat, product, rounding
from worked_attention.referee.typical.scores import latest, turn
from worked_attention.stages import backward
from worked_attention.stages.catalogue import SOURCES
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import SHARED, split_heads

LITTLE = 1 / 16  # a standard deviation of a score up to which first order is taken at its word


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
    """dS = P (dP - t), t = sum_j P_j dP_j; with a = dP - t, errors of dP, of the scores and of storing P make, to first order,

        P_i (e_i - sum_j P_j e_j),    P_i (e_i a_i - sum_j P_j e_j (a_i + a_j)),    e_i a_i - P_i sum_j e_j dP_j,

    and a common error of the sum makes P_i (t - a_i) times it. Where an error of a score is not small, what it has in common with its own
    share of the sums is not taken off. Products and differences, P (dP - t) or P dP - P t, are rounded one by one in the arithmetic of
    sums, and the result as it is stored."""
    a = of.centre
    p, dp = np.where(np.isnan(a["weights"]), 0.0, a["weights"]), a["d_weights"]
    t = (p * dp).sum(axis=-1, keepdims=True)
    away, vdp = dp - t, of.of("d_weights")
    soft = np.zeros(p.shape) if of.moved is None else np.minimum(of.moved[..., : p.shape[-1]] ** 2, 1e200)
    stored = of.of("weights") if of.moved is None else of.rounding("weights", p)
    own = soft * np.where(soft <= (LITTLE * p) ** 2, 1 - 4 * p, 1.0) * away**2 + stored * (away**2 - 2 * p * away * dp)
    own = own + p * p * ((1 - 2 * p) * vdp + of.total * (t - away) ** 2 + rounding(dp, of.u) + rounding(t, of.u))
    row = p * p * vdp + stored * dp**2 + rounding(p * dp, of.u)
    common = [(soft * away**power).sum(axis=-1, keepdims=True) for power in range(3)]
    row = row.sum(axis=-1, keepdims=True) + rounding(t, of.u) + common[0] * away**2 + 2 * common[1] * away + common[2]
    of.settle("d_masked", np.where(np.isneginf(a["masked"]), 0.0, np.maximum(own + p * p * row, 0.0)))


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

    def shared(name: str, variance: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Variance of what several query heads ask of one key or value head: the `share` of each is stored before they are added."""
        return grouped(variance + of.rounding(name, share) if case["kv_heads"] < case["heads"] else variance)

    vc, dc = of.of("d_contexts"), a["d_contexts"]
    weights = np.where(np.isnan(a[used]), 0.0, a[used])
    of.settle("d_v_heads", shared("d_v_heads", product(turn(of.of(used)), turn(weights), vc, dc, of.u), turn(weights) @ dc))
    found = product(vc, dc, turn(vv), turn(v), of.u)
    if "dropout_keep" in a:
        of.settle("d_weights", found * (a["dropout_keep"] / (1 - case["dropout"])) ** 2, 4)
    else:
        of.settle("d_weights", found)
    SOFTMAX[case["softmax"]](of)
    softcap(of)
    of.settle("d_qk", case["scale_factor"] ** 2 * of.of("d_scaled") + 2 * rounding(a["d_qk"], of.u))
    vd, d = of.of("d_qk"), a["d_qk"]
    share = turn(d) @ q
    back = {"q": (product(vd, d, vk, k, of.u), d @ k)}
    back["k"] = (shared("d_k_heads", product(turn(vd), turn(d), vq, q, of.u), share), grouped(share))
    for name, where in (("q", case["query_positions"]), ("k", case["key_positions"])):
        variance, centre = back[name]
        own = f"d_{name}_heads"
        if case["rotary"]:
            variance = turned(of, own, centre, variance + of.rounding(own, centre), where)
            centre = backward.unrotate(centre, np.array(where), case["rotary"])
        if case["qk_norm"]:
            variance = norm(of, name, centre, variance + of.rounding(own, centre))
        of.settle(own, variance)
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for name in "qkv":
        if f"d_{name}" in a:
            of.variance[f"d_{name}"] = merge_heads(of.of(f"d_{name}_heads"))
        source = next((s for s in SOURCES[name] if s in a and not s.endswith("_pos")), None)
        if source is None:
            continue
        part, size = of.of(f"d_{name}"), a[f"d_{name}"]
        if f"w_{name}" in a:
            part, size = linear(of, name, f"{source}_pos" if f"{source}_pos" in a else source, f"w_{name}"), size @ a[f"w_{name}"]
        parts.setdefault(source, []).append((part, size))
    for source, found in parts.items():  # of several parts each is stored, then they are added one after the other
        own = sum(part + (len(found) - 1) * of.rounding(f"d_{source}", size) for part, size in found)
        of.settle(f"d_{source}", own)
