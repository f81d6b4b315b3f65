"""Stage weights of one head: the softmax of each row of scores (Vaswani et al. 2017, equation 1), and its relatives."""

from functools import reduce

import numpy as np
from flint import arb

from worked_attention.referee.truth.balls import ANYTHING, CLOSED, NAN, Balls, balls, closed, each
from worked_attention.referee.truth.parts import Part

NEGLIGIBLE = -1000  # e to less than this is below the smallest float64, however wide the ball


def weights(case: dict, part: Part) -> dict[str, Balls]:
    """`weights` [n, Lk] of what enters the softmax, and `dropped` after dropout, if there is one."""
    made = {"weights": SOFTMAX[case["softmax"]](case, part)}
    if "dropout_keep" in part:
        made["dropped"] = made["weights"] * kept(case, part)
    return made


def kept(case: dict, part: Part) -> Balls:
    """What dropout multiplies the weights with: 1 / (1 - p) or 0 (Srivastava et al. 2014, section 10)."""
    return np.where(part["dropout_keep"], 1 / (1 - arb(case["dropout"])), arb(0))


def plain(case: dict, part: Part) -> Balls:
    """e^s / sum e^s, with the head's sink among the terms of the sum if there is one."""
    return softmax(case, part, part["sinks"].item() if "sinks" in part else CLOSED)


def plus_one(case: dict, part: Part) -> Balls:
    """e^s / (1 + sum e^s)."""
    return softmax(case, part, arb(0))


def softmax(case: dict, part: Part, sink: arb) -> Balls:
    """e^(x_j - m) / (e^(sink - m) + sum_j e^(x_j - m)) for each row of scores [n, Lk]; m is near the largest of them all."""
    x, nothing = part["masked"], unseeing(part) & closed(np.array([sink], dtype=object))
    m = np.array(
        [arb(0) if empty else middle_of_largest([*row, sink]) for row, empty in zip(x.tolist(), nothing, strict=True)], dtype=object
    )
    e = each(exponential, x - m[:, None])
    total = e.sum(axis=1) + each(exponential, sink - m)
    p = np.empty_like(x)
    for i, z in enumerate(total):
        p[i] = empty_row(case) if nothing[i] else e[i] / z if z.is_finite() or z.is_nan() else ANYTHING
    return p


def exponential(x: arb) -> arb:
    """e^x; `ANYTHING` if x is wider than about 2^-70, unless e^x is as good as nothing anyway."""
    return x.exp() if x.rel_one_accuracy_bits() >= 80 or x < NEGLIGIBLE or x.is_nan() else ANYTHING


def middle_of_largest(row: list[arb]) -> arb:
    """The midpoint of the ball whose midpoint is largest; what is no number counts as largest."""
    near = np.array([float(ball) for ball in row])
    best = row[int(near.argmax())]
    for i in np.flatnonzero(near == np.inf):  # beyond the largest float64 the balls themselves are asked
        best = row[i] if row[i].mid() > best.mid() else best
    return best.mid()


def unseeing(part: Part) -> np.ndarray:
    """Queries of the part that see no key, bool [n]: each is blocked, or has a bias or, where scores are given, a score of -inf."""
    if "qk" not in part:
        return closed(part["masked"]).all(axis=1)
    blocked = np.zeros(part["masked"].shape, dtype=bool)
    if "keep" in part:
        blocked |= ~part["keep"]
    if "bias" in part:
        blocked |= closed(part["bias"])
    rows = blocked.all(axis=1)
    rows[rows] = closed(part["masked"][rows]).all(axis=1)
    return rows


def empty_row(case: dict) -> arb:
    """Each weight of a query all of whose scores are -inf."""
    return EMPTY_ROW[case["mask"]["empty_row"]](case)


def _error(case: dict) -> arb:
    raise ValueError("a row has no key left, and the case says empty_row: error")


EMPTY_ROW = {"zero": lambda case: arb(0), "nan": lambda case: NAN, "uniform": lambda case: arb(1) / case["dims"]["Lk"], "error": _error}


def hardmax(case: dict, part: Part) -> Balls:
    """1 at the first largest score of each row of [n, Lk], 0 elsewhere."""
    x = part["masked"]
    p = np.empty_like(x)
    for row, (scores, empty) in enumerate(zip(x, unseeing(part), strict=True)):
        p[row] = empty_row(case) if empty else chosen(part, row, scores)
    return p


def chosen(part: Part, row: int, scores: Balls) -> Balls | arb:
    """The weights of one row by hardmax; `ANYTHING` if it is not known which of several scores is the largest."""
    if any(score.is_nan() for score in scores):
        return NAN
    best = reduce(arb.max, (score.lower() for score in scores))
    first, *others = [j for j, score in enumerate(scores) if not score < best]
    if all(same(part, row, first, j) for j in others):
        return balls(np.arange(len(scores)) == first)
    return ANYTHING


def same(part: Part, row: int, i: int, j: int) -> bool:
    """Whether two scores of a row are known to be the same number: exact and equal, or made in one way of exact and equal ones."""
    if _equal(part["masked"][row], i, j):
        return True
    made_alike = "keep" not in part or part["keep"][row, i] == part["keep"][row, j]
    return made_alike and "qk" in part and all(_equal(part[name][row], i, j) for name in ("qk", "bias") if name in part)


def _equal(x: Balls, i: int, j: int) -> bool:
    return x[i].is_exact() and x[j].is_exact() and x[i] == x[j]


def none(case: dict, part: Part) -> Balls:
    """The scores themselves; 0 for a key that is shut out, whose score is -inf."""
    return np.where(closed(part["masked"]), arb(0), part["masked"])


SOFTMAX = {"plain": plain, "plus_one": plus_one, "hardmax": hardmax, "none": none}
