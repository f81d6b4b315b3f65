"""Lines of arithmetic and rows of tables as HTML. They are nearly all of a page, and a template takes several times as long for them."""

from html import escape

from markupsafe import Markup

from worked_attention.pages.blocks import Cell, Line, Lines, Printed, Table, joined
from worked_attention.pages.language import _


def lines(block: Lines) -> Markup:
    """The lines, a paragraph each."""
    return Markup("\n".join(map(_line, block.lines)))


def rows(table: Table) -> Markup:
    """The rows of the table's body, each with its label as header."""
    return Markup("\n".join(f"<tr>{_label(label)}{''.join(map(_cell, cells))}</tr>" for label, cells in table.rows))


def _line(line: Line) -> str:
    anchor = f' id="{escape(line.anchor)}"' if line.anchor else ""
    *before, (relation, result) = line.parts
    parts = "".join(f" {escape(sign)} {escape(joined(terms))}" for sign, terms in before)
    printed = "".join(map(_claim, line.printed))
    return (
        f'<p class="l"{anchor}><b>{escape(line.label)}</b>{parts} <strong>{escape(relation)} {escape(joined(result))}</strong>{printed}</p>'
    )


def _label(label: str) -> str:
    return f'<th scope="row">{escape(label)}</th>' if label else "<td></td>"


def _cell(cell: Cell) -> str:
    kind = f' class="{escape(cell.kind)}"' if cell.kind else ""
    text = f'<a href="{escape(cell.link)}">{escape(cell.text)}</a>' if cell.link else escape(cell.text)
    name = f"<small>{escape(cell.name)}</small> " if cell.name else ""
    return f"<td{kind}>{name}{text}{''.join(map(_mark, cell.printed))}</td>"


def _claim(said: Printed) -> str:
    """What a source prints, behind a line: that it does, or struck, with what is right."""
    if not said.agrees:
        right = _("right: {text}").format(text=said.right)
        return f'{_struck(said)} <span class="tag">{escape(right)}</span>'
    printed = _("printed {text}").format(text=said.text)
    return f' <span class="tag">✓ {escape(printed)}</span>'


def _mark(said: Printed) -> str:
    """The same in a cell, where there is room for a mark only."""
    if not said.agrees:
        return _struck(said)
    printed = _("printed {text}").format(text=said.text)
    return f' <span class="tag" title="{escape(printed)}">✓</span>'


def _struck(said: Printed) -> str:
    label = _("printed, wrong")
    return f' <s aria-label="{escape(label)}">{escape(said.text)}</s>'
