"""Ours held against the exact numbers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from worked_attention.referee.compare import Gate, compare_arrays, own_gates
from worked_attention.referee.truth.balls import Settled
from worked_attention.referee.units import unit
from worked_attention.stages.rows import along


def against_exact(ours: np.ndarray, exact: np.ndarray, radius: np.ndarray, gate: Gate) -> dict:
    """Our array against the exact numbers; what is not certified, where the radius is infinite, accuses nobody, and acquits nobody."""
    known = np.isfinite(radius)
    if not known.all():
        exact, radius = np.where(known, exact, ours), np.where(known, radius, 0.0)
    result = compare_arrays(exact, ours, replace(gate, bound=gate.bound + radius))
    if result["ulp"] is not None:
        result["ulp"] = result["max_abs"] / unit(ours)  # that of the dtype, where the exact numbers are float64
    return result | ({"verdict": "undecided", "reason": "is not certified"} if result["verdict"] == "pass" and not known.all() else {})


def held_against(certified: dict[str, Settled], places: list[int], part: dict, ours: dict[str, np.ndarray]) -> Iterator[tuple[str, dict]]:
    """(name, `against_exact`) of a part of a case, its queries `places`; what has no queries is looked at with the first of them.

    certified: all exact arrays of the case, as `truth` gives them. ours: the arrays of the part.
    """
    allowed = own_gates(part, ours)
    for name, found in certified.items():
        axis, at = along(name), ...
        if axis is not None and found.middle.shape[axis] > len(places):
            at = (..., places, *[slice(None)] * (-axis - 1))
        elif axis is None and places[0]:
            continue
        yield name, against_exact(ours[name], *found[at], allowed[name])
