"""One case laid open: its numbers as text, its lines of arithmetic and its tables, which the steps of all stages share."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from worked_attention.cases.escapes import printable
from worked_attention.pages.blocks import Beside, Cell, Fold, Line, Printed, Table
from worked_attention.pages.exact import own_decimals
from worked_attention.pages.language import N_, _, capital
from worked_attention.pages.numbers import UNKNOWN, Number, decimal, told
from worked_attention.stages.catalogue import axes

TOKENS, FEATURES, PRODUCTS = 8, 8, 4000  # of a case that is told whole: tokens, widths, and multiply-adds of all stages together
WEIGHT_DIGITS = 6  # of weights inside arithmetic: with four, the sum of terms would miss the printed context in a quarter of all cases
TERMS = 8  # of a sum that is written out
NAME = 24  # letters of a token

Index = tuple[int, ...]


@dataclass
class Work:
    """A case with everything that its page tells.

    case: resolved. arrays: all arrays of the case by name. claims: {(array, index): Printed}. digits: decimals of a result. weight_digits:
    of weights inside arithmetic.
    """

    case: dict
    arrays: dict[str, np.ndarray]
    claims: dict[tuple[str, Index], tuple[Printed, ...]]
    digits: int
    weight_digits: int = WEIGHT_DIGITS
    own: dict[str, np.ndarray] = field(init=False)
    anchors: set[tuple] = field(init=False, default_factory=set)
    numbers: dict[tuple, Number] = field(init=False, default_factory=dict)
    sizes: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.own = own_decimals(self.case, self.arrays) if self.whole else {}

    @cached_property
    def whole(self) -> bool:
        """Whether every multiply-add is told; else the first query is."""
        dims, there = self.case["dims"], self.arrays
        tokens = max(size for axis, size in dims.items() if axis in ("Lq", "Lk", "B"))
        named = ["d_k", "d_v", *["d_model", "d_kv", "d_vv"] * ("x" in there), *["d_out"] * ("w_o" in there)]
        widths = max((dims[axis] for axis in named if axis in dims), default=1)
        return tokens <= TOKENS and widths <= FEATURES and sum(self.case["multiply_adds"].values()) <= PRODUCTS

    def some(self, count: int, most: int = 1) -> range:
        """Indices of an axis that are told: all of a case that is told whole, else the first `most`."""
        return range(count if self.whole else min(count, most))

    def number(self, name: str, index: Index, digits: int | None = None) -> Number:
        """Element `index` of array `name`."""
        key = name, index, digits
        if key not in self.numbers:
            value = self.arrays[name][index]
            given = name in self.case["arrays"]["parameters"]
            own = self.own[name][index] if name in self.own else decimal(value) if given else UNKNOWN
            self.numbers[key] = told(own, float(value), self.digits if digits is None else digits)
        return self.numbers[key]

    def row(self, name: str, index: Index, digits: int | None = None) -> list[Number]:
        """The numbers along the last axis of array `name`."""
        return [self.number(name, (*index, j), digits) for j in range(self.arrays[name].shape[-1])]

    def free(self, value: float) -> Number:
        """A number that is in no array and has no exact decimal."""
        return told(UNKNOWN, float(value), self.digits)

    def plain(self, value: float) -> Number:
        """A number that is in no array and is the shortest decimal that means it, such as a setting or a slope."""
        return told(decimal(np.float64(value)), float(value), self.digits)

    def query(self, i: int) -> str:
        return named(self.case["tokens"][i])

    def key(self, j: int) -> str:
        """Name of key j among all keys of the scores."""
        return named(self.case["key_tokens"][j])

    def new_key(self, j: int) -> str:
        """Name of key j among the new ones, behind the cache."""
        return self.key(self.case["dims"]["Lp"] + j)

    def leads(self, name: str) -> Iterator[Index]:
        """Indices before the last two axes of array `name`: of the batch and of the heads, as far as it has them."""
        return product(*(self.some(size) for size in self.arrays[name].shape[:-2]))

    def where(self, name: str, lead: Index) -> str:
        """What `lead` says of array `name`, in words: "sequence 0, head 1"."""
        places = [(axis, i) for axis, i in zip(axes(name, self.case["dims"]), lead, strict=False) if axis in PLACES]
        return _(", ").join(_(PLACES[axis]).format(i=i) for axis, i in places)

    def at(self, name: str, lead: Index, i: int) -> str:
        """What row `i` under `lead` of array `name` is, in words: "sequence 0, head 1, query x2"."""
        return _("{where}, query {query}").format(where=self.where(name, lead), query=self.query(i))

    def anchor(self, name: str, index: Index) -> str:
        """The name of a line on the page, noted so that tables can lead there."""
        self.anchors.add((name, *index))
        return "-".join([name, *map(str, index)])

    def line(self, name: str, index: Index, *parts: tuple[str, list[str]], label: str = "") -> Line:
        """A line that ends in element `index` of array `name`."""
        said = label or f"{name}[{', '.join(map(str, index))}]"
        return Line(said, tuple((r, tuple(t)) for r, t in parts), self.anchor(name, index), self.claims.get((name, index), ()))

    def sum_line(self, name: str, index: Index, pairs: list[tuple[Number, Number]], plus: list[Number] = (), label: str = "") -> Line:
        """Element `index` of array `name` as the sum of the products of `pairs`, and of the numbers `plus`."""
        return self.line(name, index, *summed(pairs, list(plus), self.number(name, index)), label=label)

    def table(self, name: str, lead: Index = (), caption: str = "", kind: str = "", masked: np.ndarray | None = None) -> Table:
        """The last two axes of array `name` under `lead` (or the last one, as a row), with names of tokens, heads or columns.

        masked: booleans of the same shape, True where a key is masked, so that no number is shown.
        """
        array = self.arrays[name][lead]
        names = axes(name, self.case["dims"])[-array.ndim :] if array.ndim else ()
        rows, columns = (self.labels(axis, size) for axis, size in zip(("", *names)[-2:], (1, *array.shape)[-2:], strict=True))
        body = []
        for i, row in enumerate(rows[:TOKENS]):
            cells = []
            for j in range(min(len(columns), 2 * TOKENS if self.whole else TOKENS)):
                index = (*lead, *((i, j) if array.ndim > 1 else (j,)))
                cells.append(self.cell(name, index, kind, masked is not None and bool(masked[index])))
            body.append((row, tuple([*cells, *[Cell("…")] * (len(columns) > len(cells))])))
        if len(rows) > TOKENS:
            body.append(("…", tuple(Cell("…") for _ in body[0][1])))
        heads = columns[: len(body[0][1])] if len(columns) <= len(body[0][1]) else [*columns[: len(body[0][1]) - 1], "…"]
        return Table(
            caption or self.where(name, lead),
            tuple(heads),
            tuple(body),
            _(CORNERS[names[-2:]]) if names[-2:] in CORNERS else "",
            "map" if kind else "numbers",
        )

    def cell(self, name: str, index: Index, kind: str = "", masked: bool = False) -> Cell:
        """One number in a table, which leads to its line where there is one, or to the line of its row."""
        place = next((place for place in ((name, *index), (name, *index[:-1])) if place in self.anchors), ())
        link = f"#{'-'.join(map(str, place))}" if place else ""
        if self.arrays[name].dtype == bool:
            return Cell(_("yes"), link) if self.arrays[name][index] else Cell(_("no"), link, "no")
        if masked:
            return Cell(_("masked"), link, "masked")
        step = STEPS_OF[kind](float(self.arrays[name][index]), self.largest(name)) if kind else ""
        return Cell(self.number(name, index).text, link, step, self.claims.get((name, index), ()))

    def largest(self, name: str) -> float:
        """The largest finite size in array `name`, or 1."""
        if name not in self.sizes:
            array = np.abs(self.arrays[name].astype(np.float64))
            self.sizes[name] = float(array[np.isfinite(array)].max(initial=0.0)) or 1.0
        return self.sizes[name]

    def labels(self, axis: str, size: int) -> list[str]:
        """Names along an axis: tokens, or numbers from 0."""
        if axis == "Lq":
            return [self.query(i) for i in range(size)]
        if axis in ("Lk", "Lc", "Lp"):
            return [self.key(j) for j in range(size)]
        if axis == "Ln":
            return [self.new_key(j) for j in range(size)]
        label = _(COUNTED[axis]) if axis in COUNTED else "{i}"
        return [label.format(i=i) for i in range(size)] if axis else [""]


CORNERS = {("Lq", "Lk"): N_("query ↓ key →"), ("Lq", "Lc"): N_("query ↓ key →")}
PLACES = {"B": N_("sequence {i}"), "H": N_("head {i}"), "H_kv": N_("head {i}")}
COUNTED = {"H": N_("head {i}"), "buckets": N_("bucket {i}")}
STEPS_OF = {  # a colour step from 0 to 10 by kind of map, from the value and the largest of the array; grey where it is not finite
    "weights": lambda value, largest: f"w{round(10 * min(max(value, 0.0), 1.0))}" if value == value else "masked",
    "scores": lambda value, largest: f"s{round(5 + 5 * max(-1.0, min(1.0, value / largest)))}" if value == value else "masked",
}


@lru_cache(1 << 12)
def named(token: str) -> str:
    """A token as a label: one line, not too long, visible even if it is empty."""
    name = printable(token) if token.strip() else repr(token)
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def summed(pairs: list[tuple[Number, Number]], plus: list[Number], result: Number) -> list[tuple[str, list[str]]]:
    """The parts of a line: the products of `pairs` and the numbers `plus` as terms, then the result, after "=" only if it holds."""
    terms = [f"{a.factor} × {b.factor}" for a, b in pairs] + [number.text for number in plus]
    total = sum((a.printed * b.printed for a, b in pairs), Decimal(0)) + sum((number.printed for number in plus), Decimal(0))
    exact = all(a.exact and b.exact for a, b in pairs) and all(number.exact for number in plus)
    if len(terms) > TERMS:
        terms = [*terms[:TERMS], more(len(terms) - TERMS)]
    return [("=" if exact else "≈", terms), (relation(exact, result, total), [result.text])]


def more(count: int) -> str:
    """What stands for `count` terms that are left out."""
    return _("… ({count} more)").format(count=count)


def relation(exact: bool, result: Number, value: Decimal) -> str:
    """ "=" where all numbers before it are `exact`, the result is, and their `value` is the result's; else "≈"."""
    return "=" if exact and result.exact and value == result.printed else "≈"


def beside(tables: list[Table]) -> list:
    """Tables side by side, where there is room; a single one alone."""
    return [Beside(tuple(tables))] if len(tables) > 1 else tables


def folds(titled: list[tuple[str, list]], first: bool = True) -> list[Fold]:
    """One fold for each (title, blocks), of which the first is open; a single one needs no folding away."""
    return [Fold(capital(title), tuple(blocks), first and i == 0) for i, (title, blocks) in enumerate(titled)]
