"""A page as Markdown: the same blocks, for code hosts and for diffs. What comes from a suite cannot become markup."""

import re
from functools import lru_cache, singledispatch

from worked_attention.pages.blocks import (
    Beside,
    Cell,
    Code,
    Fold,
    Formula,
    Lines,
    Part,
    Picture,
    Printed,
    Room,
    Section,
    Table,
    Words,
    joined,
)
from worked_attention.pages.language import _

BOX = "\\_" * 8  # to write in
MARKUP = str.maketrans({letter: "\\" + letter for letter in "\\`*_{}[]<>()#+!|~&$@:"})


@lru_cache(1 << 16)
def escaped(text: str) -> str:
    """`text` with a backslash before everything that could be markup, or a link."""
    return text.translate(MARKUP)


def markdown(title: str, look: str, sections: list[Section]) -> str:
    """The whole page."""
    head = [f"# {escaped(title)}", *([escaped(look)] if look else [])]
    return "\n\n".join(head + [drawn(section) for section in sections]) + "\n"


def several(blocks: tuple) -> str:
    return "\n\n".join(drawn(block) for block in blocks)


@singledispatch
def drawn(block: object) -> str:
    """One block; a kind that is not known here raises TypeError."""
    raise TypeError(f"Markdown has no form of {type(block).__name__}")


@drawn.register
def _section(block: Section) -> str:
    return f"## {escaped(block.title)}\n\n{several(block.blocks)}"


@drawn.register
def _part(block: Part) -> str:
    return f"### {escaped(block.title)}\n\n{several(block.blocks)}"


@drawn.register
def _fold(block: Fold) -> str:
    return f"**{escaped(block.title)}**\n\n{several(block.blocks)}"


@drawn.register
def _beside(block: Beside) -> str:
    return several(block.blocks)


@drawn.register
def _words(block: Words) -> str:
    return escaped(block.text)


@drawn.register
def _formula(block: Formula) -> str:
    return f"$$\n{block.tex}\n$$"


@drawn.register
def _code(block: Code) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
    return f"{fence}\n{block.text.rstrip()}\n{fence}"


@drawn.register
def _picture(block: Picture) -> str:
    return f"*{escaped(block.text)}*"


@drawn.register
def _lines(block: Lines) -> str:
    lines = []
    for line in block.lines:
        parts = " ".join(f"{relation} {escaped(joined(terms))}" for relation, terms in line.parts)
        lines.append(f"- {escaped(line.label)} {parts}{claims(line.printed)}")
    return "\n".join(lines)


@drawn.register
def _table(block: Table) -> str:
    rows = [[escaped(block.corner), *map(escaped, block.columns)], ["---"] * (1 + len(block.columns))]
    rows += [[escaped(label), *(cell(one) for one in cells)] for label, cells in block.rows]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{escaped(block.caption)}\n\n{table}" if block.caption else table


@drawn.register
def _room(block: Room) -> str:
    return "\\\n".join(["\N{NO-BREAK SPACE}"] * block.lines)


def cell(one: Cell) -> str:
    text = escaped(one.text)
    if one.name:
        text = f"{escaped(one.name)}: {text or BOX}"
    return (f"[{text}]({one.link})" if one.link and not one.link.startswith("#") else text) + (claims(one.printed) if one.printed else "")


def claims(printed: tuple[Printed, ...]) -> str:
    """What sources print: ✓, or struck with the right value."""
    right, wrong = _("printed {text}"), _("right: {text}")
    return "".join(
        f" ✓ {right.format(text=said.text)}" if said.agrees else f" ~~{said.text}~~ {wrong.format(text=said.right)}" for said in printed
    )
