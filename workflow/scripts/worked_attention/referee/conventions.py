"""Conventions on which implementations differ: what a submission declares of them, and a case under another one than its own."""

import math
from collections.abc import Iterator

import numpy as np

from worked_attention.stages.dtypes import DTYPES, overflow
from worked_attention.stages.masks import ALIGN, DIAGONAL
from worked_attention.stages.projections import ZERO_VECTOR
from worked_attention.stages.weights import EMPTY_ROW

PLACES = {  # each option: the part of a case in which it stands, and its choices
    "empty_row": ("mask", tuple(EMPTY_ROW)),
    "zero_vector": ("qk_norm", tuple(ZERO_VECTOR)),
    "causal": ("mask", tuple(ALIGN)),
    "diagonal": ("mask", tuple(DIAGONAL)),
    "scores": ("precision", ("float32", "float64", "float16", "bfloat16")),  # of equal ones, the first is told
}
# Where the formula has 0/0, or a score is too large for a dtype: no choice is a mistake, and none needs to be declared
UNDEFINED = ("empty_row", "zero_vector", "scores")


def largest_score(arrays: dict[str, np.ndarray]) -> float:
    """The largest size of a score that is no blocked one, from the arrays of stage scores (float64 or narrower); infinite if one is."""
    scores = [np.abs(arrays[name].astype(np.float64)) for name in ("qk", "scaled", "capped") if name in arrays]
    masked = arrays["masked"].astype(np.float64)
    scores.append(np.abs(masked[arrays["keep"]] if "keep" in arrays else masked))
    return max(math.inf if np.isnan(size).any() else float(size.max(initial=0.0)) for size in scores)


def others(case: dict, conventions: dict[str, str], largest: float) -> Iterator[tuple[str, dict]]:
    """(what is followed, the case under it): all `conventions` that were declared together, then each other choice of what is undefined.

    case: resolved. largest: its `largest_score`. Only options that the case has, and choices that are not its own.
    """
    together = {option: choice for option, choice in conventions.items() if _differs(case, option, choice, largest)}
    if together:
        changed = case
        for option, choice in together.items():
            changed = under(changed, option, choice)
        yield ", ".join(f"{option}: {choice}" for option, choice in together.items()), changed
    for option in UNDEFINED:
        for choice in PLACES[option][1]:
            if _differs(case, option, choice, largest) and together != {option: choice}:
                yield f"{option}: {choice}", under(case, option, choice)


def _differs(case: dict, option: str, choice: str, largest: float) -> bool:
    """Whether the case has this option, and another choice of it; of what scores are kept in, whether one overflows in one of both only."""
    part = case[PLACES[option][0]]
    applies = {
        "empty_row": lambda: "keep" in case["shapes"] or "bias" in case["shapes"],
        "zero_vector": lambda: bool(part) and part.get("eps") == 0,
        "causal": lambda: "causal" in case["mask"],
        "diagonal": lambda: "key_lengths" in case["mask"],
        "scores": lambda: (largest > DTYPES[choice].largest) != (largest > case["overflow"]["possible"]),
    }
    return applies[option]() and part[option] != choice


def under(case: dict, option: str, choice: str) -> dict:
    """The case with another choice; a window keeps to the diagonal of the causal mask, and wide scores are summed and read as wide."""
    name, _ = PLACES[option]
    part = {**case[name], option: choice}
    if option == "causal" and "window" in part:
        part["window"] = {**part["window"], "align": choice}
    if option != "scores":
        return {**case, name: part}
    part = {name: max(dtype, choice, key=lambda dtype: DTYPES[dtype].largest) for name, dtype in part.items()}
    return {**case, "precision": part, "overflow": overflow(part)}
