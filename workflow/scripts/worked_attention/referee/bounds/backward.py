"""Bounds of every gradient."""

import math
from collections.abc import Callable

import numpy as np

from worked_attention.referee.bounds.projections import inverse_size, turned
from worked_attention.referee.bounds.rounding import Errors, finish, gamma, latest_error, product, transposed
from worked_attention.stages import backward
from worked_attention.stages.catalogue import SOURCES
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import latest, split_heads
from worked_attention.stages.scores import repeat_heads


def stage(of: Errors) -> None:
    """Every gradient, by the chain rule of attention.backward: products of matrices as before; the rest in functions of their own."""
    case, a = of.case, of.centre
    if not case["backward"]:
        return
    e, m = {}, {}  # E and M of each gradient, those that the case does not show included

    def note(name: str, error: np.ndarray, roundings: float = 0) -> None:
        of.settle(f"d_{name}", np.broadcast_to(error, a[f"d_{name}"].shape), roundings)
        e[name], m[name] = of.bound[f"d_{name}"], of.most(f"d_{name}")

    def linear(dy: str, x: str, w: str) -> np.ndarray:
        """Notes dW = dY^T X and db = sum dY over n rows; the error of dX = dY W before it is stored."""
        (ey, my), (ex, mx), width = (e[dy], m[dy]), (of.bound.get(x), of.most(x)), a[w].shape[0]
        rows = [None if y is None else y.reshape(-1, y.shape[-1]) for y in (ey, my, ex, mx)]
        n = len(rows[1])
        note(w, product(transposed(rows[0]), transposed(rows[1]), rows[2], rows[3], gamma(n + 2, of.unit(f"d_{w}"))))
        if f"d_b{w[1:]}" in a:
            note("b" + w[1:], (rows[0] + gamma(n, of.unit(f"d_b{w[1:]}")) * rows[1]).sum(axis=0))
        return (ey + gamma(width + 4, of.u) * my) @ np.abs(a[w])

    e["output"], m["output"] = np.zeros(a["d_output"].shape), np.abs(a["d_output"])
    of.bound["d_output"] = e["output"]
    note("concat", linear("output", "concat", "w_o") if "w_o" in a else e["output"])
    note("contexts", split_heads(e["concat"], case["heads"]))
    (ev, mv), (ek, mk), (eq, mq) = (latest_error(of, name) for name in "vkq")
    used = "dropped" if "dropped" in a else "weights"
    lq, lk = a["weights"].shape[-2:]
    groups = case["heads"] // case["kv_heads"]
    new = slice(case["dims"]["Lp"], case["dims"]["Lc"])

    def grouped(x: np.ndarray) -> np.ndarray:
        return backward.sum_groups(x, case["kv_heads"])[..., new, :]

    d_values = product(
        transposed(of.bound.get(used)),
        transposed(of.most(used)),
        e["contexts"],
        m["contexts"],
        gamma(lq + groups + 2, of.unit("d_v_heads")),
    )
    error = product(e["contexts"], m["contexts"], transposed(ev), transposed(mv), gamma(mv.shape[-1] + 2, of.u))
    if "dropout_keep" in a:
        p = case["dropout"]
        note("weights", error * a["dropout_keep"] / (1 - p), 5 + 2 * p / (1 - p))
    else:
        note("weights", error)
    SOFTMAX[case["softmax"]](of, e, m, note)
    factor = abs(case["scale_factor"])
    note("scaled", *softcap_backward(of, e, m))
    note("qk", factor * e["scaled"], 6)
    note("v_heads", grouped(d_values), 1)
    d_q = product(e["qk"], m["qk"], ek, mk, gamma(lk + 2, of.u))
    d_k = grouped(product(transposed(e["qk"]), transposed(m["qk"]), eq, mq, gamma(lq + groups + 2, of.unit("d_k_heads"))))
    if case["rotary"] or case["qk_norm"]:
        queries, keys = (repeat_heads(latest(a, name), case["heads"]) for name in "qk")
        d_q = heads_backward(of, "q", a["d_qk"] @ keys, d_q, case["query_positions"])
        d_k = heads_backward(of, "k", grouped(np.swapaxes(a["d_qk"], -1, -2) @ queries), d_k, case["key_positions"])
    note("q_heads", d_q, 1)
    note("k_heads", d_k, 1)
    inputs_backward(of, e, m, note, linear)


def inputs_backward(of: Errors, e: dict, m: dict, note: Callable, linear: Callable) -> None:
    """Back through the projections: what several of them are made from has the sum of their gradients."""
    a = of.centre
    parts: dict[str, list[np.ndarray]] = {}
    for name in "qkv":
        if f"d_{name}" in a:
            note(name, merge_heads(e[f"{name}_heads"]))
        source = next((s for s in SOURCES[name] if s in a and not s.endswith("_pos")), None)
        if source is None:
            continue
        if f"w_{name}" in a:
            part = linear(name, f"{source}_pos" if f"{source}_pos" in a else source, f"w_{name}")
            size = m[name] @ np.abs(a[f"w_{name}"])
        else:
            part, size = e[name], m[name]
        parts.setdefault(source, []).append(part + gamma(4, of.unit(f"d_{source}")) * size)
    for source, errors in parts.items():
        note(source, sum(errors), 1)


def softmax_backward(of: Errors, e: dict, m: dict, note) -> None:
    """dS = P (dP - t), t = sum_j P_j dP_j. The error of t is at most sum E_P M_dP + sum M_P E_dP + gamma_n sum M_P M_dP; the first is, for
    the weights add up, also at most sum E_P |dP - t| + |sum P' - sum P| |t|. With a = dP - t this makes E_P M_a + M_P (E_dP + E_t), and
    three roundings of P dP and of P t, so that P dP - P t is covered too."""
    a = of.centre
    unit, ep, mp = of.unit("d_masked"), of.bound.get("weights"), of.most("weights")
    dp, edp, mdp = a["d_weights"], e["weights"], m["weights"]
    t = (np.where(np.isnan(a["weights"]), 0.0, a["weights"]) * dp).sum(axis=-1, keepdims=True)
    away = np.abs(dp - t)
    et = (mp * (edp + gamma(dp.shape[-1] + 2, unit) * mdp)).sum(axis=-1, keepdims=True)
    if ep is not None:
        plain = (ep * mdp).sum(axis=-1, keepdims=True)
        if "dropped" not in a:
            plain = np.minimum(plain, (ep * (away + 2 * edp)).sum(axis=-1, keepdims=True) + of.sums * np.abs(t))
        et = et + plain
    edp = edp + et
    error = mp * (edp + gamma(3, unit) * (mdp + (np.abs(t) + 2 * et)))
    if ep is not None:
        error = error + ep * (away + 2 * edp)
    note("masked", np.where(np.isneginf(a["masked"]), 0.0, error))


def none_backward(of: Errors, e: dict, m: dict, note) -> None:
    """dS = dP, 0 where blocked."""
    note("masked", np.where(np.isneginf(of.centre["masked"]), 0.0, e["weights"]))


SOFTMAX = {"plain": softmax_backward, "plus_one": softmax_backward, "none": none_backward}


def softcap_backward(of: Errors, e: dict, m: dict) -> tuple[np.ndarray, float]:
    """(error, roundings) of d scaled: 0 where blocked. Softcap multiplies by f = 1 - t^2, t = capped / c: E_f = 2 M_t E_t + gamma_12 M_t^2
    + u, and E_d M_f + M_d E_f."""
    a, case = of.centre, of.case
    keep = a.get("keep", True)
    error, size = np.where(keep, e["masked"], 0.0), np.where(keep, m["masked"], 0.0)
    if not case["softcap"]:
        return error, 0
    unit, t = of.unit("d_scaled"), of.most("capped") / case["softcap"]
    ef = 2 * t * of.of("capped") / case["softcap"] + gamma(12, unit) * t * t + unit
    mf = np.abs(1 - (a["capped"] / case["softcap"]) ** 2) + 2 * ef
    return error * mf + size * ef, 2


def heads_backward(of: Errors, name: str, centre: np.ndarray, error: np.ndarray, where: list[int]) -> np.ndarray:
    """Error from the gradient at the last form of queries or keys back to the heads: the rotation by the opposite angle, then the norm."""
    unit = of.unit(f"d_{name}_heads")
    error = finish(centre, error, float(unit > of.u), unit)
    if of.case["rotary"]:
        error = turned(centre, error, where, of.case["rotary"], unit)
        centre = backward.unrotate(centre, np.array(where), of.case["rotary"])
    return norm_backward(of, name, centre, error, unit) if of.case["qk_norm"] else error


def norm_backward(of: Errors, name: str, dy: np.ndarray, error: np.ndarray, unit: float) -> np.ndarray:
    """dX = (y - h w) / r with y = g dY, h = x / r, w = h . y / n. E_h = (E_x + M_h eta) / low and d + 8 roundings, as in `norm`;
    E_w = sum (E_h M_y + M_h E_y) / n + gamma_(d+2) sum M_h M_y / n. The numerator z has E_z = E_y + E_h M_w + M_h E_w +
    gamma_3 (M_y + M_h M_w); the quotient (E_z + M_z eta / low) / low, with d + 8 roundings of r."""
    a = of.centre
    x, ex = a[f"{name}_heads"], of.of(f"{name}_heads")
    options, d = of.case["qk_norm"], a[f"{name}_heads"].shape[-1]
    eta, low, n = inverse_size(x, ex, options, unit)
    gain = a.get(f"g_{name}", 1.0)
    y, ey = dy * gain, np.abs(gain) * error
    my = np.abs(y) + 2 * ey
    ey = ey + unit * my
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = 1 / low
        hat = x * (1 / (low + 2 * eta))
        mhat = (np.abs(x) + 2 * ex) * inverse
        ehat = (ex + mhat * eta) * inverse + gamma(d + 8, unit) * mhat
        mw = np.abs((hat * y).sum(axis=-1, keepdims=True) / n)
        ew = ((ehat * my + mhat * ey).sum(axis=-1, keepdims=True) + gamma(d + 2, unit) * (mhat * my).sum(axis=-1, keepdims=True)) / n
        mw = mw + 2 * ew
        mz = np.abs(y - hat * (hat * y).sum(axis=-1, keepdims=True) / n) + 2 * (ey + ehat * mw + mhat * ew)
        ez = ey + ehat * mw + mhat * ew + gamma(3, unit) * (my + mhat * mw)
        found = (ez + mz * eta * inverse) * inverse + gamma(d + 8, unit) * mz * inverse
    return np.where(np.isfinite(found), found, math.inf)
