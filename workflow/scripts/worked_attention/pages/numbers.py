"""Numbers as people read them: decimals rounded half up from exact values, and which of them are the number itself.

A number is told with a few decimals. It is `exact` if those digits are the whole number; only then may "=" stand before it.
"""

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from typing import NamedTuple

import numpy as np

EXACT = Context(prec=2000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])  # sums and products of decimals keep all their digits
UNKNOWN = Decimal("NaN")  # of a number that is no finite decimal, such as a square root
LONG = 6  # from so many digits before the point on, and where all decimals would be zeros, powers of ten are written


class Number(NamedTuple):
    """A number as it is told: its text, whether that is all of it, and the text's own value."""

    text: str
    exact: bool
    printed: Decimal

    @property
    def factor(self) -> str:
        """The text as a factor of a product: in brackets if it has a sign or a power."""
        return f"({self.text})" if self.text.startswith("−") or "×" in self.text else self.text


def told(own: Decimal, stored: float, digits: int) -> Number:
    """A number with `digits` decimals, half up: from its `own` exact decimal, or, where that is UNKNOWN, from the `stored` float.

    A finite decimal with no more digits than that is told whole and without zeros at its end.
    """
    known = own.is_finite()
    value = own if known else Decimal(stored)
    if not value.is_finite():
        return Number("NaN" if value.is_nan() else "∞" if value > 0 else "−∞", False, value)
    if value and (value.adjusted() >= LONG or value.adjusted() < -digits - 1):
        return _power_of_ten(value, known, digits)
    printed = value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, context=EXACT)
    if not printed and value:
        return _power_of_ten(value, known, digits)
    exact = known and printed == value
    if not printed:
        return Number("0" if exact else format(abs(printed), "f"), exact, abs(printed))
    text = format(printed.normalize(EXACT) if exact else printed, "f")
    return Number(text.replace("-", "−"), exact, printed)


def _power_of_ten(value: Decimal, known: bool, digits: int) -> Number:
    """`value` as a number from 1 to 10 with `digits` decimals, times a power of ten."""
    power = value.adjusted()
    short = value.scaleb(-power, EXACT).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, context=EXACT)
    printed = short.scaleb(power, EXACT)
    exact = known and printed == value
    text = format(short.normalize(EXACT) if exact else short, "f").replace("-", "−")
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return Number(f"{text} × 10{raised}", exact, printed)


def decimal(value: np.floating) -> Decimal:
    """A number as a Decimal: of float64 the shortest decimal that means it, of another dtype the stored number.

    So 0.2 typed into a suite is 0.2 here, and not the binary number nearest to it.
    """
    return Decimal(repr(float(value))) if value.dtype == np.float64 else Decimal(float(value))


def decimals(array: np.ndarray) -> np.ndarray:
    """The numbers of `array` as Decimals, an object array of its shape."""
    return _objects([decimal(value) for value in array.ravel()], array.shape)


def unknown(shape: tuple[int, ...]) -> np.ndarray:
    """An object array in which no number has a finite decimal."""
    return _objects([UNKNOWN] * math.prod(shape), shape)


def _objects(values: list, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def quotient(a: Decimal, b: Decimal) -> Decimal:
    """a / b where that is a finite decimal of at most 40 digits, else UNKNOWN."""
    short = Context(prec=40, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
    found = short.divide(a, b)
    return found if found.is_finite() and EXACT.multiply(found, b) == a else UNKNOWN
