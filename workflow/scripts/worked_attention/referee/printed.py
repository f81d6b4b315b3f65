"""Numbers as people print them: rounded to some decimals, as text or with their number of `digits`, and None where nothing is answered."""

import json
from decimal import Decimal

import numpy as np

from worked_attention.cases.literals import PRINTED, SPELLED
from worked_attention.cases.words import short

PAIR = np.dtype([("number", np.float64), ("step", np.float64)])  # a number and the unit of its last decimal: 0 in full, NaN of no answer
MOST = 30  # digits that can be told


def has_digits(value: object) -> bool:
    """Whether `value` is {"digits": n, "values": ...}."""
    return isinstance(value, dict) and set(value) == {"digits", "values"}


def is_printed(value: object) -> bool:
    """Whether `value`, nested lists or arrays of them, says of itself that it is printed: it holds text or None, or is told its digits."""
    if value is None or isinstance(value, str) or has_digits(value):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "UO" and is_printed(value.tolist())
    return isinstance(value, list | tuple) and any(map(is_printed, value))


def read(value: object, shape: tuple[int, ...]) -> np.ndarray:
    """The array of PAIR that `value` holds: nested lists of numbers, of printed numbers as text ("0.2831") and of None where nothing is
    answered, also for whole rows; or {"digits": n, "values": such lists} of numbers rounded to n decimals.

    shape: that the array should have, for rows without an answer; it is not checked. Raises ValueError with what is wrong.
    """
    digits = None
    if has_digits(value) and value["digits"] in range(MOST + 1):
        value, digits = value["values"], int(value["digits"])

    def pair(item: object, axes: tuple[int, ...]) -> object:
        item = item.tolist() if isinstance(item, np.ndarray | np.generic) else item
        if isinstance(item, list | tuple):
            return [pair(inner, axes[1:]) for inner in item]
        if item is None:
            return np.full((*axes, 2), np.nan).tolist()
        if isinstance(item, int | float) or (isinstance(item, str) and item in SPELLED):
            return [float(item), 0.0 if digits is None else 10.0**-digits]
        if isinstance(item, str) and PRINTED.fullmatch(item):
            return [float(item), 10.0 ** int(Decimal(item).as_tuple().exponent)]
        raise ValueError(f"holds {short(json.dumps(item, default=repr))}, should hold nested lists of numbers")

    lists = pair(value, shape)
    try:
        both = np.array(lists, dtype=np.float64)
    except ValueError:
        raise ValueError("is a ragged list; lists side by side should have one length") from None
    found = np.empty(both.shape[:-1], PAIR)
    found["number"], found["step"] = both[..., 0], both[..., 1]
    if np.isnan(found["step"]).all():
        raise ValueError("holds null only")
    return found


def apart(array: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(numbers, steps) of an array; None if no number is printed."""
    if array.dtype != PAIR:
        return array, None
    return array["number"].copy(), array["step"].copy() if array["step"].any() else None


def rounded(array: np.ndarray, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """(numbers, steps) of an array all of whose numbers count for so many decimals."""
    return np.round(array.astype(np.float64), digits), np.full(array.shape, 10.0**-digits)
