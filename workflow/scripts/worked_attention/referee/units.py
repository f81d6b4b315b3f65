"""Units in the last place, and numbers as JSON has them."""

import math

import numpy as np


def unit(array: np.ndarray) -> float:
    """The unit in the last place of the array's largest finite element."""
    half = np.abs(array[np.isfinite(array)]).max(initial=0) / 2  # the largest finite number itself has no next one
    return 2 * float(np.spacing(half))


def spelled(number: float) -> float | str:
    """`number` as JSON holds it."""
    return number if math.isfinite(number) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, "NaN")
