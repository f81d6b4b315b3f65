"""What a difference shows: that an array is right, that it is wrong, or that nothing can be told.

A bound that is larger than the array would pass zeros, a flipped sign or a constant. So a verdict rests on evidence that could have failed.
An element may be off by its certified bound, where that is at most `PART` of the array's largest element; elsewhere by as much as typical
roundings make (`typical`, 8 standard deviations), and by no more than the certified bound. What is farther off is wrong. What is not is
right if it is also within `PART`, and if the array as a whole is nearer to the right answer than to any of `SPOILED`, answers that are
certainly wrong. Between the two, nothing can be told.

Why a fortieth: a mistake that moves an array by a twentieth of its largest element stays outside, even where roundings move it back by
as much as they may; and honest evaluations in bfloat16, whose unit is 1/256, are within (see benchmarks/evidence.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from worked_attention.referee.typical.rounding import DEVIATIONS
from worked_attention.stages.catalogue import CATALOGUE
from worked_attention.stages.dtypes import DTYPES

PART = 1 / 40
BLOCKED = -1e4  # a score or a bias of this or less stands for minus infinity, and is no measure of the others
NEARER = 2  # times must the right answer be nearer than a spoiled one
# Two answers are the same if no element differs by more than this part of the largest: in half precision one unit in the last place
GRAIN = {"float64": 2.0**-43, "float32": 2.0**-14, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Finding:
    """`word` is right, wrong or undecided; `evidence` certified or typical. `index`: the element that says so; it is `off` by so much
    and may be by `limit`; `size` is the array's largest element. `unless`: the arithmetic in which it is undecided, and wrong in all
    stricter ones; None if it is the strictest."""

    word: str
    evidence: str
    index: tuple[int, ...]
    off: float
    limit: float
    size: float
    unless: str | None = None


def constant(x: np.ndarray) -> np.ndarray:
    """The mean of the finite elements of `x` everywhere."""
    finite = x[np.isfinite(x)]
    return np.full(x.shape, finite.mean() if finite.size else 0.0)


SPOILED = {  # answers that are certainly wrong, from the right one and from what was sent
    "zeros": lambda right, got: np.zeros(right.shape),
    "half as much again": lambda right, got: 1.5 * right,
    "sign flipped": lambda right, got: -right,
    "constant": lambda right, got: constant(got),
    "rows rolled": lambda right, got: np.roll(right, 1, axis=max(right.ndim - 2, 0)) if right.ndim else right,
}


def largest_of(x: np.ndarray) -> float:
    """Largest finite size of an element; of scores and biases, of those that do not stand for minus infinity."""
    finite = x[np.isfinite(x)]
    counted = finite[finite > BLOCKED]
    return float(np.abs(counted if counted.size else finite).max(initial=0.0))


NO_SUMS = ("q_norm", "k_norm", "capped", "weights", "dropped")  # what is small here is so by its formula, and no terms have cancelled


def source_of(name: str, arrays: dict[str, np.ndarray]) -> float:
    """Largest element of what an array is a sum of; of a gradient, of all gradients; 0 for what is no sum."""
    if name in NO_SUMS:
        return 0.0
    gradients = [other for other in arrays if other.startswith("d_")]
    sources = gradients if CATALOGUE[name].stage == "backward" else CATALOGUE[name].made_from
    return max((largest_of(arrays[other].astype(np.float64)) for other in sources if other in arrays), default=0.0)


def coarsest(*units: float) -> str:
    """Name of the dtype with the largest of these unit roundoffs."""
    return next(name for name, dtype in DTYPES.items() if dtype.roundoff == max(units))


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|, 0 where both are NaN or the same infinity, infinite where only one is NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(a - b)
    if np.isfinite(off).all():
        return off
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.where(np.isnan(off), np.inf, off))


def tells(got: np.ndarray, expected: np.ndarray, apart: np.ndarray, grain: float) -> bool:
    """Whether `got` is `NEARER` to the right answer, from which it is `apart`, in the root mean square, than to each of SPOILED; those left
    out that spoil nothing, because the right answer is itself 0, constant, and so on, within `grain`."""
    off = np.square(apart).sum()
    if (NEARER + 2) * np.sqrt(off) < grain:  # by the triangle inequality, for what spoils is off by more than grain
        return True
    each = tuple(range(1, expected.ndim + 1))  # axes of one answer in a stack of them
    spoils = (difference(np.stack([spoil(expected, expected) for spoil in SPOILED.values()]), expected) > grain).any(each)
    from_spoiled = np.square(difference(np.stack([spoil(expected, got) for spoil in SPOILED.values()]), got)).sum(each)
    return not (spoils & (NEARER**2 * off >= from_spoiled)).any()


def weigh(
    got: np.ndarray,
    expected: np.ndarray,
    bound: np.ndarray,
    deviation: Callable[[], np.ndarray],
    dtype: str,
    source: float = 0.0,
    step: float = 0.0,
) -> Finding:
    """What `got` shows.

    got, expected, bound: float64 of one shape; bound is certified. deviation: gives the typical standard deviation of each element, and
    is asked only where the bound is too large. dtype: the coarsest one involved. source: largest element of what the array is made from,
    which measures an array that has cancelled altogether: one that is 0 within its bound and within the grain of what it is made from.
    step: unit of the last printed decimal; answers that differ by no more are the same.
    """
    off, size = difference(got, expected), largest_of(expected)
    if size <= GRAIN[dtype] * source and bool(((np.abs(expected) <= bound) & (bound < np.inf))[np.isfinite(expected)].all()):
        size = source
    part = PART * np.where(np.isfinite(expected) & (expected <= BLOCKED), np.abs(expected), size)  # these are measured by themselves
    limit, evidence = bound, "certified"
    if (bound > part).any():
        evidence = "typical"
        limit = np.where(bound <= part, bound, np.fmin(bound, DEVIATIONS * deviation()))
    if (off > limit).any():
        beyond = np.where(limit > 0, off / np.where(limit > 0, limit, 1.0), np.where(off > 0, np.inf, 0.0))
        at = _first(beyond, off)
        return Finding("wrong", "certified" if off[at] > bound[at] else "typical", at, float(off[at]), float(limit[at]), size)
    allowed = np.minimum(limit, part)
    if (off <= allowed).all() and tells(got, expected, off, max(GRAIN[dtype] * size, step)):
        at = _index(off.argmax(), off.shape) if off.size else ()
        return Finding("right", evidence, at, float(off[at]), float(limit[at]), size)
    at = _first(np.where(off > allowed, np.inf, limit), limit)
    return Finding("undecided", evidence, at, float(off[at]), float(limit[at]), size)


def _first(key: np.ndarray, second: np.ndarray) -> tuple[int, ...]:
    """Index of the largest `key`, of equal ones that with the largest `second`, and the first of these; NaN is smaller than any other."""
    if not key.size:
        return ()
    shape = key.shape
    key, second = (np.where(np.isnan(x), -np.inf, x).ravel() for x in (key, second))
    largest = np.flatnonzero(key == key.max())
    return _index(largest[second[largest].argmax()], shape)


def _index(place: np.intp, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Index of the element that is at this place of the flat array."""
    return tuple(int(i) for i in np.unravel_index(place, shape))
