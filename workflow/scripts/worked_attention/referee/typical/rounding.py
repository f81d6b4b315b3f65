"""The first-order standard deviation of roundings, and how a product of matrices carries it on.

A bound of the worst case grows with every product until, in half precision, it exceeds the array itself. Roundings are hardly ever all at
their worst and of one sign: taken as independent draws, with mean 0 and uniform within half a unit in the last place, they add up by their
variances (Higham and Mary 2019, "A new approach to probabilistic rounding error analysis", make the square root of n of n from that). So
every array x carries a variance: each rounding of x adds (u x)^2 / 3, and what comes in goes through the derivative of the formula. An
element that is more than `DEVIATIONS` standard deviations off is no honest rounding. This is no proof: the certified bounds are.
"""

from dataclasses import dataclass, field

import numpy as np

from worked_attention.referee.bounds.rounding import Boundless, limit, smallest
from worked_attention.stages.catalogue import BOOLEAN

DEVIATIONS = 8.0  # honest evaluations stayed within 5, known mistakes that move an array by 5 % lay beyond 8


@dataclass
class Spread:
    """The variances so far, with the case, the centres (float64) and the arithmetic that they are for.

    u: unit roundoff of sums. kept: unit roundoff of the arrays that are kept in fewer bits, by name. variance: None is known exactly.
    moved, total, stored: see `typical.weights`.
    """

    case: dict
    centre: dict[str, np.ndarray]
    u: float
    kept: dict[str, float]
    variance: dict[str, np.ndarray | None] = field(default_factory=dict)
    moved: np.ndarray | None = None
    total: float = 0.0
    stored: np.ndarray | None = None

    def unit(self, name: str) -> float:
        """Unit roundoff of one operation whose result is `name`: never finer than the array is stored."""
        return max(self.u, self.kept.get(name, self.u))

    def of(self, name: str) -> np.ndarray:
        """Variance of an array; zeros if it is a parameter or else known exactly. Raises Boundless if no stage has settled it."""
        if name not in self.variance and name not in BOOLEAN and name not in self.case["arrays"]["parameters"]:
            raise Boundless(f"typical errors have no formula for {name}")
        found = self.variance.get(name)
        return np.zeros(self.centre[name].shape) if found is None else found

    def rounding(self, name: str, size: np.ndarray) -> np.ndarray:
        """Variance of one rounding of numbers of this `size` in the format in which `name` is stored."""
        return rounding(size, self.unit(name))

    def settle(self, name: str, variance: np.ndarray, roundings: int = 1) -> None:
        """Note the variance of `name`: `variance` so far, then `roundings` of the result. Infinite where it may overflow or nothing is
        known; 0 where the exact number is infinite or NaN, for then the computed one is the same."""
        centre = self.centre[name]
        with np.errstate(invalid="ignore", over="ignore"):
            found = variance + roundings * self.rounding(name, centre)
            beyond = np.abs(centre) + DEVIATIONS * np.sqrt(found) > limit(self.case, name, self.unit(name))
            found = np.where(np.isnan(found) | beyond, np.inf, found)
        self.variance[name] = np.where(np.isfinite(centre), found, 0.0)

    def take(self, name: str, variance: np.ndarray) -> None:
        """Take up `name` as somebody has it: known, but for a rounding of this variance that it may have had on its way to us."""
        self.variance[name] = variance
        if name in ("weights", "dropped"):
            self.moved, self.total, self.stored = None, 0.0, self.variance[name]
        if name == "weights" and "dropped" in self.centre:
            factor = self.centre["dropout_keep"] / (1 - self.case["dropout"])
            self.stored = self.variance["dropped"] = factor**2 * self.stored + 3 * self.rounding("dropped", self.centre["dropped"])

    def sigma(self, name: str) -> np.ndarray:
        """Standard deviation of an array, element by element."""
        return np.sqrt(self.of(name))


def rounding(size: np.ndarray, unit: float) -> np.ndarray:
    """(u x)^2 / 3: variance of a rounding, uniform within half a unit in the last place, which is at most u |x|; below the smallest normal
    number the step no longer shrinks."""
    return ((unit * size) ** 2 + smallest(unit) ** 2) / 3


def product(va: np.ndarray | None, a: np.ndarray, vb: np.ndarray | None, b: np.ndarray, u: float) -> np.ndarray:
    """Variance of A B, A [..., n, d], B [..., d, m]: var(A) B^2 + A^2 var(B), and that of the sum.

    va, vb: variances, None where the factor is known exactly. Partial sums of d terms of one sign grow like k/d, so their roundings add
    u^2 d / 9 times (|A| |B|)^2 (the sum of k^2 is d^3 / 3).
    """
    found = u * u * a.shape[-1] / 9 * (np.abs(a) @ np.abs(b)) ** 2
    if va is not None:
        found = found + va @ (b * b)
    if vb is not None:
        found = found + (a * a) @ vb
    return found


def finite(x: np.ndarray) -> np.ndarray:
    """`x` with 0 in place of what is infinite or NaN."""
    return np.where(np.isfinite(x), x, 0.0)


def flat(x: np.ndarray | None) -> np.ndarray | None:
    """Rows of all sequences one below the other; None stays None."""
    return None if x is None else x.reshape(-1, x.shape[-1])
