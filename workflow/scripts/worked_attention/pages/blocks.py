"""What a page is made of. The HTML templates and the Markdown writer each draw these, so that both say the same."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

SHEET = 90  # letters across a sheet of paper


@dataclass(frozen=True)
class Words:
    """A paragraph; `kind` note is set smaller, check has a line at its side."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Formula:
    """A formula in TeX."""

    tex: str


@dataclass(frozen=True)
class Printed:
    """What a source prints for a number: `right` is what it should have printed."""

    text: str
    right: str
    agrees: bool


@dataclass(frozen=True)
class Line:
    """One line of arithmetic: `label`, then parts (relation, terms), the last of which is the result. `anchor` is where links lead."""

    label: str
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    anchor: str = ""
    printed: tuple[Printed, ...] = ()


@dataclass(frozen=True)
class Lines:
    """Lines of arithmetic, one below the other."""

    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Cell:
    """A cell of a table: `link` is an anchor on the page or a relative address, `kind` its look (masked, box, a colour step, a verdict).

    name: what a worksheet calls it; without a text it is a box to write in.
    """

    text: str
    link: str = ""
    kind: str = ""
    printed: tuple[Printed, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose first row and first column are headers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    corner: str = ""
    kind: str = ""

    @property
    def wide(self) -> bool:
        """Whether a row has more letters, and gaps of three between its cells, than stand side by side on a sheet of paper."""
        return any(len(label) + sum(len(cell.text) + 3 for cell in cells) > SHEET for label, cells in self.rows)


@dataclass(frozen=True)
class Picture:
    """An SVG drawing, whose text says the same in words."""

    svg: str
    text: str


@dataclass(frozen=True)
class Room:
    """Room to write in, at least so many lines high."""

    lines: int


@dataclass(frozen=True)
class Beside:
    """Tables, drawings, and room to write in, side by side, where there is room for it."""

    blocks: tuple[Table | Picture | Room, ...]


@dataclass(frozen=True)
class Code:
    """Lines of a file as they are."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks that can be folded away under a title."""

    title: str
    blocks: tuple
    opened: bool = False


@dataclass(frozen=True)
class Part:
    """Blocks under a heading inside a section."""

    title: str
    blocks: tuple


@dataclass(frozen=True)
class Section:
    """A chapter of the page; `anchor` is its name in the page's table of contents."""

    title: str
    anchor: str
    blocks: tuple


@lru_cache(1 << 12)  # for HTML and for Markdown
def joined(terms: tuple[str, ...]) -> str:
    """Terms as a sum that can be broken before each sign, and nowhere else."""
    return " ".join(
        f"{sign}\N{NO-BREAK SPACE}{term}" if sign else term
        for sign, term in signed(term.replace(" ", "\N{NO-BREAK SPACE}") for term in terms)
    )


def signed(terms: Iterable[str]) -> list[tuple[str, str]]:
    """(sign, term) of a sum: "" first, then + or −; a product keeps the brackets of its first factor."""
    terms = list(terms)
    found = [("", terms[0].removeprefix("(").replace(")", "", 1) if terms[0].startswith("(−") else terms[0])] if terms else []
    for term in terms[1:]:
        found.append(("−", term[1:]) if term.startswith("−") and "×" not in term else ("+", term))
    return found
