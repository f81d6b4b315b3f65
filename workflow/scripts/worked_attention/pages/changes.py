"""What changed: a case beside the one that it extends, setting by setting and array by array."""

from dataclasses import replace

import numpy as np

from worked_attention.pages.blocks import Beside, Cell, Section, Table, Words
from worked_attention.pages.language import _, ngettext
from worked_attention.pages.settings import settings
from worked_attention.pages.work import Work


def changes(work: Work, base: Work) -> Section:
    """The settings that differ from those of `base`, the first stage that moves, and by how much each array does."""
    name, other = work.case["name"], base.case["name"]
    words = _("This case extends {other}. Everything that is not named here is the same.").format(other=other)
    rows = setting_rows(work, base)
    blocks: list = [
        Words(words),
        Table(_("Settings and inputs that differ"), (other, name), tuple(rows), _("what"))
        if rows
        else Words(_("No setting and no input differs.")),
    ]
    moved = [row for row in array_rows(work, base) if row]
    first = next(((stage, label, cells) for stage, label, cells, moves in moved if moves), None)
    if first is None:
        blocks.append(Words(_("No computed array moves.")))
    else:
        stage, label, cells = first
        words = _("The first stage that moves is {stage}, in {array}: {change}.")
        blocks.append(Words(words.format(stage=stage, array=label, change=cells[0].text)))
        rows = tuple(row[1:3] for row in moved)
        blocks.append(Table(_("How far each array moves"), (_("largest change"), _("at"), other, name), rows, _("array")))
    if "weights" in work.arrays and work.arrays["weights"].shape == base.arrays["weights"].shape and work.whole:
        lead = (0,) * (work.arrays["weights"].ndim - 2)
        words = _("weights of {case}, {where}") if lead else _("weights of {case}")
        captions = [words.format(case=one.case["name"], where=work.where("weights", lead)) for one in (base, work)]
        there, here = (one.table("weights", lead, said, "weights") for one, said in zip((base, work), captions, strict=True))
        blocks.append(Beside((without_links(there), here)))
    return Section(_("What changed"), "changed", tuple(blocks))


def without_links(table: Table) -> Table:
    """The table of another page, whose lines are not on this one."""
    rows = tuple((label, tuple(replace(cell, link="") for cell in cells)) for label, cells in table.rows)
    return replace(table, rows=rows)


def setting_rows(work: Work, base: Work) -> list[tuple[str, tuple[Cell, ...]]]:
    """A row for each setting that differs, and for each parameter that one of the two lacks or has with other numbers."""
    here, there = dict(settings(work.case)), dict(settings(base.case))
    rows = [
        (key, (Cell(there.get(key, "–")), Cell(here.get(key, "–"))))
        for key in dict.fromkeys([*there, *here])
        if here.get(key) != there.get(key)
    ]
    inputs = dict.fromkeys([*base.case["arrays"]["parameters"], *work.case["arrays"]["parameters"]])
    for name in inputs:
        if name not in work.arrays or name not in base.arrays:
            rows.append((name, tuple(Cell(_("given") if name in one.arrays else "–") for one in (base, work))))
        elif not same(work.arrays[name], base.arrays[name]):
            rows.append((name, tuple(Cell(str(list(one.arrays[name].shape))) for one in (base, work))))
    return rows


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def array_rows(work: Work, base: Work) -> list[tuple[str, str, tuple[Cell, ...], bool]]:
    """(stage, array, cells, whether it moves) of every computed array of either case, in the order of the stages."""
    rows = []
    for stage in [stage for stage in work.case["arrays"] if stage != "parameters"]:
        for name in dict.fromkeys([*base.case["arrays"][stage], *work.case["arrays"][stage]]):
            rows.append((stage, name, *array_row(work, base, name)))
    return rows


def array_row(work: Work, base: Work, name: str) -> tuple[tuple[Cell, ...], bool]:
    """The cells of one array: by how much it moves at most, where, from which number to which."""
    if name not in base.arrays or name not in work.arrays:
        said = _("new here") if name in work.arrays else _("no longer there")
        return (Cell(said), Cell(""), Cell(""), Cell("")), True
    here, there = (one.arrays[name].astype(np.float64) for one in (work, base))
    if here.shape != there.shape:
        return (Cell(_("another shape")), Cell(""), Cell(str(list(there.shape))), Cell(str(list(here.shape)))), True
    with np.errstate(invalid="ignore"):
        difference = np.abs(here - there)
    difference = np.where((here == there) | (np.isnan(here) & np.isnan(there)), 0.0, difference)
    difference = np.where(np.isnan(difference), np.inf, difference)
    at = tuple(int(i) for i in np.unravel_index(difference.argmax(), difference.shape))
    if not difference[at]:
        return (Cell(_("does not move")), Cell(""), Cell(""), Cell("")), False
    if work.arrays[name].dtype == bool:
        ends = tuple(Cell(_("seen") if one.arrays[name][at] else _("blocked")) for one in (base, work))
        cells = int((here != there).sum())
        return (Cell(ngettext("{n} cell", "{n} cells", cells).format(n=cells)), Cell(str(list(at))), *ends), True
    ends = tuple(Cell(one.number(name, at).text) for one in (base, work))
    return (Cell(work.free(float(difference[at])).text), Cell(str(list(at))), *ends), True
