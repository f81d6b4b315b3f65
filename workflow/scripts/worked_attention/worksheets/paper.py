"""A worksheet and its key as pages, from the blocks that the page of a case is made of: the key has the numbers, the sheet has room."""

import math
from copy import copy
from dataclasses import replace
from decimal import localcontext
from itertools import takewhile

import numpy as np

from worked_attention.pages.blocks import Beside, Cell, Fold, Formula, Room, Section, Table, Words
from worked_attention.pages.case_page import STEPS, heading, whole_formula
from worked_attention.pages.language import _
from worked_attention.pages.numbers import EXACT
from worked_attention.pages.scores import masked_cells
from worked_attention.pages.work import Work
from worked_attention.stages.catalogue import CATALOGUE, axes
from worked_attention.worksheets.sheet import KEYS, Sheet

LINES = 5  # of room to work in, beside the boxes or below them


def paper(sheet: Sheet, key: bool) -> list[Section]:
    """The chapters of a worksheet, or of its key."""
    work = cut(sheet)
    first = first_used(sheet)
    with localcontext(EXACT):
        results = [asked(sheet, work, name, first[name], key) for name in sheet.boxed]
    return [question(sheet, work, key), *results, *([tolerances(sheet)] if key else [])]


def title(sheet: Sheet, key: bool) -> str:
    """The heading of a worksheet, or of its key."""
    said = _("Key {number}: {title}") if key else _("Worksheet {number}: {title}")
    return said.format(number=sheet.number, title=sheet.case["title"])


def cut(sheet: Sheet) -> Work:
    """The case laid open for the queries that are asked alone; inputs stay whole, for keys are made from them, too."""
    work = copy(sheet.work)
    rows = [name for name in work.arrays if "Lq" in axes(name, sheet.case["dims"]) and not name.startswith("x")]
    work.arrays = work.arrays | {name: work.arrays[name][..., : sheet.queries, :] for name in rows}
    work.own = work.own | {name: work.own[name][..., : sheet.queries, :] for name in rows if name in work.own}
    work.anchors, work.numbers = set(), {}
    return work


def question(sheet: Sheet, work: Work, key: bool) -> Section:
    """What to do."""
    count = min(sheet.queries, sheet.case["dims"]["Lq"])
    names = ", ".join(work.query(i) for i in range(count))
    who = _("Query: {names}.").format(names=names) if count == 1 else _("Queries: {names}.").format(names=names)
    if key:
        said = _("Below are the right numbers, each with its working; how far an answer may be off stands at the end.")
    else:
        said = _(
            "Work out each number that has a box. Round it to {digits} decimals, write it into its box, and go on with the rounded number. "
            "The small name in a box is its row in the answer sheet."
        ).format(digits=sheet.digits)
    return Section(_("The question"), "question", (Words(f"{who} {said}"), Formula(whole_formula(sheet.work))))


def given(sheet: Sheet, work: Work, names: list[str]) -> list:
    """Arrays that are given, side by side."""
    blocked, tables = masked_cells(work), []
    for name in names:
        for lead in np.ndindex(work.arrays[name].shape[:-2]):
            where = work.where(name, lead)
            tables.append(work.table(name, lead, f"{name}, {where}" if where else name, masked=blocked if name in KEYS else None))
    return [Beside(tuple(tables))] if tables else []


def first_used(sheet: Sheet) -> dict[str, list[str]]:
    """The given arrays that each asked one is the first to need, by its name."""
    found, seen = {}, set()
    for name in sheet.boxed:
        needed = sheet.needs([name])
        found[name] = [array for array in sheet.given if array in needed - seen]
        seen |= needed
    return found


def asked(sheet: Sheet, work: Work, name: str, arrays: list[str], key: bool) -> Section:
    """One asked array: the `arrays` given for it, its formula, its rule, and the boxes with room or with the working."""
    step = STEPS[name](work, name)
    rule = takewhile(lambda block: isinstance(block, Words | Formula), step)
    boxes = boxed(work, name, {index: cell for cell, index in sheet.boxed[name].items()}, key)
    working = [block for block in step if isinstance(block, Fold) and not all(isinstance(inner, Beside | Table) for inner in block.blocks)]
    below = [boxes, *working] if key else [Beside((boxes, Room(LINES)))]
    return Section(heading(name), name, (*given(sheet, work, arrays), *laid(sheet, work, name), *rule, *below))


def laid(sheet: Sheet, work: Work, name: str) -> list[Words]:
    """How the numbers that were worked out before are laid out for this array, where it takes them in another order."""
    orders = [made for made in CATALOGUE[name].made_from if made in ("q_heads", "k_heads", "concat") and sheet.copies_asked(made)]
    orders = [made for made in orders if sheet.case["kv_heads" if made == "k_heads" else "heads"] > 1]
    orders += ["v_heads"] * (name == "contexts" and sheet.copies_asked("v_heads") and sheet.case["kv_heads"] > 1)
    return [block for made in orders for block in STEPS[made](work, made) if isinstance(block, Words)]


def boxed(work: Work, name: str, cells: dict, key: bool) -> Table:
    """All of an array in one table: a box for each cell that is asked, and in a key the number in it."""
    blocked, rows = masked_cells(work) if name in KEYS else None, []
    for lead in np.ndindex(work.arrays[name].shape[:-2]):
        table, where = work.table(name, lead, masked=blocked), work.where(name, lead)
        for i, (label, row) in enumerate(table.rows):
            named = [replace(cell, kind="box", name=cells[at]) if (at := (*lead, i, j)) in cells else cell for j, cell in enumerate(row)]
            filled = named if key else [replace(cell, text="" if cell.name else cell.text, link="") for cell in named]
            rows.append((work.at(name, lead, i) if where else label, tuple(filled)))
    return Table("", table.columns, tuple(rows), table.corner, "boxes")


def tolerances(sheet: Sheet) -> Section:
    """How far an answer may be off, for who grades by hand."""
    rows = []
    for name, cells in sheet.boxed.items():
        step, whole = (max(float(off[index]) for index in cells.values()) for off in sheet.tolerances[name])
        rows.append((name, tuple(Cell(within(off, sheet.digits)) for off in (step, whole))))
    words = _(
        "Right is whoever rounds each product, exponential, root, sum and quotient to {digits} decimals and goes on with the rounded "
        "numbers, and whoever keeps more digits. So an answer may be off by the first number from what follows from the answers before it, "
        "which is how snakemake grades it, and by the second one from the number of this key."
    ).format(digits=sheet.digits)
    columns = (_("from the answers before it"), _("from this key"))
    return Section(_("Tolerances"), "tolerances", (Words(words), Table("", columns, tuple(rows), _("largest"), "numbers")))


def within(off: float, digits: int) -> str:
    """A tolerance, rounded up to one digit more than the numbers have."""
    if not off:
        return _("0: nothing is rounded")
    return f"{math.ceil(off * 10 ** (digits + 1) - 1e-6) / 10 ** (digits + 1):.{digits + 1}f}"
