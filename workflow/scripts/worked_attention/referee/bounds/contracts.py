"""Arithmetics and what they are called: which arrays somebody stores in half precision, and the gates that follow."""

import numpy as np

from worked_attention.referee.bounds.rounding import PRESCALED, UNIT
from worked_attention.referee.bounds.whole import bounds, kept_centres
from worked_attention.stages.catalogue import CATALOGUE

INNER = {"weights": {"weights", "dropped"}, "scores": {"qk", "scaled", "capped", "slopes", "buckets", "bias", "masked"}}
OUTER = {name for name, array in CATALOGUE.items() if array.stage != "parameters"} - INNER["weights"] - INNER["scores"]
CONTRACTS = {  # which arrays are rounded to half precision, the strictest first; all sums and exponentials are float32
    "float32 accumulation": OUTER,
    "weights stored in half": OUTER | INNER["weights"],
    "scores and weights stored in half": OUTER | INNER["weights"] | INNER["scores"],
    "queries and keys scaled in half": OUTER | INNER["weights"] | INNER["scores"] | {PRESCALED},
}
SUMS = "sums in half"  # and exponentials, and all arrays: as kernels with half accumulators do, and whoever adds numbers of a half dtype


def roundoffs(case: dict) -> tuple[float, dict[str, float]]:
    """(u, u_kept by name) of the arithmetic that the case names; gradients of scores may be kept as coarsely as scores are."""
    own, scores = UNIT[case["dtype"]], UNIT[case["precision"]["scores"]]
    kept = dict.fromkeys((*CATALOGUE, PRESCALED), own) | dict.fromkeys(INNER["scores"], scores)
    kept |= dict.fromkeys((f"d_{name}" for name in INNER["scores"]), max(own, scores))
    return max(UNIT[case["precision"][part]] for part in ("accumulate", "softmax")), kept


def usual(case: dict) -> float:
    """u of those who compute all of a case in its dtype, or in float32 if that is a half precision; not finer than the case names it."""
    return max(roundoffs(case)[0], min(UNIT[case["dtype"]], UNIT["float32"]))


def contract(name: str, dtype: str) -> dict[str, float]:
    """u_kept of a named contract for `dtype` float16 or bfloat16; u is that of float32."""
    return dict.fromkeys(CONTRACTS[name], UNIT[dtype])


def halves(dtype: str) -> list[tuple[str, float, dict[str, float]]]:
    """(name, u, u_kept) of each contract of `dtype` float16 or bfloat16, the strictest first: the named ones, and SUMS."""
    found = [(name, UNIT["float32"], contract(name, dtype)) for name in CONTRACTS]
    return [*found, (SUMS, UNIT[dtype], dict.fromkeys((*CATALOGUE, PRESCALED), UNIT[dtype]))]


def within(theirs: np.ndarray, centre: np.ndarray, error: np.ndarray) -> bool:
    """Whether |theirs - centre| <= error everywhere; infinite and NaN numbers must be the same, unless nothing can be said of them."""
    theirs = theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.abs(theirs - centre) <= error
    return bool(np.all(close | (theirs == centre) | (np.isnan(theirs) & np.isnan(centre)) | np.isinf(error)))


def gates(case: dict, ours: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By name, the largest difference between our array and that of a right implementation: the bound of ours plus the bound of theirs.

    ours: every array of the case, as its stages make them. Ours keep to the arithmetic that the case names; theirs may do all of it in
    the dtype of the case (float32 for the half precisions), and may store everything in that dtype.
    """
    u, kept = roundoffs(case)
    exact = kept_centres(case, ours, usual(case), kept)
    own = bounds(case, exact, u, kept)
    theirs = own if usual(case) == u else bounds(case, exact, usual(case), kept)
    return {name: own[name] + theirs[name] for name in own}
