"""One entry of the library of known mistakes: a small change to a stage, with a sentence that names it and its remedy.

A change is a function (case, arrays, go) -> arrays of the stage, computed wrongly. `arrays` are those of the stages before;
`go(case, arrays)` computes the stage, and may itself be mistaken already, so that mistakes can be combined. Most changes alter
the case or a parameter and go on, or go and alter what comes out. A sentence completes "what you sent equals: ...".
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from worked_attention.referee.chain import STAGE, Arrays, Stage
from worked_attention.stages.catalogue import STAGES

Change = Callable[[dict, Arrays, Stage], Arrays]


@dataclass(frozen=True)
class Mistake:
    """One known mistake: its name, its kind (the module it stands in), what it is, what mends it, when it can happen, what it changes.

    A neutral one says what was done without a guess why; where several equal what was sent, it is told first.
    """

    name: str
    kind: str
    sentence: str
    remedy: str
    applies: Callable[[dict], bool]
    changes: dict[str, Change]
    neutral: bool = False

    @property
    def stage(self) -> str:
        """The first stage that it changes."""
        return next(stage for stage in STAGES if stage in self.changes)

    def run(self, stage: str, case: dict, arrays: Arrays, go: Stage | None = None) -> Arrays:
        """The arrays of `stage` as this mistake makes them, from all arrays of the stages before."""
        go = go or STAGE[stage]
        with np.errstate(all="ignore"):
            return self.changes[stage](case, arrays, go) if stage in self.changes else go(case, arrays)


@dataclass(frozen=True)
class Numbered:
    """A mistake with a number in it: each of `numbers(case)` makes one, whose sentence has it in place of {}."""

    name: str
    kind: str
    sentence: str
    remedy: str
    numbers: Callable[[dict], Iterable]
    changes: Callable[[float], dict[str, Change]]

    def mistakes(self, case: dict) -> list[Mistake]:
        """One for each number that the case allows."""
        return [
            Mistake(f"{self.name}_{n}", self.kind, self.sentence.format(n), self.remedy, lambda case: True, self.changes(n))
            for n in self.numbers(case)
        ]


ENTERED: dict[str, Mistake] = {}
NUMBERED: dict[str, Numbered] = {}


@dataclass(frozen=True)
class Entries:
    """What a module enters mistakes of its kind with."""

    kind: str

    def enter(
        self, name: str, sentence: str, remedy: str, applies: Callable[[dict], bool], changes: dict[str, Change], neutral: bool = False
    ) -> None:
        """Put a mistake into the library that changes one stage or several, {stage: change}."""
        ENTERED[name] = Mistake(name, self.kind, sentence, remedy, applies, changes, neutral)

    def mistake(
        self, stage: str, sentence: str, remedy: str, applies: Callable[[dict], bool] = lambda case: True
    ) -> Callable[[Change], Change]:
        """Put the function that follows into the library, under its own name."""

        def enter(change: Change) -> Change:
            self.enter(change.__name__, sentence, remedy, applies, {stage: change})
            return change

        return enter

    def numbered(
        self, name: str, stage: str, sentence: str, remedy: str, numbers: Callable[[dict], Iterable], change: Callable[[float], Change]
    ) -> None:
        """Put `change(number)` of a stage into the library, once for each of `numbers(case)`."""
        NUMBERED[name] = Numbered(name, self.kind, sentence, remedy, numbers, lambda number: {stage: change(number)})


def altered(**changes: Callable[[dict], object]) -> Change:
    """Go on with a case whose keys are altered: `key=function(case)` gives the new value."""
    return lambda case, arrays, go: go({**case, **{key: value(case) for key, value in changes.items()}}, arrays)


def without(*names: str) -> Change:
    return lambda case, arrays, go: go(case, {name: array for name, array in arrays.items() if name not in names})
