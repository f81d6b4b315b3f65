"""The library of known mistakes: every one by name, in the order of the stages and of the modules below."""

from worked_attention.referee.mistakes import backward, contexts, masks, outputs, positions, projections, scores, weights
from worked_attention.referee.mistakes.entry import ENTERED, NUMBERED, Mistake
from worked_attention.stages.catalogue import STAGES

MODULES = (projections, positions, masks, scores, weights, contexts, outputs, backward)
KINDS = [module.__name__.split(".")[-1] for module in MODULES]
LIBRARY: dict[str, Mistake] = dict(sorted(ENTERED.items(), key=lambda entry: (STAGES.index(entry[1].stage), KINDS.index(entry[1].kind))))


def numbered(case: dict) -> list[Mistake]:
    """The mistakes with a number in them that `case` allows, each with each of its numbers."""
    return [mistake for family in NUMBERED.values() for mistake in family.mistakes(case)]
