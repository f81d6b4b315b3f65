"""Conventions on which implementations differ: what a submission declares of them, and a case under another one than its own."""

from collections.abc import Iterator

from worked_attention.cases.words import did_you_mean, shown
from worked_attention.stages.masks import DIAGONAL
from worked_attention.stages.projections import ZERO_VECTOR
from worked_attention.stages.weights import EMPTY_ROW

PLACES = {  # each option: the part of a case in which it stands, and its choices
    "empty_row": ("mask", tuple(EMPTY_ROW)),
    "zero_vector": ("qk_norm", tuple(ZERO_VECTOR)),
    "causal": ("mask", ("top_left", "bottom_right")),
    "diagonal": ("mask", tuple(DIAGONAL)),
}
UNDEFINED = ("empty_row", "zero_vector")  # where the formula has 0/0: no choice is a mistake, and none needs to be declared


def declared(conventions: object) -> dict[str, str]:
    """`conventions` {option: choice} as a submission declares them. Raises ValueError, in a few words, if they are none."""
    if not isinstance(conventions, dict):
        raise ValueError(f'is {shown(conventions)}, should be options with their choices, such as {{"empty_row": "nan"}}')
    for option, choice in conventions.items():
        if option not in PLACES:
            raise ValueError(f"{shown(option)} is no convention{did_you_mean(option, PLACES)}")
        if choice not in PLACES[option][1]:
            raise ValueError(f"{option} is {shown(choice)}, should be one of {', '.join(PLACES[option][1])}")
    return conventions


def others(case: dict, conventions: dict[str, str]) -> Iterator[tuple[str, dict]]:
    """(what is followed, the case under it): all `conventions` that were declared together, then each other choice of what is undefined.

    case: resolved. Only options that the case has, and choices that are not its own.
    """
    together = {option: choice for option, choice in conventions.items() if _differs(case, option, choice)}
    if together:
        changed = case
        for option, choice in together.items():
            changed = _under(changed, option, choice)
        yield ", ".join(f"{option}: {choice}" for option, choice in together.items()), changed
    for option in UNDEFINED:
        for choice in PLACES[option][1]:
            if _differs(case, option, choice) and together != {option: choice}:
                yield f"{option}: {choice}", _under(case, option, choice)


def _differs(case: dict, option: str, choice: str) -> bool:
    """Whether the case has this option, and another choice of it."""
    part = case[PLACES[option][0]]
    applies = {
        "empty_row": "keep" in case["shapes"] or "bias" in case["shapes"],
        "zero_vector": bool(part) and part.get("eps") == 0,
        "causal": "causal" in case["mask"],
        "diagonal": "key_lengths" in case["mask"],
    }
    return applies[option] and part[option] != choice


def _under(case: dict, option: str, choice: str) -> dict:
    """The case with another choice; a window keeps to the diagonal of the causal mask."""
    name, _ = PLACES[option]
    part = {**case[name], option: choice}
    if option == "causal" and "window" in part:
        part["window"] = {**part["window"], "align": choice}
    return {**case, name: part}
