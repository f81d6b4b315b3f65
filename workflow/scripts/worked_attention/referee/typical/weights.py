"""Typical errors of the weights: what the errors of the scores make of the softmax, and roundings of its own.

A softmax answers errors e of its scores with dP_i = P_i (e_i - sum_j P_j e_j). The contexts need not only the variance of the weights but
what it is made of, for these errors cancel over a row and those of storing the weights do not: `moved`, P_j times the standard deviation
of score j (with a sink as a last column); `total`, the variance of the relative error of the sum, which a row has in common; and
`stored`, the variance that comes of storing the weights (or the dropped ones) alone.
"""

import numpy as np

from worked_attention.referee.bounds.rounding import EXP, fused, smallest
from worked_attention.referee.typical.rounding import DEVIATIONS, Spread, finite

FAR = 30.0  # from here on, log(e^x - 1) is x


def in_common(terms: int, u: float) -> float:
    """Variance of the relative error of the sum of a row, which all of its weights have in common."""
    return u**2 * fused(terms) / 9


def reach_of_sums(weights: np.ndarray, u: float, stored: float) -> np.ndarray:
    """How far the sum [..., Lq] of each row of weights may be from an exact sum of 1. Errors of scores and of exponentials are in a weight
    and in the sum that it is divided by, and cancel. That sum has typical roundings of its own; storing the weights, with unit roundoff
    `stored`, counts with its bound, for equal weights are all rounded the same way."""
    roundings = stored * np.abs(weights) + smallest(stored)
    return DEVIATIONS * np.sqrt(in_common(weights.shape[-1], u)) + roundings.sum(axis=-1)


def softmax(of: Spread) -> None:
    """P_i^2 [(1 - P_i)^2 var(e_i) + sum_(j != i) P_j^2 var(e_j)]. That is first order: where 8 deviations of a score come near 1, their
    exponential less 1 takes their place, and soon says that nothing can be told. Roundings of x - max and of the exponential are errors
    of the score. No weight is outside 0 and 1."""
    case, a = of.case, of.centre
    x, variance = a["masked"], of.of("masked")
    sinks = np.zeros(case["heads"]) if case["softmax"] == "plus_one" else a.get("sinks")
    if sinks is not None:
        column = np.broadcast_to(sinks[:, None, None], (*x.shape[:-1], 1))
        x = np.concatenate([x, column], axis=-1)
        variance = np.concatenate([variance, of.rounding("masked", finite(column))], axis=-1)
    top = x.max(axis=-1, keepdims=True)
    empty, blocked = np.isneginf(top), np.isneginf(x)
    below = np.where(blocked, 0.0, np.where(empty, 0.0, top) - x)
    variance = variance + of.rounding("masked", below) + ((EXP + 4 * below) * of.u) ** 2
    shares = np.where(blocked, 0.0, np.exp(-below))
    sums = np.where(empty, 1.0, shares.sum(axis=-1, keepdims=True))
    weights = shares / sums
    reach = DEVIATIONS * np.sqrt(variance)
    log = np.where(reach < FAR, np.log(np.expm1(np.minimum(reach, FAR))), reach) - np.log(DEVIATIONS)
    of.moved = np.where(blocked, 0.0, np.exp(log - below - np.log(sums)))
    of.total = in_common(x.shape[-1], of.u)
    square = of.moved**2
    others = np.where(np.isinf(square), np.inf, square.sum(axis=-1, keepdims=True) - np.where(np.isinf(square), 0.0, square))
    found = (1 - weights) ** 2 * square + weights**2 * np.maximum(others, 0.0)
    found = np.where(np.isnan(found), np.inf, np.minimum(found, 1 / DEVIATIONS**2)) + weights**2 * of.total
    overflow = np.where(np.isposinf(variance) & (x > 0), np.inf, 0.0).max(axis=-1, keepdims=True)  # NaN may follow
    found = np.where(blocked, 0.0, found + overflow)[..., : a["weights"].shape[-1]]
    of.settle("weights", found)
    of.stored = of.rounding("weights", a["weights"])


def hardmax(of: Spread) -> None:
    """Exact unless another score could be the largest; then nothing can be told of those that could."""
    x, reach = of.centre["masked"], DEVIATIONS * of.sigma("masked")
    could = (x + reach >= (x - reach).max(axis=-1, keepdims=True)) & ~np.isneginf(x)
    unsure = (could.sum(axis=-1, keepdims=True) > 1) & (np.where(could, reach, 0.0).max(axis=-1, keepdims=True) > 0)
    of.variance["weights"] = of.stored = np.where(could & unsure, np.inf, 0.0)


def none(of: Spread) -> None:
    """The variance of the score as it is read; errors of a row do not cancel, so all of it counts as stored."""
    x = of.centre["masked"]
    of.settle("weights", np.where(np.isneginf(x), 0.0, of.of("masked") + of.rounding("masked", finite(x))))
    of.stored = of.of("weights")


KINDS = {"plain": softmax, "plus_one": softmax, "hardmax": hardmax, "none": none}


def stage(of: Spread) -> None:
    """The softmax, then dropout: weights keep / (1 - p), where the factor, the product and the quotient are rounded."""
    KINDS[of.case["softmax"]](of)
    if "dropout_keep" in of.centre:
        factor = of.centre["dropout_keep"] / (1 - of.case["dropout"])
        of.settle("dropped", np.where(factor > 0, factor**2 * of.of("weights"), 0.0), 3)
        of.stored = np.where(factor > 0, factor**2 * of.stored, 0.0) + 3 * of.rounding("dropped", of.centre["dropped"])
