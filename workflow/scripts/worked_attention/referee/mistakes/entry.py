"""One entry of the library of known mistakes: a small change to a stage, with a sentence that names it and its remedy.

A change is a function (case, arrays, go) -> arrays of the stage, computed wrongly. `arrays` are those of the stages before;
`go(case, arrays)` computes the stage, and may itself be mistaken already, so that mistakes can be combined. Most changes alter
the case or a parameter and go on, or go and alter what comes out. A sentence completes "what you sent equals: ...".
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from worked_attention.referee.chain import STAGE, Arrays, Stage
from worked_attention.stages.catalogue import STAGES

Change = Callable[[dict, Arrays, Stage], Arrays]


@dataclass(frozen=True)
class Mistake:
    """One known mistake: its name, its kind (the module it stands in), what it is, what mends it, when it can happen, what it changes."""

    name: str
    kind: str
    sentence: str
    remedy: str
    applies: Callable[[dict], bool]
    changes: dict[str, Change]

    @property
    def stage(self) -> str:
        """The first stage that it changes."""
        return next(stage for stage in STAGES if stage in self.changes)

    def run(self, stage: str, case: dict, arrays: Arrays, go: Stage | None = None) -> Arrays:
        """The arrays of `stage` as this mistake makes them, from all arrays of the stages before."""
        go = go or STAGE[stage]
        with np.errstate(all="ignore"):
            return self.changes[stage](case, arrays, go) if stage in self.changes else go(case, arrays)


ENTERED: dict[str, Mistake] = {}


def entries(kind: str) -> tuple[Callable, Callable]:
    """(mistake, enter_all), which put mistakes of this kind into the library.

    `@mistake(stage, sentence, remedy, applies)` enters the function that follows, under its own name; `enter_all(name, sentence, remedy,
    applies, changes)` a mistake that changes one stage or several, {stage: change}.
    """

    def enter_all(name: str, sentence: str, remedy: str, applies: Callable[[dict], bool], changes: dict[str, Change]) -> None:
        ENTERED[name] = Mistake(name, kind, sentence, remedy, applies, changes)

    def mistake(stage: str, sentence: str, remedy: str, applies: Callable[[dict], bool] = lambda case: True) -> Callable[[Change], Change]:
        def enter(change: Change) -> Change:
            enter_all(change.__name__, sentence, remedy, applies, {stage: change})
            return change

        return enter

    return mistake, enter_all


def altered(**changes: Callable[[dict], object]) -> Change:
    """Go on with a case whose keys are altered: `key=function(case)` gives the new value."""
    return lambda case, arrays, go: go({**case, **{key: value(case) for key, value in changes.items()}}, arrays)


def without(*names: str) -> Change:
    return lambda case, arrays, go: go(case, {name: array for name, array in arrays.items() if name not in names})
