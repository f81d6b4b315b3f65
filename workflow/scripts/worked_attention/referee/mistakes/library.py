"""The library of known mistakes by name, in the order of the stages and of the modules below; those with a number in them apart."""

from worked_attention.referee.mistakes import backward, contexts, entry, masks, outputs, positions, projections, scores, weights
from worked_attention.referee.mistakes.entry import Mistake, Numbered
from worked_attention.stages.catalogue import STAGES

MODULES = (projections, positions, masks, scores, weights, contexts, outputs, backward)
KINDS = [module.__name__.split(".")[-1] for module in MODULES]
LIBRARY: dict[str, Mistake] = dict(sorted(entry.ENTERED.items(), key=lambda item: (STAGES.index(item[1].stage), KINDS.index(item[1].kind))))
NUMBERED: dict[str, Numbered] = dict(sorted(entry.NUMBERED.items(), key=lambda item: KINDS.index(item[1].kind)))
