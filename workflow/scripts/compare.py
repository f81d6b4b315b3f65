"""Two results held against each other, and printed numbers against exact ones."""

from decimal import Decimal

import numpy as np

from attention.arrays import CATALOGUE


def compare_arrays(ours: np.ndarray, theirs: np.ndarray, gate: float) -> dict:
    """The largest absolute difference, the same in units in the last place of our largest element, the gate and the verdict.

    ours, theirs: any shape; another shape fails. NaN and infinity agree only with the same at the same place.
    """
    if ours.shape != theirs.shape:
        return {
            "max_abs": None,
            "ulp": None,
            "gate": gate,
            "verdict": "fail",
            "reason": f"shape {list(theirs.shape)}, ours {list(ours.shape)}",
        }
    finite = np.isfinite(ours) & np.isfinite(theirs)
    same = np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
    difference = np.abs(ours[finite].astype(np.float64) - theirs[finite])
    largest = float(difference.max(initial=0.0))
    unit = float(np.spacing(np.abs(ours[finite]).max(initial=0.0)))
    result = {"max_abs": largest, "ulp": largest / unit, "gate": gate, "verdict": "pass" if same and largest <= gate else "fail"}
    return result if same else {**result, "reason": "NaN or infinity at other places"}


def compare_case(case: dict, ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], gate: float) -> dict:
    """One reference on one case: {verdict, arrays, first_divergence}.

    ours: every computed array of the case by name. theirs: what the reference shows; `layout.name` is compared with our `name`.
    Arrays are listed in the order of the stages; `first_divergence` is the first that fails, {stage, array}, or None.
    """
    arrays = {}
    for name in [name for name in CATALOGUE if name in ours and CATALOGUE[name].stage != "parameters"]:
        shown = [key for key in theirs if key.split(".")[-1] == name]
        for key in shown:
            arrays[key] = compare_arrays(ours[name], theirs[key], gate)
        if not shown:
            arrays[name] = {"max_abs": None, "ulp": None, "gate": gate, "verdict": "not exposed"}
    wrong = [key for key, result in arrays.items() if result["verdict"] == "fail"]
    first = {"stage": CATALOGUE[wrong[0].split(".")[-1]].stage, "array": wrong[0]} if wrong else None
    return {"verdict": "fail" if wrong else "pass", "arrays": arrays, "first_divergence": first}


def check_claim(claim: dict, array: np.ndarray) -> list[dict]:
    """Each value of a claim against ours: [{index, printed, right, rounded, agrees}].

    claim: {array, at, values}, the values being printed numbers as text. array: ours. A printed number is right if ours
    lies within half a unit of its last decimal (either way of rounding a tie is fine), give or take our own rounding error.
    """
    checked = []
    printed = np.array(claim["values"], dtype=object)
    for inner in np.ndindex(printed.shape):
        text, index = printed[inner], (*claim["at"], *inner)
        exact = array[index]
        unit = Decimal(1).scaleb(Decimal(text).as_tuple().exponent)
        slack = 8 * Decimal(float(np.spacing(np.abs(array).max())))
        checked.append(
            {
                "index": list(index),
                "printed": text,
                "right": float(exact),
                "rounded": str(Decimal(float(exact)).quantize(unit, rounding="ROUND_HALF_UP")),
                "agrees": bool(abs(Decimal(float(exact)) - Decimal(text)) <= unit / 2 + slack),
            }
        )
    return checked
