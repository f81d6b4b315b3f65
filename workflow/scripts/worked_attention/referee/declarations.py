"""What a submission declares of the conventions that it follows, checked."""

from worked_attention.cases.words import did_you_mean, shown
from worked_attention.referee.conventions import PLACES


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
