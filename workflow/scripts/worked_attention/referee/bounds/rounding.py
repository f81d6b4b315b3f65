"""Certified bounds: how far an array may lie from the exact one when it is computed in floating point, element by element.

u is the unit roundoff of the arithmetic (2^-53 for float64, 2^-24 for float32): each operation gives its exact result times 1 + delta,
|delta| <= u. n roundings one after the other make at most gamma_n = n u / (1 - n u) (Higham 2002, lemma 3.1), so a sum of n products is
within gamma_n sum |a| |b| in any order, with or without fused multiply-add. Arrays that are stored in fewer bits between the stages
are rounded once more, with a unit roundoff of their own.

Every bound has the same plan. Let E bound |computed - exact|, for the array at hand (the centre c) as for any other that is computed
in this arithmetic. Then |exact| <= |c| + E and |computed| <= |c| + 2E, which is called M below. What comes in with an error goes
through the formula (error of a product: |A'B' - AB| <= E_A M_B + M_A E_B), and the roundings of the formula itself are added.
Numbers that underflow add the smallest normal number. Where exact is infinite or NaN (a masked score, the weights of an empty row),
computed must be the same, and E is 0. E is infinite where nothing can be said.

Conventions hold as the case names them: angles of positions are computed in float64 and rounded as `rotary.angles` says.
"""

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE
from worked_attention.stages.dtypes import DTYPES, Dtype
from worked_attention.stages.projections import last_form
from worked_attention.stages.scores import repeat_heads

UNIT = {name: dtype.roundoff for name, dtype in DTYPES.items()}
SAFE = 1 + 1e-9  # for the rounding of the bounds themselves
EXP = 8  # an exponential is right within 4 units in the last place, 8 u
PRESCALED = "Q sqrt(s)"  # what some make of queries and keys before the product; no array of ours


def gamma(n: float, u: float) -> float:
    """n u / (1 - n u), the most that n roundings make; infinite from n u = 1 on."""
    return n * u / (1 - n * u) if n * u < 1 else math.inf


@cache
def format_of(u: float) -> Dtype:
    """The format with unit roundoff u; any other u has the range of the next coarser one, and of bfloat16 if there is none."""
    return min((dtype for dtype in DTYPES.values() if dtype.roundoff >= u), key=lambda dtype: dtype.roundoff, default=DTYPES["bfloat16"])


@cache
def smallest(u: float) -> float:
    """Error of a number that underflows, in the format with unit roundoff u: its smallest normal one, in float16 half a subnormal step.

    For float64 it is 2^-960, so that the bounds are computed without subnormal numbers, which are slow.
    """
    found = format_of(u)
    return {8: 2.0**-960, 4: found.smallest, 2: min(found.smallest, 2.0**-25)}[found.bytes]


def largest(u: float) -> float:
    """The largest finite number of the format with unit roundoff u."""
    return format_of(u).largest


def fused(n: int) -> int:
    """Roundings of a sum of n terms with a softmax: n, 6 for each rescaling if it is made online in blocks of 16 keys, and 2 to divide."""
    return n + 6 * ((n - 1) // 16) + 2


class Boundless(Exception):
    """An array that no bound is known of; it is named."""


@dataclass
class Errors:
    """The bounds so far, with the case, the centres (float64) and the arithmetic that they are for."""

    case: dict
    centre: dict[str, np.ndarray]
    u: float
    kept: dict[str, float]
    bound: dict[str, np.ndarray | None] = field(default_factory=dict)  # None: known exactly
    sums: np.ndarray | float = 0.0  # bound on how far the sum of a row of weights (or of dropped ones) is from the exact sum

    def unit(self, name: str) -> float:
        """Unit roundoff of one operation whose result is `name`: never finer than the array is stored."""
        return max(self.u, self.kept.get(name, self.u))

    def limit(self, name: str) -> float:
        """Beyond it, `name` may become infinite: as the case says of scores, and else the largest number of its format."""
        return limit(self.case, name, self.unit(name))

    def of(self, name: str) -> np.ndarray:
        """E of an array; zeros if it is a parameter or else known exactly. Raises Boundless if no stage has settled it."""
        if name not in self.bound and name not in BOOLEAN and name not in self.case["arrays"]["parameters"]:
            raise Boundless(f"bounds have no formula for {name}")
        found = self.bound.get(name)
        return np.zeros(self.centre[name].shape) if found is None else found

    def most(self, name: str) -> np.ndarray:
        """M of an array: no exact or computed value is larger. Infinite and NaN elements count as 0; see `settle`."""
        return most(self.centre[name], self.bound.get(name))

    def settle(self, name: str, error: np.ndarray, roundings: float = 0) -> None:
        """Note the bound of `name`: `error` so far, then `roundings` of the result, at least one where it is stored in fewer bits."""
        unit = self.unit(name)
        self.bound[name] = finish(self.centre[name], error, max(roundings, float(unit > self.u)), unit, self.limit(name))


def limit(case: dict, name: str, unit: float) -> float:
    """Beyond it, array `name`, kept with unit roundoff `unit`, may become infinite: as the case says of scores, else by its format."""
    return case["overflow"]["possible"] if name in CATALOGUE and CATALOGUE[name].stage == "scores" else largest(unit)


def most(centre: np.ndarray, error: np.ndarray | None) -> np.ndarray:
    """|centre| + 2 E, and 0 where the centre is infinite or NaN."""
    size = np.abs(centre)
    if not np.isfinite(size.sum()):
        size = np.where(np.isfinite(size), size, 0.0)
    return size if error is None else size + 2 * error


def finish(centre: np.ndarray, error: np.ndarray, roundings: float, unit: float, reach: float | None = None) -> np.ndarray:
    """E after the last `roundings` of a result: from |computed - exact| <= E0 + g (|exact| + E0), g = gamma_roundings, and
    |exact| <= |centre| + E follows E = (E0 + g (|centre| + E0)) / (1 - g). Infinite where a number may lie beyond `reach`, or the largest
    of the format."""
    reach = largest(unit) if reach is None else reach
    g, size = gamma(roundings, unit), np.abs(centre)
    if g >= 0.5:
        return np.where(np.isfinite(centre), math.inf, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        error = error * ((1 + g) / (1 - g) * SAFE) + size * (g / (1 - g) * SAFE)
    regular = size.max(initial=0.0) + error.max(initial=0.0) <= reach and np.isfinite(error.sum())
    if not regular:
        error = np.where((size + error > reach) | np.isnan(error), math.inf, error)
    error = np.where((size > 0) | (error > 0), error + 4 * smallest(unit), 0.0)
    return error if regular else np.where(np.isfinite(centre), error, 0.0)


def product(ea: np.ndarray | None, ma: np.ndarray, eb: np.ndarray | None, mb: np.ndarray, g: float) -> np.ndarray:
    """Error of a product A B of matrices: E_A M_B + M_A E_B + g M_A M_B, as one product of matrices twice as deep; g = gamma_n."""
    second = g * mb if eb is None else eb + g * mb
    if ea is None:
        return ma @ second
    return np.concatenate([ea, ma], axis=-1) @ np.concatenate([mb, second], axis=-2)


def terms(n: int, of: Errors, name: str) -> int:
    """Roundings of a sum of n products: n, and 2 if its factors are first rounded to the coarser arithmetic of the sum."""
    return n + 2 * (of.u > of.kept.get(name, of.u))


def latest_error(of: Errors, name: str) -> tuple[np.ndarray | None, np.ndarray]:
    """(E, M) of the last form of queries, keys or values, repeated for the query heads; E is None where it is known exactly."""
    last = last_form(of.centre, name)
    error, heads = of.bound.get(last), of.case["heads"]
    error = None if error is None or not error.any() else repeat_heads(error, heads)
    return error, repeat_heads(of.most(last), heads)


def transposed(x: np.ndarray | None) -> np.ndarray | None:
    return None if x is None else np.swapaxes(x, -1, -2)
