"""Two results held against each other."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from worked_attention.referee.bounds.contracts import gates as certified
from worked_attention.referee.bounds.contracts import roundoffs, usual
from worked_attention.referee.bounds.rounding import UNIT
from worked_attention.referee.bounds.whole import bounds, kept_centres
from worked_attention.referee.evidence import coarsest, source_of, weigh
from worked_attention.referee.typical.whole import deviations
from worked_attention.referee.units import spelled, unit
from worked_attention.stages.catalogue import CATALOGUE, computed

Arrays = dict[str, np.ndarray]
SEVERITY = ("pass", "undecided", "fail")
VERDICTS = {"right": "pass", "wrong": "fail", "undecided": "undecided"}


@dataclass(frozen=True)
class Gate:
    """What difference passes: by a bound, one for all elements or one for each, and by typical deviations where that says too little.

    deviation: gives the standard deviation of each element; None where nothing is known of it. grain, source: see `evidence.weigh`.
    """

    bound: float | np.ndarray
    deviation: Callable[[], np.ndarray] | None = None
    grain: str = "float64"
    source: float = 0.0


def gates_of(case: dict, ours: dict[str, np.ndarray], gates: dict) -> dict[str, Gate]:
    """What differences from a right implementation pass, by array: certified bounds element by element, or the `gates` of the config.

    Certified: ours and theirs each lie within a bound around the exact numbers, so they differ by the sum of both at most. Ours keep to
    the arithmetic that the case names; theirs may do all of it in the dtype of the case (float32 for the half precisions).
    Absolute: one number for float64 and float32 cases; for the half precisions `half_ulp` units of the array, or of one that it is
    made from, where terms have cancelled.
    """
    u, kept = roundoffs(case)
    if gates["rule"] == "certified":
        both = [(u, kept), (usual(case), kept)]
        return _gates(case, ours, certified(case, ours), both, lambda: kept_centres(case, ours, usual(case), kept))
    made = computed(case)
    if case["dtype"] in gates:
        return _gates(case, ours, dict.fromkeys(made, gates[case["dtype"]]), [], dict)
    sources = {name: [source for source in (name, *CATALOGUE[name].made_from) if source in ours] for name in made}
    return _gates(case, ours, {name: gates["half_ulp"] * max(unit(ours[source]) for source in sources[name]) for name in made}, [], dict)


def own_gates(case: dict, ours: dict[str, np.ndarray]) -> dict[str, Gate]:
    """How far ours may be from the exact numbers, by array, in the arithmetic that the case names."""

    def exact() -> Arrays:  # made anew, and only where asked for: they are large
        return kept_centres(case, ours, *roundoffs(case))

    return _gates(case, ours, bounds(case, exact(), *roundoffs(case)), [roundoffs(case)], exact)


def _gates(case: dict, ours: Arrays, bound: dict, both: list[tuple[float, dict]], centred: Callable[[], Arrays]) -> dict[str, Gate]:
    """The gates with these bounds, and with the deviations of those who compute in unit roundoffs (u, u_kept) together, from exact arrays
    that `centred` gives."""

    @cache
    def deviation() -> dict[str, np.ndarray]:
        exact = centred()
        found = [deviations(case, exact, u, kept) for u, kept in both]
        return {name: np.sqrt(sum(each[name] ** 2 for each in found)) for name in found[0]}

    grain = coarsest(roundoffs(case)[0], UNIT[case["dtype"]])
    return {
        name: Gate(bound[name], (lambda name=name: deviation()[name]) if both else None, grain, source_of(name, ours)) for name in bound
    }


def compare_arrays(ours: np.ndarray, theirs: np.ndarray, gate: Gate) -> dict:
    """The largest absolute difference, the same in units in the last place of our largest element, the gate, the evidence, the verdict.

    ours, theirs: any shape; another shape fails. The gate told is that of the element that comes nearest to it. NaN and infinity agree
    only with the same at the same place. `undecided`, with a reason, where the gate is too wide to tell right from wrong.
    """
    bound = np.asarray(gate.bound, dtype=np.float64)
    if bound.shape != ours.shape:  # one for all elements
        bound = np.broadcast_to(bound, ours.shape)
    if ours.shape != theirs.shape:
        reason = f"shape {list(theirs.shape)}, ours {list(ours.shape)}"
        return {"max_abs": None, "ulp": None, "gate": spelled(float(bound.max(initial=0.0))), "verdict": "fail", "reason": reason}
    wide, other = (array.astype(np.float64, copy=False) for array in (ours, theirs))
    deviation = gate.deviation or (lambda: np.full(ours.shape, np.inf))
    found = weigh(other, wide, bound, deviation, gate.grain, gate.source)
    finite = np.isfinite(wide) & np.isfinite(other)
    largest = float(np.abs(wide[finite] - other[finite]).max(initial=0.0))
    result = {"max_abs": largest, "ulp": largest / unit(ours), "gate": spelled(found.limit), "evidence": found.evidence}
    result["verdict"] = VERDICTS[found.word]
    if found.word == "wrong" and not np.array_equal(wide[~finite], other[~finite], equal_nan=True):
        result["reason"] = "NaN or infinity at other places"
    if found.word == "undecided":
        result["reason"] = f"may differ by {found.limit:.2g}, and its largest element is {found.size:.2g}"
    return result


def together(parts: list[dict]) -> dict:
    """What `compare_arrays` says of rows of an array, one part after the other, as said of the array: the largest differences, the gate and
    the verdict of the part that is worst; its largest element and its units are those of each part. Of another shape, or not exposed,
    are all of them."""
    if any(part["max_abs"] is None for part in parts):
        return parts[0]
    worst = max(parts, key=lambda part: (SEVERITY.index(part["verdict"]), part["max_abs"]))
    evidence = {"evidence": "typical"} if any(part["evidence"] == "typical" for part in parts) else {}
    return worst | {measure: max(part[measure] for part in parts) for measure in ("max_abs", "ulp")} | evidence


def compare_case(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], allowed: dict[str, Gate]) -> dict:
    """One reference on one case: {verdict, arrays, first_divergence}.

    ours: every computed array of the case by name. theirs: what the reference shows; `layout.name` is compared with our `name`.
    allowed: from `gates_of`. Arrays stand in the order of the stages; `first_divergence` is the first that fails, {stage, array}, or None.
    """
    arrays = {}
    for name in [name for name in CATALOGUE if name in ours and CATALOGUE[name].stage != "parameters"]:
        shown = [key for key in theirs if key.split(".")[-1] == name]
        for key in shown:
            arrays[key] = compare_arrays(ours[name], theirs[key], allowed[name])
        if not shown:
            arrays[name] = {"max_abs": None, "ulp": None, "gate": None, "verdict": "not exposed"}
    return verdict_on(arrays)


def verdict_on(arrays: dict[str, dict]) -> dict:
    """{verdict, arrays, first_divergence} of compared arrays, which stand in the order of the stages; where nothing fails and something
    is undecided, that is the verdict, and `reason` names it."""
    wrong = [key for key, result in arrays.items() if result["verdict"] == "fail"]
    first = {"stage": CATALOGUE[wrong[0].split(".")[-1]].stage, "array": wrong[0]} if wrong else None
    unsure = next((key for key, result in arrays.items() if result["verdict"] == "undecided"), None)
    if wrong or not unsure:
        return {"verdict": "fail" if wrong else "pass", "arrays": arrays, "first_divergence": first}
    return {"verdict": "undecided", "reason": f"{unsure} {arrays[unsure]['reason']}", "arrays": arrays, "first_divergence": None}
