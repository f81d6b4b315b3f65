"""Whether arrays of one case, computed twice, are the same: bit by bit, or as far as rounding can tell."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from worked_attention.referee.compare import Gate, compare_arrays, own_gates
from worked_attention.stages.catalogue import kept_in
from worked_attention.stages.whole import from_parameters

Arrays = dict[str, np.ndarray]
Side = tuple[Arrays, dict[str, str]]  # the arrays by "stage/name", and of those that cannot be read, why
WORDS = ("identical", "within", "undecided", "beyond", "missing", "unreadable")  # the last three are faults
FAULTS = WORDS[3:]
MEANT = {"pass": "within", "undecided": "undecided", "fail": "beyond"}  # by the verdict of a comparison


def agreement(case: dict, sides: dict[str, Side], recomputed: Callable[[], Arrays]) -> dict[str, dict]:
    """Of every array of a resolved `case`, by "stage/name" in the order of the stages, {verdict, ...}, one of WORDS.

    sides: two, by what they are called. recomputed: gives the arrays of the case, by name, around which its bounds are computed, or none.
    Each side lies within its certified bound of the exact numbers, so two that are right differ by twice that at most; where such a bound
    is too wide to tell, typical errors take its place, as everywhere.
    """

    @cache
    def gates() -> dict[str, Gate]:
        arrays = recomputed()
        return own_gates(case, arrays) if arrays else {}

    (one, (left, _)), (other, (right, _)) = sides.items()
    expected = [f"{stage}/{name}" for stage, names in case["arrays"].items() for name in names]
    found = {}
    for name in [*expected, *sorted({name for arrays, lost in sides.values() for name in (*arrays, *lost)} - set(expected))]:
        if lost := next((f"{side}: {lost[name]}" for side, (_, lost) in sides.items() if name in lost), None):
            found[name] = {"verdict": "unreadable", "reason": lost}
        elif absent := [side for side, (arrays, _) in sides.items() if name not in arrays]:
            found[name] = {"verdict": "missing", "reason": f"not in {' nor in '.join(absent)}"}
        elif _same(left[name], right[name]):
            found[name] = {"verdict": "identical"}
        elif wrong := next((f"{side}: {w}" for side, (arrays, _) in sides.items() if (w := _alien(case, name, arrays[name]))), None):
            found[name] = {"verdict": "beyond", "reason": wrong}
        elif name.startswith("parameters/"):
            found[name] = {"verdict": "beyond", "reason": f"is an input, which has no bound; {_off(left[name], right[name])}"}
        elif not gates():
            found[name] = {"verdict": "undecided", "reason": "differs, and its inputs give no bound to say how far it may"}
        else:
            told = compare_arrays(left[name], right[name], _both(gates()[name.split("/")[1]]))
            found[name] = told | {"verdict": MEANT[told["verdict"]]}
    return found


def staged(case: dict, given: Arrays, arrays: Arrays) -> Arrays:
    """The arrays of a case by "stage/name", from the parameters that are `given` and from all `arrays`, by name."""
    by_stage = {stage: given if stage == "parameters" else arrays for stage in case["arrays"]}
    return {f"{stage}/{name}": by_stage[stage][name] for stage, names in case["arrays"].items() for name in names}


def around(case: dict, arrays: Arrays) -> Arrays:
    """Every array of a case by name, from the parameters among `arrays`, by "stage/name"; none where these are not all there, or nothing
    follows from them."""
    named = {name: f"parameters/{name}" for name in case["arrays"]["parameters"]}
    given = {name: arrays[key] for name, key in named.items() if key in arrays and not _alien(case, key, arrays[key])}
    try:
        return from_parameters(case, given) if len(given) == len(named) else {}
    except ValueError:  # what the case forbids
        return {}


def share(found: dict) -> float:
    """How large a part of what it may differ by an array differs; 0 where that is not told."""
    return found["max_abs"] / float(found["gate"]) if "max_abs" in found and found["max_abs"] and float(found["gate"]) else 0.0


def counts(cases: dict[str, dict[str, dict]]) -> dict[str, int]:
    """How many arrays have each verdict, by the cases' arrays."""
    found = Counter(array["verdict"] for arrays in cases.values() for array in arrays.values())
    return {word: found[word] for word in WORDS}


def _both(gate: Gate) -> Gate:
    """The gate of two who are each within `gate` of the exact numbers."""
    deviation = gate.deviation
    return replace(gate, bound=2 * gate.bound, deviation=deviation and (lambda: np.sqrt(2) * deviation()))


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    return (left.dtype, left.shape) == (right.dtype, right.shape) and left.tobytes() == right.tobytes()


def _alien(case: dict, key: str, array: np.ndarray) -> str | None:
    """How an array, by "stage/name", is none of its case; None if it is one."""
    stage, name = key.split("/")
    if name not in case["arrays"][stage]:
        return "the case has no such array"
    kind, shape = kept_in(name, stage, case["dtype"], case["precision"]["scores"]), tuple(case["shapes"][name])
    if array.dtype.name != kind or array.shape != shape:
        return f"is {array.dtype.name} {list(array.shape)}, should be {kind} {list(shape)}"
    return None


def _off(left: np.ndarray, right: np.ndarray) -> str:
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(left.astype(np.float64) - right.astype(np.float64))
    return f"{np.count_nonzero(~(off == 0))} of {off.size} numbers differ, by {np.nanmax(off, initial=0.0):.3g} at most"
