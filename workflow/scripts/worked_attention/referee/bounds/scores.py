"""Bounds of the scores: products, scale, softcap, biases, masks."""

import math

import numpy as np

from worked_attention.referee.bounds.rounding import PRESCALED, UNIT, Errors, gamma, latest_error, product, smallest, terms, transposed
from worked_attention.stages import positions
from worked_attention.stages.masks import append_keys


def products(of: Errors) -> np.ndarray:
    """Q K^T: E_Q M_K^T + M_Q E_K^T + gamma_d M_Q M_K^T. Returned is the error of (Q sqrt(s)) (K sqrt(s))^T over |s|, which rounds every
    element of Q and of K once more: gamma_2 M_Q M_K^T more, and not a part of the result, for its terms may cancel."""
    (eq, mq), (ek, mk) = latest_error(of, "q"), latest_error(of, "k")
    n, stored = terms(mq.shape[-1], of, "qk"), of.unit(PRESCALED)
    error = product(eq, mq, transposed(ek), transposed(mk), gamma(n, of.u))
    of.settle("qk", error)
    if stored == of.u:  # gamma_2 is then at most this part of gamma_n, and need not be multiplied out
        return of.of("qk") * (gamma(n + 2, of.u) / gamma(n, of.u) if (n + 2) * of.u < 1 else math.inf)
    return of.of("qk") + gamma(2, stored) * (mq @ transposed(mk))


def added(of: Errors) -> tuple[np.ndarray, np.ndarray, int]:
    """(error, sum of |terms|, number of terms) of what is added to the scores. Tables and masks are exact; an ALiBi slope is a power of two
    computed in float64 within (16 + 2 H) u, rounded with its product at most 4 times in the case's arithmetic."""
    case, a = of.case, of.centre
    i, j = np.array(case["query_positions"]), np.array(case["context_positions"])
    sizes = [np.abs(a[name]) for name in ("bias_table", "mask_add") if name in a]
    if "mask_key_add" in a:
        sizes.append(np.abs(a["mask_key_add"])[..., None, None, :])
    if "t5_table" in a:
        sizes.append(positions.t5_bias(np.abs(a["t5_table"]), i, j, case["t5"]))
    error = np.zeros(())
    if case["alibi"]:
        sizes.append(np.abs(positions.alibi(i, j, case["heads"], case["alibi"]["slopes"], case["alibi"]["form"])))
        error = sizes[-1] * (4 * of.unit("bias") + (16 + 2 * case["heads"]) * UNIT["float64"])
    spread = sum(np.where(np.isfinite(size), size, 0.0) for size in sizes)
    extra = case["dims"]["Lk"] - case["dims"]["Lc"]
    return append_keys(np.broadcast_to(error, spread.shape), extra, 0.0), append_keys(spread, extra, 0.0), len(sizes)


def rounds_given(case: dict) -> bool:
    """Whether scores are kept in fewer bits than the case, so that a table, a mask or scores that are given are rounded, too."""
    return UNIT[case["precision"]["scores"]] > UNIT[case["dtype"]]


def stage(of: Errors) -> None:
    """The stage in its order. Scale: |s| E + 6 u |scaled|, with E from `products`; six roundings cover what comes of sqrt(s) itself.
    Softcap c tanh(x/c): the slope is at most 1, and a relative error of x/c is at most the same of tanh; 10 roundings with 4 ulp for tanh.
    Where x/c or its tanh underflow, c times that is lost.
    Bias: n terms and the score are added in any order, within gamma_n of the sum of all sizes. Mask: what is blocked becomes the fill, a
    number of the dtype, exactly.
    """
    case, a = of.case, of.centre
    last, narrower = "scaled", rounds_given(case)
    if "scaled" not in case["arrays"]["parameters"]:
        of.settle("scaled", abs(case["scale_factor"]) * products(of), 6)
    elif narrower:
        of.settle("scaled", np.zeros(a["scaled"].shape), 1)
    if case["softcap"]:
        of.settle("capped", of.of("scaled") + 2 * case["softcap"] * smallest(of.unit("capped")), 10)
        last = "capped"
    if case["alibi"]:
        of.settle("slopes", (16 + 2 * case["heads"]) * UNIT["float64"] * np.abs(a["slopes"]), 1)
    if "buckets" in a:
        of.settle("buckets", np.zeros(a["buckets"].shape))
    error = of.of(last)
    if "bias" in a:
        own, spread, n = added(of)
        unit = of.unit("bias")
        rounded = own + gamma(n - 1, unit) * spread
        of.bound["bias"] = None
        if n > 1 or case["alibi"] or narrower:
            of.settle("bias", np.broadcast_to(rounded, a["bias"].shape))
        error = error + own + gamma(n + 2 * (unit > of.u), unit) * (of.most(last) + spread)
    if "keep" in a:
        error = np.where(a["keep"], error, 0.0)
    error = np.where(np.abs(a["masked"]) * (error > 0) + error > of.limit("masked"), math.inf, error)
    of.bound["masked"] = np.where(np.isfinite(a["masked"]), error, 0.0)
