"""Bounds of the weights: softmax and its relatives, dropout."""

import math

import numpy as np

from worked_attention.referee.bounds.rounding import EXP, SAFE, Errors, fused, gamma, most, smallest


def read_scores(of: Errors) -> tuple[np.ndarray, np.ndarray]:
    """(centre, E) of the scores as the softmax reads them: rounded once more if its arithmetic is coarser than theirs."""
    x, ex = of.centre["masked"], of.of("masked")
    return x, ex + of.u * most(x, ex) if of.u > of.kept.get("masked", of.u) else ex


def softmax(of: Errors) -> None:
    """P = exp(x_j - m) / S. The softmax does not change when all x move together, so let m be the computed maximum itself.

    Exponent j is off by eta_j = E_j + 4 u |x_j - m|: the error of the score, and the roundings of the difference (4 rather than 1,
    for exponentials in base 2 and sums that are rescaled as the maximum grows). So exp_j is off by a factor 1 + r_j,
    |r_j| <= rho_j = e^eta_j (1 + EXP u) - 1. From P_i' / P_i = (1 + r_i) / (1 + sum_j P_j r_j) follows a relative error of at most
    [(1 - P_i) rho_i + sum_(j != i) P_j rho_j] / (1 - rho_bar), rho_bar = sum_j P_j rho_j; the sum and the division add gamma_fused(n).
    The exact P_j is at most (1 + rho_j) / (1 - rho_bar) times the centre's. Where rho_bar >= 1 a weight may be anything from 0 to 1, and
    NaN if a score overflows. A score so far below the maximum that eta_j >= 1 has exact and computed weights below
    e^(2 eta_j + 2 eta_m - (m - x_j)). A sink is one more score, known exactly.

    `sums`: computed weights are divided by their own sum, so a row adds up to 1 within gamma_(2 fused(n)), whatever the scores' errors.
    """
    case, a = of.case, of.centre
    (x, ex), p = read_scores(of), a["weights"]
    g = gamma(fused(x.shape[-1]), of.u)
    if np.isinf(ex).any():
        ex = np.where(np.isinf(ex) & (x < 0), np.abs(x) / 16, ex)  # a negative score that overflows becomes -inf: less weight, not more
    sink = np.zeros(case["heads"]) if case["softmax"] == "plus_one" else a.get("sinks")
    if sink is not None:
        sink = np.broadcast_to(sink[:, None, None], (*x.shape[:-1], 1))
        off = of.u * most(sink, None) if of.u > of.kept.get("masked", of.u) else np.zeros(sink.shape)
        x, ex = np.concatenate([x, sink], axis=-1), np.concatenate([ex, off], axis=-1)
        p = np.concatenate([p, sink_weight(x)], axis=-1)
    top = x.max(axis=-1, keepdims=True)
    empty = top == -np.inf
    top = np.where(empty, 0.0, top)
    blocked = x == -np.inf
    below = np.where(blocked, 0.0, top - x)
    p = np.where(blocked, 0.0, p)
    above = np.where(empty, 0.0, (x + 2 * ex).max(axis=-1, keepdims=True) - top)  # the computed maximum over the centre's
    eta = ex * (1 + 8 * of.u) + 4 * of.u * (below + above)
    far = eta >= 1
    leak = 0.0
    if some_far := bool(far.any()):
        first = np.take_along_axis(eta, x.argmax(axis=-1)[..., None], axis=-1)
        leak = np.nan_to_num(np.exp(2 * eta + 2 * first - below), nan=math.inf, posinf=math.inf) * (1 + EXP * of.u)
        eta = np.where(far, 0.0, eta)
    rho = eta / (1 - eta / 2) * (1 + EXP * of.u) + EXP * of.u  # e^eta - 1 <= eta / (1 - eta/2)
    share = np.where(far, leak, p * rho) if some_far else p * rho
    rough = share.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        up = (1 + rho) * ((1 + g) / np.maximum(1 - rough, 0.0))  # times p: at least the exact P
        bar = (share * up).sum(axis=-1, keepdims=True)
        own = share * (1 - rho) * (2 * (1 - g) / (1 + bar))  # at most 2 P_i rho_i
        left = (1 + g) / np.maximum(1 - bar, 0.0)
        error = p * up * ((rho + bar - own) * left + g) + 4 * x.shape[-1] * smallest(of.u)
    if some_far:
        error = np.where(far, leak * left, error)
    error = np.where(blocked, 0.0, np.fmin(error, 1 + 2 * g))  # no weight, exact or computed, is outside 0 and 1 + 2 gamma
    if not np.all((rough < 1) & (bar < 1)):
        lost = np.where(np.isinf(ex).any(axis=-1, keepdims=True), math.inf, 1 + 2 * g)
        error = np.where((rough < 1) & (bar < 1) | blocked, error, lost)
    lost = error[..., -1:] if sink is not None else 0.0
    error = error[..., : a["weights"].shape[-1]]
    if case["mask"]["empty_row"] == "uniform":
        error = np.where(empty, of.u, error)
    of.settle("weights", error)
    error, unit = of.bound["weights"], of.unit("weights")
    stored = unit + x.shape[-1] * smallest(unit) if unit > of.u else 0.0
    of.sums = np.minimum(error.sum(axis=-1, keepdims=True), lost + (gamma(2 * fused(x.shape[-1]), of.u) + stored) * (1 + 4 * g)) * SAFE


def sink_weight(x: np.ndarray) -> np.ndarray:
    """Weight [..., 1] of the sink, the last column of x."""
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return (shifted / shifted.sum(axis=-1, keepdims=True))[..., -1:]


def hardmax(of: Errors) -> None:
    """Exact unless another score could be the largest: then 1 for each that could. Of scores without error the rule takes the first."""
    x, ex = read_scores(of)
    floor = (x - 2 * ex).max(axis=-1, keepdims=True)
    could = (x + 2 * ex >= floor) & (x > -np.inf)
    open_ = could.sum(axis=-1, keepdims=True) > 1
    open_ &= np.where(could, ex, 0.0).max(axis=-1, keepdims=True) > 0
    error = np.where(could & open_, 1.0, 0.0)
    if of.case["mask"]["empty_row"] == "uniform":
        error = np.where(~could.any(axis=-1, keepdims=True), of.u + of.unit("weights"), error)
    of.bound["weights"] = error
    of.sums = np.zeros((*x.shape[:-1], 1))


def none(of: Errors) -> None:
    """The error of the score as it is read; a blocked key has 0 exactly. A row's sum is off by no more than its weights together."""
    x, ex = read_scores(of)
    of.settle("weights", np.where(x == -np.inf, 0.0, ex))
    of.sums = of.of("weights").sum(axis=-1, keepdims=True) * SAFE


KINDS = {"plain": softmax, "plus_one": softmax, "hardmax": hardmax, "none": none}


def stage(of: Errors) -> None:
    """The softmax, then dropout: E keep / (1 - p), with roundings for 1 - p, which loses relatively more as p nears 1."""
    KINDS[of.case["softmax"]](of)
    if "dropout_keep" in of.centre:
        p = of.case["dropout"]
        of.settle("dropped", of.of("weights") * of.centre["dropout_keep"] / (1 - p), 4 + 2 * p / (1 - p))
        of.sums = of.of("dropped").sum(axis=-1, keepdims=True)
