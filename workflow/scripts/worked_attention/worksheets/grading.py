"""Answers of a worksheet, graded: each number against what follows from the ones that the same hand wrote before it.

So a number is blamed for the step that made it and not for those before. What was not answered is taken as it should be.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from worked_attention.referee.mistakes.entry import Mistake
from worked_attention.referee.mistakes.library import LIBRARY, NUMBERED
from worked_attention.stages.catalogue import CATALOGUE, STAGES
from worked_attention.worksheets.hand import Hand
from worked_attention.worksheets.sheet import Arrays, Sheet

SLACK = 1e-9  # of the arithmetic of this judge itself, against numbers up to 1 and as a part of larger ones
EXPLAINS = 10  # a mistake explains what was written if that is so many times nearer to it than to the right numbers
ROOM = 4  # a mistake leads to other numbers, which round otherwise: so many tolerances may be between it and what was written
TOLD = 3  # mistakes that fit alike are told


@dataclass
class Grade:
    """What comes of one answer sheet.

    verdict: right, wrong, unfinished (what is answered is right), blank (nothing is) or unreadable. cells: right, wrong or not answered, by
    name. first: the first wrong cell, with its stage, what was written, what should be there and within how much; mistake: what the
    array equals, in words.
    """

    verdict: str
    cells: dict[str, str] = field(default_factory=dict)
    first: str = ""
    stage: str = ""
    written: Decimal | None = None
    right: float = 0.0
    within: float = 0.0
    mistake: str = ""

    def count(self, word: str) -> int:
        """How many cells are right, wrong or not answered."""
        return list(self.cells.values()).count(word)


def grade(sheet: Sheet, answers: dict[str, Decimal]) -> Grade:
    """The grade of `answers`, numbers by the names of cells; a cell that is not there was not answered."""
    hand, cells, first = sheet.hand(), {}, None
    for name in sheet.asked:
        right, off = hand.right(name)
        there = sheet.boxed.get(name, {})
        got = np.full(right.shape, np.nan)
        for cell, index in there.items():
            got[index] = float(answers[cell]) if cell in answers else np.nan
            cells[cell] = word(got[index], right[index], off[index])
        wrong = [cell for cell in there if cells[cell] == "wrong"]
        if wrong and first is None:
            first, mistake = wrong[0], likely(sheet, name, hand, got, right, off)
            index = there[first]
            told = first, CATALOGUE[name].stage, answers[first], float(right[index]), float(off[index]), mistake
        hand.take(name, np.where(np.isnan(got), right, got), np.where(off > 0, hand.half, 0.0))
    if not answers:
        return Grade("blank", cells)
    if first is not None:
        return Grade("wrong", cells, *told)
    return Grade("right" if len(answers) == len(cells) else "unfinished", cells)


def word(got: float, right: float, off: float) -> str:
    """What one number is."""
    if np.isnan(got):
        return "not answered"
    return "right" if abs(got - right) <= off + SLACK * (1 + abs(right)) else "wrong"


def passes_spoiled(sheet: Sheet) -> bool:
    """Whether zeros everywhere, or any other number everywhere, would be graded as right."""
    name, cells = next(iter(sheet.boxed.items()))
    first = [sheet.right[name][index] for index in cells.values()]
    middle = Decimal((min(first) + max(first)) / 2)
    return any(grade(sheet, dict.fromkeys(sheet.cells, number)).verdict == "right" for number in (Decimal(0), middle))


def likely(sheet: Sheet, name: str, hand: Hand, got: np.ndarray, right: np.ndarray, off: np.ndarray) -> str:
    """What the wrong array `name` equals, in words: the known mistakes that make all that was written of it; "" if there is none.

    hand: all that is gone on with. got: what was written, NaN where nothing was. right, off: what should be there, and within how much.
    """
    arrays, answered = sheet.work.arrays | hand.arrays(), ~np.isnan(got)
    gap = np.abs(got - right)[answered].max()
    room = min(ROOM * max(off[answered].max(), hand.half), gap / EXPLAINS)
    candidates = [mistake for mistake in LIBRARY.values() if tried(lambda m=mistake: m.applies(sheet.case))]
    candidates += [mistake for entry in NUMBERED.values() for mistake in tried(lambda e=entry: e.mistakes(sheet.case)) or []]
    found = []
    for mistake in candidates:
        made = tried(lambda m=mistake: mistaken(sheet, name, arrays, m))
        if made is not None and made.shape == got.shape and (distance := np.abs(made - got)[answered].max()) <= room:
            found.append((not mistake.neutral, distance, mistake.sentence))
    said = list(dict.fromkeys(sentence for _, _, sentence in sorted(found)))
    return ", or: ".join(said[:TOLD])


def mistaken(sheet: Sheet, name: str, arrays: Arrays, mistake: Mistake) -> np.ndarray:
    """Array `name` as a mistake makes it, in its own stage or in what only lays out otherwise what the stage before has."""
    at = STAGES.index(CATALOGUE[name].stage)
    known, stages = {*sheet.given, *sheet.asked[: sheet.asked.index(name)]}, STAGES[max(at - 1, 1) : at + 1]
    remade = {array for stage in stages for array in sheet.case["arrays"][stage] if stage == STAGES[at] or array not in known}
    used = {array: values for array, values in arrays.items() if array not in remade}
    for stage in stages:
        made = mistake.run(stage, sheet.case, used)
        used |= {array: values for array, values in made.items() if array in remade}
    return used[name]


def tried(function: Callable[[], object]) -> object:
    """What `function` returns; None if anything goes wrong, for mistakes meet arrays that they do not fit."""
    try:
        return function()
    except Exception:
        return None
