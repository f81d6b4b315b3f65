"""What a wrong array has to do with the right one, where no known mistake explains it: a factor, an order of rows, cells of the mask.

A relation is told only if it is tight (what it makes of the right array is what was sent, within roundings) and not by chance: the
numbers that it leaves no choice in must agree to `DIGITS` decimal digits together. Indices in sentences are counted from 0.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from math import lgamma, log, log10

import numpy as np

from worked_attention.referee.chain import STAGE, Arrays
from worked_attention.stages.catalogue import CATALOGUE, axes
from worked_attention.stages.masks import fill_value

CLOSE = 100.0  # what was sent equals what a relation makes if they differ by at most so many unit roundoffs of the largest element
CLOSEST = 0.04  # and by at most this part of it, where a hundred roundings of bfloat16 would be most of it
EXPLAINED = 0.02  # and by at most this part of the difference from the right array; in half precision by ten times that
DIGITS = 9.0  # decimal digits of agreement that no choice of the relation's own numbers made
CELLS = 3  # cells of a mask that are listed
SCORES = ("qk", "scaled", "capped", "bias", "masked")  # arrays of which the softmax sees no constant along the keys, if nothing caps them


@dataclass(frozen=True)
class Pair:
    """One array as it was sent and as it should be, both in float64 (or boolean), and all that the case computes besides.

    u: unit roundoff of what was sent. arrays: every array of the case as it should be, from what was sent before.
    """

    case: dict
    name: str
    got: np.ndarray
    want: np.ndarray
    u: float
    arrays: Arrays

    @property
    def close(self) -> float:
        """The largest difference, as a part of the largest element, that roundings explain."""
        return min(CLOSE * self.u, CLOSEST)

    def within(self, made: np.ndarray, got: np.ndarray | None = None) -> float | None:
        """The largest difference between what was sent (or `got` of it) and `made`; None if it is more than roundings explain."""
        got = self.got if got is None else got
        off = largest_difference(got, made)
        tight = self.close * size(made), EXPLAINED * (10 if self.u > 2.0**-24 else 1) * largest_difference(self.got, self.want)
        return off if off <= min(tight) else None

    def enough(self, agreeing: int, chosen: float = 0.0) -> bool:
        """Whether so many agreeing numbers are no chance: `chosen` are the digits that the relation itself could choose."""
        return agreeing * -log10(2 * self.close) - chosen >= DIGITS


@dataclass(frozen=True)
class Relation:
    """A sentence that completes "your scaled ...", what to do, and how close it is."""

    sentence: str
    remedy: str
    within: float


def size(array: np.ndarray) -> float:
    """Largest finite element, or 1 where there is none but 0."""
    finite = np.abs(array[np.isfinite(array)]) if array.dtype != bool else np.ones(1)
    return float(finite.max(initial=0.0)) or 1.0


def largest_difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest absolute difference of two arrays of one shape; NaN equals NaN; infinite where only one of them is."""
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(np.float64) - want.astype(np.float64))
    off = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, off)
    largest = float(off.max(initial=0.0))
    return largest if np.isfinite(largest) else np.inf


def ratio(pair: Pair) -> Relation | None:
    """One factor between both arrays, by least squares: <got, want> / <want, want>."""
    finite = np.isfinite(pair.got) & np.isfinite(pair.want)
    got, want = np.where(finite, pair.got, 0.0), np.where(finite, pair.want, 0.0)
    informative = int((np.abs(want) > pair.close * size(want)).sum())
    if not want.any() or not pair.enough(informative - 1):
        return None
    factor = float((got * want).sum() / (want * want).sum())
    off = pair.within(factor * want, got)
    if off is None or not (finite | (pair.got == pair.want)).all() or abs(factor) < pair.close:
        return None
    number = f"{factor:.{max(2, int(-log10(pair.close)) + 1)}g}"
    return Relation(f"is {number} times ours", f"Look for a factor of {number} too much on the way to {pair.name}.", off)


def constant_per_row(pair: Pair) -> Relation | None:
    """A constant along the keys in each row of scores, which the softmax does not see."""
    if pair.name not in SCORES or (pair.case["softcap"] and pair.name in ("qk", "scaled")) or _has_sink(pair.case):
        return None
    seen = np.isfinite(pair.got) & np.isfinite(pair.want)
    if pair.name == "masked" and "keep" in pair.arrays:
        seen = seen & pair.arrays["keep"]
    counts = seen.sum(axis=-1, keepdims=True)
    if not pair.enough(int(np.maximum(counts - 1, 0).sum())):
        return None
    offset = np.where(seen, pair.got - np.where(seen, pair.want, 0.0), 0.0).sum(axis=-1, keepdims=True) / np.maximum(counts, 1)
    off = pair.within(np.where(seen, pair.want + offset, pair.want))
    if off is None:
        return None
    constant = f"{short(float(offset.flat[0]))}, ..." if offset.size > 1 else short(float(offset.flat[0]))
    sentence = f"differs from ours by a constant in each row ({constant}), which the softmax does not see: harmless for the weights"
    return Relation(sentence, "Nothing is to be mended, unless the scores themselves are wanted.", off)


def _has_sink(case: dict) -> bool:
    return case["softmax"] == "plus_one" or "sinks" in case["shapes"]


def reordered(pair: Pair) -> Relation | None:
    """Ours with the items of one axis in another order: samples, heads, queries, columns."""
    names = named_axes(pair)
    for axis in range(pair.got.ndim):
        got, want = (np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (pair.got, pair.want))
        order = _order(got, want, pair.close * size(pair.want))
        if order is None or (moved := [i for i, j in enumerate(order) if i != j]) == []:
            continue
        if not pair.enough(got[moved].size, lgamma(len(order) + 1) / log(10)):
            continue
        off = pair.within(np.take(pair.want, order, axis=axis))
        if off is not None:
            listed = ", ".join(map(str, order[:16])) + ", ..." * (len(order) > 16)
            sentence = f"is ours with its {names[axis]} in the order {listed}"
            return Relation(sentence, f"Keep the order of {names[axis]} on the way to {pair.name}.", off)
    return None


def _order(got: np.ndarray, want: np.ndarray, tolerance: float) -> list[int] | None:
    """For each row of `got` [n, m] the row of `want` [n, m] that it equals, each taken once, its own if it can; None if there is none."""
    if len(got) > 512:
        return None
    order, left = [], set(range(len(want)))
    for i, row in enumerate(got):
        with np.errstate(invalid="ignore"):
            same = ((want == row) if want.dtype == bool else (np.abs(want - row) <= tolerance) | (want == row)).all(axis=-1)
        free = [j for j in (i, *np.flatnonzero(same)) if same[j] and j in left]
        if not free:
            return None
        order.append(int(free[0]))
        left.discard(free[0])
    return order


def named_axes(pair: Pair) -> list[str]:
    """What the axes of the array are called, in the plural."""
    words = {"Lq": "queries", "Ln": "keys", "Lc": "keys", "Lk": "keys", "H": "heads", "H_kv": "heads"}
    return ["samples" if axis == "B" else words.get(axis, "columns") for axis in axes(pair.name, pair.case["dims"])]


def transposed(pair: Pair) -> Relation | None:
    """Ours with its last two axes, or (where the shape is another) all axes, in another order."""
    names = named_axes(pair)
    orders = [(*range(pair.want.ndim - 2), pair.want.ndim - 1, pair.want.ndim - 2)] if pair.got.shape == pair.want.shape else []
    for order in orders or [o for o in permutations(range(pair.want.ndim)) if o != tuple(range(pair.want.ndim))]:
        made = np.transpose(pair.want, order) if pair.want.ndim > 1 else pair.want
        if made.shape != pair.got.shape or min(made.shape[-2:], default=0) < 2 or not pair.enough(made.size):
            continue
        off = largest_difference(pair.got, made)
        if off <= pair.close * size(made) and (pair.got.shape != pair.want.shape or pair.within(made) is not None):
            if orders:
                return Relation(f"is ours with {names[-2]} and {names[-1]} transposed", f"Transpose {pair.name} back.", off)
            sentence = f"is ours with its axes as {[names[i] for i in order]} in place of {names}".replace("'", "")
            return Relation(sentence, f"Swap the axes of {pair.name}.", off)
    return None


def other_array(pair: Pair) -> Relation | None:
    """An earlier array of the case, sent under this name."""
    names = list(CATALOGUE)
    for name in [name for name in names[: names.index(pair.name)] if name in pair.arrays]:
        array = pair.arrays[name]
        if array.shape != pair.got.shape or array.dtype == bool or not pair.enough(array.size):
            continue
        off = pair.within(array)
        if off is not None:
            return Relation(f"equals our {name}", f"Send {pair.name} itself, or look for the step after {name} that is left out.", off)
    return None


def filled(pair: Pair) -> Relation | None:
    """Scores that are right where they are seen, and hold one finite number where they are blocked."""
    if pair.name != "masked" or "keep" not in pair.arrays or pair.arrays["keep"].all():
        return None
    keep = pair.arrays["keep"]
    numbers = np.unique(pair.got[~keep])
    if len(numbers) != 1 or not np.isfinite(numbers[0]) or numbers[0] > -100:
        return None
    off = largest_difference(pair.got[keep], pair.want[keep])
    if off > pair.close * size(pair.want):
        return None
    number, fill = short(float(numbers[0])), pair.case["mask"]["fill"]
    sentence = f"is ours but for blocked scores, which are {number} in place of {fill if isinstance(fill, str) else short(float(fill))}"
    return Relation(sentence, "A finite number lets blocked keys through where all others are as low; fill as the case says.", off)


def cells(pair: Pair) -> Relation | None:
    """The cells in which the mask behind `keep`, `masked` or `weights` is another one than ours."""
    if pair.name not in ("keep", "masked", "weights"):
        return None
    right = pair.arrays.get("keep", np.ones(pair.got.shape, bool))
    if pair.name == "keep":
        seen, off = pair.got, 0.0
    else:
        open_scores = pair.arrays.get("capped", pair.arrays.get("scaled")) + pair.arrays.get("bias", 0.0)
        if pair.name == "masked":
            fill = fill_value(pair.case["mask"]["fill"], np.dtype(np.float64))
            seen = ~((pair.got == -np.inf) | (pair.got == fill))
            made = np.where(seen, open_scores, np.where(pair.got == fill, fill, -np.inf))
        else:
            seen = (pair.got != 0) | (right & (np.abs(pair.want) <= pair.close))
            if pair.case["softmax"] == "hardmax":
                return None
            moved = {"keep": seen, "masked": np.where(seen, open_scores, -np.inf)}
            made = STAGE["weights"](pair.case, pair.arrays | moved)["weights"]
        off = largest_difference(pair.got, made)
        if off > pair.close * size(made) or not pair.enough(int(seen.sum())):
            return None
    differs = seen != right
    if not differs.any() or (pair.name == "keep" and differs.mean() > 0.25):
        return None
    return Relation(*_listed(differs, right), off)


def _listed(differs: np.ndarray, right: np.ndarray) -> tuple[str, str]:
    """(sentence, remedy) on the cells [..., Lq, Lk] that differ; axes along which all is alike are not named."""
    alike = (differs == differs[(slice(0, 1),) * (differs.ndim - 2)]).all() and (right == right[(slice(0, 1),) * (right.ndim - 2)]).all()
    table = differs[(0,) * (differs.ndim - 2)] if alike else differs
    places = np.argwhere(table)
    words = []
    for place in places[:CELLS]:
        seen = right[(*(0,) * (right.ndim - len(place)), *place)]
        where = "" if len(place) == 2 else f" in {'head' if len(place) == 3 else 'sample and head'} {', '.join(map(str, place[:-2]))}"
        words.append(f"key {place[-1]} were {'blocked' if seen else 'seen'}, too, for query {place[-2]}{where}")
    more = f", and {len(places) - CELLS} more cells of the mask were others" if len(places) > CELLS else ""
    return f"is what ours would be if {', '.join(words)}{more} (counted from 0)", "Compare your mask with `keep` of the case, cell by cell."


RELATIONS: tuple[Callable[[Pair], Relation | None], ...] = (
    transposed,
    reordered,
    filled,
    cells,
    constant_per_row,
    other_array,
    ratio,
)


def related(pair: Pair) -> Iterator[Relation]:
    """Every relation that holds between what was sent and what is right, the most telling first."""
    same_shape = pair.got.shape == pair.want.shape
    for relation in RELATIONS if same_shape else (transposed,):
        if pair.got.dtype == bool and relation not in (transposed, reordered, cells):
            continue
        with np.errstate(all="ignore"):
            found = relation(pair)
        if found:
            yield found


def short(number: float) -> str:
    return f"{number:.6g}"
