"""Two results held against each other, and printed numbers against exact ones."""

import math
from decimal import Decimal

import numpy as np

from worked_attention.referee.bounds.contracts import gates as certified
from worked_attention.stages.catalogue import CATALOGUE


def unit(array: np.ndarray) -> float:
    """The unit in the last place of the array's largest finite element."""
    half = np.abs(array[np.isfinite(array)]).max(initial=0) / 2  # the largest finite number itself has no next one
    return 2 * float(np.spacing(half))


def gates_of(case: dict, ours: dict[str, np.ndarray], gates: dict) -> dict[str, float | np.ndarray]:
    """The largest differences that pass, by array: certified bounds element by element, or the absolute `gates` of the config.

    Certified: ours and theirs each lie within a bound around the exact numbers, so they differ by the sum of both at most.
    Absolute: one number for float64 and float32 cases; for the half precisions `half_ulp` units of the array, or of one that it is
    made from, where terms have cancelled.
    """
    if gates["rule"] == "certified":
        return certified(case, ours)
    made = [name for stage in case["arrays"] if stage != "parameters" for name in case["arrays"][stage]]
    if case["dtype"] in gates:
        return dict.fromkeys(made, gates[case["dtype"]])
    sources = {name: [source for source in (name, *CATALOGUE[name].made_from) if source in ours] for name in made}
    return {name: gates["half_ulp"] * max(unit(ours[source]) for source in sources[name]) for name in made}


def compare_arrays(ours: np.ndarray, theirs: np.ndarray, gate: float | np.ndarray) -> dict:
    """The largest absolute difference, the same in units in the last place of our largest element, the gate and the verdict.

    ours, theirs: any shape; another shape fails. gate: one for all elements or one for each; the one told is that of the element
    that comes nearest to it. NaN and infinity agree only with the same at the same place.
    """
    if ours.shape != theirs.shape:
        reason = f"shape {list(theirs.shape)}, ours {list(ours.shape)}"
        return {"max_abs": None, "ulp": None, "gate": spelled(float(np.max(gate))), "verdict": "fail", "reason": reason}
    allowed = np.broadcast_to(gate, ours.shape)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    same = np.array_equal(ours[~finite], theirs[~finite], equal_nan=True) or bool(np.isinf(allowed[~finite]).all())
    difference, allowed = np.abs(ours[finite].astype(np.float64) - theirs[finite].astype(np.float64)), allowed[finite]
    largest = float(difference.max(initial=0.0))
    told = float(allowed[np.argmax(difference - allowed)]) if difference.size else float(np.max(gate, initial=0.0))
    passed = same and bool((difference <= allowed).all())
    result = {"max_abs": largest, "ulp": largest / unit(ours), "gate": spelled(told), "verdict": "pass" if passed else "fail"}
    return result if same else {**result, "reason": "NaN or infinity at other places"}


def compare_case(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], allowed: dict[str, float | np.ndarray]) -> dict:
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
    """{verdict, arrays, first_divergence} of compared arrays, which stand in the order of the stages."""
    wrong = [key for key, result in arrays.items() if result["verdict"] == "fail"]
    first = {"stage": CATALOGUE[wrong[0].split(".")[-1]].stage, "array": wrong[0]} if wrong else None
    return {"verdict": "fail" if wrong else "pass", "arrays": arrays, "first_divergence": first}


def spelled(number: float) -> float | str:
    """`number` as JSON holds it."""
    return number if math.isfinite(number) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, "NaN")


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
