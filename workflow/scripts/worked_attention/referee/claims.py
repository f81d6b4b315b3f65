"""Printed numbers against exact ones."""

import math
from decimal import Decimal

import numpy as np

from worked_attention.referee.units import spelled, unit


def check_claim(claim: dict, array: np.ndarray) -> list[dict]:
    """Each value of a claim against ours: [{index, printed, right, rounded, agrees}].

    claim: {array, at, values}, the values being printed numbers as text. array: ours. A printed number is right if ours
    lies within half a unit of its last decimal (either way of rounding a tie is fine), give or take our own rounding error.
    "NaN", "Infinity" and "-Infinity" are right where ours is the same.
    """
    checked = []
    own = 64 if array.dtype.itemsize > 2 else 0  # our own rounding, in units in the last place; half precisions are taken as they are
    printed = np.array(claim["values"], dtype=object)
    for inner in np.ndindex(printed.shape):
        text, index = printed[inner], (*claim["at"], *inner)
        exact = float(array[index])
        if not math.isfinite(exact) or not Decimal(text).is_finite():
            found = {"right": spelled(exact), "rounded": str(spelled(exact)), "agrees": text == spelled(exact)}
        else:
            last = Decimal(1).scaleb(Decimal(text).as_tuple().exponent)
            rounded = str(Decimal(exact).quantize(last, rounding="ROUND_HALF_UP"))
            slack = own * Decimal(unit(array[index]))
            found = {"right": exact, "rounded": rounded, "agrees": abs(Decimal(exact) - Decimal(text)) <= last / 2 + slack}
        checked.append({"index": list(index), "printed": text, **found})
    return checked
