"""Ball arithmetic: numbers that know how far they may be off.

A ball is a midpoint and a radius that the exact number cannot leave (Johansson 2017, "Arb: efficient arbitrary-precision
midpoint-radius interval arithmetic"). Arrays of balls are NumPy object arrays. Sums and products lose next to nothing; where a function
needs its argument sharper than it is, it answers `ANYTHING`, and all is done again with more bits.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Self

import numpy as np
from flint import arb, arb_mat, ctx

Balls = np.ndarray  # of dtype object
BITS = (128, 256, 512, 1024, 2048, 4096)  # of the midpoints; the next where the last did not do
ANYTHING = arb(0, math.inf)
NAN, CLOSED = arb("nan"), arb("-inf")
ROWS = 128  # of a product of matrices at a time
LEAST = 2.0**-1074  # the smallest positive float64


@contextmanager
def working_bits(bits: int) -> Iterator[None]:
    """Ball arithmetic with midpoints of so many bits."""
    before, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = before


def balls(array: np.ndarray) -> Balls:
    """Each number of `array` (floats or integers, any shape) as a ball of radius 0, in the same shape."""
    return _shaped([arb(number) for number in array.astype(np.float64).ravel().tolist()], array.shape)


def _shaped(entries: list[arb], shape: tuple[int, ...]) -> Balls:
    out = np.empty(len(entries), dtype=object)
    out[:] = entries
    return out.reshape(shape)


@dataclass(frozen=True)
class Filed:
    """An array in a file, of which no more is in memory than what is asked for or written; it has a new file where there is none."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]

    def __post_init__(self):
        if not self.path.exists():
            with open(self.path, "wb") as file:
                file.truncate(prod(self.shape) * self.dtype.itemsize)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __getitem__(self, at) -> np.ndarray:
        return np.array(np.memmap(self.path, self.dtype, "r", shape=self.shape)[at])

    def __setitem__(self, at, value: np.ndarray) -> None:
        np.memmap(self.path, self.dtype, "r+", shape=self.shape)[at] = value

    def reshape(self, shape: int) -> Self:
        """The same file as one row; `shape` is -1."""
        return Filed(self.path, self.dtype, (self.size,))


@dataclass(frozen=True)
class Settled:
    """Exact numbers in float64, which can be taken apart as (middle, radius): the exact number lies within radius of the midpoint, whose
    own rounding is part of it.

    Radius 0 says that the midpoint is the number (0 or infinite), that the number is beyond the largest float64 (infinite as well), or
    that there is none (NaN, as of 0/0). Of what could be anything (NaN, inf) is told: not certified.

    middle: midpoints. wide: radii where they are more than the rounding of the midpoint, else 0; next to all are 0, and a page of zeros
    that nobody wrote takes no memory. rounded: False if midpoints are the numbers themselves.
    """

    middle: np.ndarray | Filed
    wide: np.ndarray
    rounded: bool = True

    @property
    def radius(self) -> np.ndarray:
        """The radii, float64 in the shape of `middle`; made anew each time."""
        if not self.rounded:
            return np.zeros(self.middle.shape)
        size = np.abs(self.middle)
        own = np.where((size > 0) & (size < np.inf), size * 2.0**-52 + LEAST, 0.0)
        return np.where(self.wide > 0, self.wide, own)

    def __getitem__(self, index) -> Self:
        """A part of the numbers."""
        return Settled(self.middle[index], self.wide[index], self.rounded)

    def pieces(self, size: int) -> Iterator[np.ndarray]:
        """(midpoint, radius) as last axis, so many numbers at a time, one after the other as they lie in the array."""
        flat = Settled(self.middle.reshape(-1), self.wide.reshape(-1), self.rounded)
        for first in range(0, self.middle.size, size):
            yield np.stack(tuple(flat[first : first + size]), axis=-1)

    def __iter__(self) -> Iterator[np.ndarray]:
        yield self.middle
        yield self.radius


def settle(x: Balls) -> Settled:
    """Balls or booleans of any shape as they are told; booleans are exact."""
    if x.dtype != object:
        return Settled(x, np.zeros(x.shape), rounded=False)
    flat = x.ravel().tolist()
    middle = np.array([float(ball) for ball in flat])
    accuracy = np.array([ball.rel_accuracy_bits() for ball in flat])
    wide = np.zeros(middle.shape)
    for i in np.flatnonzero((accuracy <= 60) | ~np.isfinite(middle) | (middle == 0)):
        middle[i], wide[i] = _special(flat[i], float(middle[i]))
    return Settled(middle.reshape(x.shape), wide.reshape(x.shape))


def _special(ball: arb, middle: float) -> tuple[float, float]:
    """(midpoint, radius) of a ball that is 0, wide, or without a float64 as its midpoint."""
    if ball.is_zero() or math.isnan(middle):
        return middle, 0.0
    if math.isinf(middle):
        return (middle, 0.0) if not ball.is_finite() or ball.rel_accuracy_bits() > 60 else (math.nan, math.inf)
    radius = math.nextafter(float(ball.rad()), math.inf) + abs(middle) * 2.0**-52 + LEAST
    return (middle, radius) if math.isfinite(radius) else (math.nan, math.inf)


def each(function: Callable, *x: Balls) -> Balls:
    """`function` of every element."""
    return np.frompyfunc(function, len(x), 1)(*x)


def matmul(a: Balls, b: Balls) -> Balls:
    """a b for a [n, d] and b [d, m], some rows at a time, for the product is made in far larger numbers."""
    second, entries = arb_mat(*b.shape, b.ravel().tolist()), []
    for first in range(0, len(a), ROWS):
        rows = a[first : first + ROWS]
        entries += (arb_mat(*rows.shape, rows.ravel().tolist()) * second).entries()
    return _shaped(entries, (a.shape[0], b.shape[1]))


def linear(x: Balls, w: Balls | None, b: Balls | None) -> Balls:
    """X W^T + b for x [L, d_in], w [d_out, d_in] and b [d_out]; what is None is left out."""
    y = x if w is None else matmul(x, w.T)
    return y if b is None else y + b


def closed(x: Balls) -> np.ndarray:
    """Which elements are minus infinity, bool in the shape of x; a number below the smallest float64 is not."""
    return each(lambda ball: not ball.is_finite() and bool(ball < 0), x).astype(bool)
