"""A worksheet: which results of a case are asked, what is given for them, and the right numbers with their tolerances."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from worked_attention.pages.scores import masked_cells
from worked_attention.pages.work import FEATURES, PRODUCTS, TOKENS, Work
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE, axes
from worked_attention.worksheets.hand import RESULTS, Hand, copied, inputs

Arrays = dict[str, np.ndarray]
Index = tuple[int, ...]
COLUMNS = 2 * TOKENS  # that a table of a page shows
PART = 4  # a tolerance is at most a PARTth of the largest number of its array; a larger one would tell too little
LARGEST = 1e6  # of a number that is written down with decimals, as on the pages
KEYS = ("qk", "scaled", "capped", "masked", "weights", "dropped")  # with a number for each query and key, not asked where that is masked


class Unsuited(Exception):
    """Why there is no such worksheet, in a few words."""


@dataclass
class Sheet:
    """One worksheet.

    number: counted from 1. seed: of its numbers, None for those of the case itself. case: resolved. arrays: all its arrays, but for
    gradients. blank: the stages that are asked. queries: so many are asked, the first ones. digits: decimals of each result. asked, given:
    names of arrays. right: the asked arrays, as they follow from the given ones as the sheet prints them. cells: (array, index) of each
    number that is asked, by its name on the sheet. work: the case laid open, with the numbers of the sheet.
    """

    number: int
    seed: int | None
    case: dict
    arrays: Arrays
    blank: list[str]
    queries: int
    digits: int
    asked: list[str] = field(init=False)
    given: list[str] = field(init=False)
    right: Arrays = field(init=False)
    cells: dict[str, tuple[str, Index]] = field(init=False)
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        """Raises Unsuited if the case cannot be worked by hand, if nothing of it is asked, or if rounding would leave nothing to tell."""
        case, names = self.case, list(CATALOGUE)
        plain = Work(case, self.arrays, {}, self.digits)
        if case["dtype"] != "float64":
            raise Unsuited(f"it is in {case['dtype']}, which nobody rounds to by hand; take a case in float64")
        if not plain.whole or max(shape[-1] for shape in case["shapes"].values()) > COLUMNS:
            most = f"{TOKENS} tokens, {FEATURES} features, {COLUMNS} columns or {PRODUCTS:,} multiply-adds"
            raise Unsuited(f"it is too large for a page: more than {most}")
        there = [name for stage in self.blank for name in case["arrays"][stage] if name not in case["arrays"]["parameters"]]
        self.asked = sorted((name for name in there if name in RESULTS and copied(case, name) is None), key=names.index)
        if not self.asked:
            raise Unsuited(f"it has nothing to be worked out in {', '.join(self.blank)}")
        self.given = sorted(self.needs(self.asked), key=names.index)
        hand = self.hand({name: self.printed(plain, name) for name in self.given})
        self.right = {}
        for name in self.asked:
            self.right[name], off = hand.right(name)
            hand.take(name, self.right[name], off)
        self.work = Work(case, self.arrays | hand.arrays(), {}, self.digits, self.digits)
        self.cells = self._named()
        self._check()

    def hand(self, given: Arrays | None = None) -> Hand:
        """The way through the case of somebody who knows the `given` arrays; those of the sheet, as it prints them."""
        return Hand(self.case, self.digits, {name: self.work.arrays[name] for name in self.given} if given is None else given)

    def needs(self, asked: list[str]) -> set[str]:
        """The arrays from which these asked ones are made, and which are not asked themselves."""
        found, waiting = set(), list(asked)
        while waiting:
            for name in inputs(self.case, waiting.pop()):
                if name not in self.asked:
                    (waiting.append if self.copies_asked(name) else found.add)(name)
        return found

    def copies_asked(self, name: str) -> bool:
        """Whether array `name` only lays out otherwise what is asked."""
        of = copied(self.case, name)
        return of is not None and (of in self.asked or self.copies_asked(of))

    def printed(self, work: Work, name: str) -> np.ndarray:
        """An array as the sheet prints it, rounded to its digits."""
        array = work.arrays[name]
        if name in BOOLEAN:
            return array
        return np.array([float(work.number(name, index).printed) for index in np.ndindex(array.shape)]).reshape(array.shape)

    def _named(self) -> dict[str, tuple[str, Index]]:
        """The cells that are asked: of the first queries, and of keys that they see; in the order in which the sheet shows them."""
        blocked, found = masked_cells(self.work), {}
        for name in self.asked:
            there = [index for index in np.ndindex(self.right[name].shape) if self.shows(name, index)]
            there = [index for index in there if name not in KEYS or not blocked[index]]
            found |= {f"{name}{i + 1}": (name, index) for i, index in enumerate(there)}
        return found

    def shows(self, name: str, index: Index) -> bool:
        """Whether an element belongs to a query that is asked, or to all; inputs x belong to keys as well, and are shown whole."""
        along = axes(name, self.case["dims"])[-len(index) :]
        return "Lq" not in along or name.startswith("x") or index[along.index("Lq")] < self.queries

    def _check(self) -> None:
        """That something is asked, each number can be written down, and each tolerance is small enough."""
        if not self.cells:
            raise Unsuited("the queries that are asked see no key; ask more of them, with worksheet.queries")
        for name in self.boxed:
            numbers, off = (
                np.array([array[index] for index in self.boxed[name].values()]) for array in (self.right[name], self.tolerances[name][0])
            )
            size, most = np.abs(numbers).max(), off.max()
            if not size < LARGEST:
                raise Unsuited(
                    f"its {name} hold {numbers[np.abs(numbers).argmax()]:g}, which nobody writes down with {self.digits} decimals"
                )
            if most > size / PART:
                said = f"rounded to {self.digits} decimals, its {name} may be off by {most:.2g}, and go up to {size:.2g} only"
                raise Unsuited(f"{said}; ask for more with looks={{digits: {self.digits + 2}}}")

    @cached_property
    def boxed(self) -> dict[str, dict[str, Index]]:
        """The cells by array: the index of each by its name."""
        found: dict[str, dict[str, Index]] = {}
        for cell, (array, index) in self.cells.items():
            found.setdefault(array, {})[cell] = index
        return found

    @cached_property
    def tolerances(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """How far each asked array may be off: from what follows from the numbers written before it, and from the right numbers."""
        step, whole, found = self.hand(), self.hand(), {}
        for name in self.asked:
            (_, off), (value, carried) = step.right(name), whole.right(name)
            step.take(name, self.printed(self.work, name), np.where(off > 0, step.half, 0.0))
            whole.take(name, value, carried)
            found[name] = off, carried
        return found

    @property
    def code(self) -> str:
        """Six letters that tell this sheet from others: of its numbers and of what it asks."""
        given = {name: [repr(x) for x in self.work.arrays[name].ravel().tolist()] for name in self.given}
        said = [self.case["suite"], self.case["name"], self.number, self.digits, given, self.cells]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:6]

    @property
    def identity(self) -> str:
        """What an answer sheet says of the worksheet that it belongs to."""
        return f"{self.case['suite']}/{self.case['name']} {self.number} {self.code}"
