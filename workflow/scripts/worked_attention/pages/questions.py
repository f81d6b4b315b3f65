"""The page of one question: its words with the numbers that they ask for, its tables and drawings, and the cases that they come from."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from worked_attention.cases.questions import BARE, COUNTED, Asked, Place, pieces, place
from worked_attention.pages import drawings
from worked_attention.pages.blocks import Cell, Code, Formula, Picture, Section, Table, Words
from worked_attention.pages.case_page import others
from worked_attention.pages.contexts import vector
from worked_attention.pages.flow import flow
from worked_attention.pages.language import N_, _
from worked_attention.pages.weights import MAPS
from worked_attention.pages.work import Work
from worked_attention.stages.catalogue import CATALOGUE
from worked_attention.stages.weights import row_entropy

ON_NUMBERS: dict[str, Callable[..., float]] = {  # a word on float64 arrays [..., n]
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "largest": lambda x: x.max(),
    "smallest": lambda x: x.min(),
    "variance": lambda x: x.var(),
    "entropy": lambda p: row_entropy(p).mean(),  # of each row, their mean
    "length": lambda x: np.sqrt((x * x).sum()),
    "share of others": lambda p: 1 - np.einsum("...ii->...i", p).mean(),
    "largest difference": lambda x, y: np.abs(x - y).max(),
}
ON_SHAPES: dict[str, Callable[[dict, Place], int]] = {  # a word on a case and one of its arrays
    "numbers": lambda case, p: prod(case["shapes"][p.array]),
    "multiply-adds": lambda case, p: case["multiply_adds"][CATALOGUE[p.array].stage],
    "parameters": lambda case, p: case["parameter_count"],
    "bytes": lambda case, p: sum(case["bytes"].values()),
}
ARCS = {  # what arcs are said to show where there is no case
    "convolution": N_("A convolution of width 3: in one layer a token hears its neighbours and itself."),
    "recurrence": N_("A recurrence: a token hears the one before it, step by step."),
}


@dataclass(frozen=True)
class Sources:
    """What a page takes its numbers from.

    work: a case laid open, by suite and case. counted: resolved cases that are never computed, by name. comparison: of a case, by suite and
    case. refused: the line that says why a suite is refused. judged: what the judge says of a file, for a case.
    """

    work: Callable[[str, str], Work]
    counted: dict[str, dict]
    comparison: Callable[[str, str], dict]
    refused: Callable[[str], str]
    judged: Callable[[str, Place], str]

    def case(self, p: Place) -> dict:
        """The resolved case."""
        return self.counted[p.case] if p.suite == COUNTED else self.work(p.suite, p.case).case


def question_sections(question: dict, sources: Sources) -> list[Section]:
    """The chapters of a question's page: the answer, and the cases that it is taken from. question: as `load_questions` gives it."""
    blocks = [made for block in question["blocks"] for made in draw(block, sources)]
    places = dict.fromkeys((p.suite, p.case) for p in question["places"])
    rows = []
    for suite, name in places:
        if suite == COUNTED:
            rows.append((f"{suite} / {name}", (Cell(sources.counted[name]["title"]), Cell(_("counted from its sizes, never computed")))))
        else:
            link = f"../{suite}/pages/{name}.html"
            rows.append((f"{suite} / {name}", (Cell(sources.work(suite, name).case["title"], link), Cell(_("every multiply-add")))))
    made = [Section(_("The answer"), "answer", tuple(blocks))]
    if rows:
        table = Table(_("Cases of this page"), (_("case"), _("what there is")), tuple(rows), _("name"))
        made.append(Section(_("Where the numbers come from"), "cases", (table,)))
    if question["source"]:
        made.append(Section(_("What it answers"), "source", tuple(Words(part) for part in question["source"].split("; "))))
    return made


def draw(block: str | dict, sources: Sources) -> list:
    """The blocks of a page that one block of a question becomes."""
    if isinstance(block, str):
        return [Words(filled(block, sources))]
    ((kind, value),) = block.items()
    return BLOCKS[kind](value, sources)


def filled(text: str, sources: Sources) -> str:
    """`text` with its questions answered."""
    return "".join(answer(piece, sources) if isinstance(piece, Asked) else piece for piece in pieces(text))


def answer(ask: Asked, sources: Sources) -> str:
    """One number, row, size or shape as text."""
    first = ask.places[0]
    case = sources.case(first)
    if ask.word == "shape":
        return f"[{', '.join(map(str, case['shapes'][first.array]))}]"
    if ask.word in ON_SHAPES:
        return f"{ON_SHAPES[ask.word](case, first):,}"
    if ask.word in case["dims"]:
        return f"{case['dims'][ask.word]:,}"
    work = sources.work(first.suite, first.case)
    if ask.word == "":
        whole = len(first.index) == work.arrays[first.array].ndim
        return work.number(first.array, first.index).text if whole else vector(work.row(first.array, first.index))
    arrays = [sources.work(p.suite, p.case).arrays[p.array][p.index].astype(np.float64) for p in ask.places]
    if ask.word == "rank":
        return str(np.linalg.matrix_rank(arrays[0]))
    return work.free(float(ON_NUMBERS[ask.word](*arrays))).text


def table(text: str, sources: Sources) -> list:
    """The numbers of an array, of one sequence and head, in the colours of a map where there are weights or scores."""
    p = place(text)
    work = sources.work(p.suite, p.case)
    lead = p.index + (0,) * (work.arrays[p.array].ndim - 2 - len(p.index))
    kind = {"weights": MAPS[work.case["softmax"]], "dropped": "weights"}.get(p.array, "scores" if p.array in SCORES else "")
    blocked = ~np.broadcast_to(work.arrays["keep"], work.arrays[p.array].shape) if kind and "keep" in work.arrays else None
    where = work.where(p.array, lead)
    caption = _("{array} of {title}").format(array=p.array, title=work.case["title"]) + (f", {where}" if where else "")
    return [work.table(p.array, lead, caption, kind, blocked)]


SCORES = ("qk", "scaled", "capped", "masked", "bias")


def numbers(said: dict, sources: Sources) -> list:
    """A table whose cells ask."""
    rows = tuple(
        (label.replace(" ", "\N{NO-BREAK SPACE}"), tuple(Cell(filled(cell, sources)) for cell in cells))
        for label, cells in said["rows"].items()
    )
    return [Table(said.get("caption", ""), tuple(said["columns"]), rows)]


def arcs(value: str, sources: Sources) -> list:
    """Which token hears which."""
    if value in BARE:
        return [drawings.arcs([str(i + 1) for i in range(5)], drawings.BARE[value], _(ARCS[value]))]
    work = sources.work(*value.split("/"))
    names = [work.query(i) for i in range(work.case["dims"]["Lq"])]
    said = _("{title}: in one layer a token hears every one that it may look at.").format(title=work.case["title"])
    return [drawings.arcs(names, drawings.connected(work), said)]


def picture(drawn: Callable[[Work], Picture]) -> Callable[[str, Sources], list]:
    """A drawing of one case."""
    return lambda value, sources: [drawn(sources.work(*value.split("/")))]


BLOCKS: dict[str, Callable] = {
    "formula": lambda value, sources: [Formula(value)],
    "table": table,
    "numbers": numbers,
    "arcs": arcs,
    "grid": picture(drawings.grid),
    "pooling": picture(drawings.pooling),
    "flow": picture(flow),
    "boxes": picture(drawings.boxes),
    "geometry": picture(drawings.geometry),
    "against": lambda value, sources: list(others(sources.comparison(*value.split("/"))).blocks),
    "refused": lambda value, sources: [Code(value), Words(sources.refused(value), "bad")],
    "submission": lambda value, sources: [Code(value["code"]), Words(sources.judged(value["code"], place(value["of"])), "bad")],
}
