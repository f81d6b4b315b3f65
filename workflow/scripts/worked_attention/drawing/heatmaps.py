"""Heatmaps of one case, and of a suite at a glance: NumPy in, matplotlib Figure out.

Rows are queries, columns are keys with their names on top. Masked cells are hatched and hold no digits. Everything is placed by
hand, in inches from the top left corner of the page: matplotlib's own layout would take several times as long as all the rest. In PNG
files words are outlines; in SVG files they stay text, which can be searched, copied and read aloud, and for which a browser finds a font
that has its letters.
"""

import math
import sys
import textwrap
import warnings
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from html import escape
from io import BytesIO
from typing import BinaryIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from PIL import Image

from worked_attention.drawing import letters
from worked_attention.drawing.letters import BOLD, REGULAR
from worked_attention.drawing.maps import SEQUENCES, Map, Scale
from worked_attention.drawing.style import FAMILIES, GREY, INK

warnings.filterwarnings("ignore", r"Glyph \d+ ")  # of letters that no font has; a figure says so itself, once
CASES = 24  # more of them are not drawn, and the figure says so
TOKENS_WITH_DIGITS, PAGE_WITH_DIGITS = 12, 24  # cells hold digits up to so many tokens and inches of panels side by side
PANEL, SMALL, NAMES = 2.6, 1.2, 1.8  # inches: longer side of a panel without digits, of one in the overview, and the names beside it
MARGIN, GAP, LINE = 0.2, 0.3, 0.19  # inches: page edge, space between panels, height of a line of text
EM, MIDDLE = 0.6 / 72, 0.36 / 72  # inches per point of size: width of a usual letter, half the height of a digit
BAR = 0.4  # inches: least height of a colour bar


def rounded(value: float, digits: int) -> str:
    """`value` with so many decimals, half away from zero on its exact decimal expansion, as in school; never "-0.000"."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if abs(value) >= 1e5:
        return f"{value:.1e}".replace("e+", "e")
    text = format(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP), "f")
    return text if any(digit in text for digit in "123456789") else text.lstrip("-")


@dataclass(frozen=True)
class Grid:
    """What the panels of a case have in common: names of `queries` and `keys`, a `cell`'s width and height, `digits` or None."""

    queries: list[str]
    keys: list[str]
    cell: tuple[float, float]
    digits: int | None = None

    @property
    def width(self) -> float:
        return len(self.keys) * self.cell[0]

    @property
    def height(self) -> float:
        return len(self.queries) * self.cell[1]

    @property
    def left(self) -> float:
        """Room for the names of the queries."""
        return letters.width(self.queries) + 0.12

    @property
    def upright(self) -> bool:
        """Whether the names of the keys are too wide for their columns."""
        return letters.width(self.keys) + 0.06 > self.cell[0]

    @property
    def above(self) -> float:
        """Room for the names of the keys."""
        return (letters.width(self.keys) if self.upright else 0.08) + 0.11


def _visible(text: str) -> str:
    """`text` with escapes for what cannot be drawn, such as line breaks."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _names(tokens: list[str], most: int = 12) -> list[str]:
    """Tokens as labels: on one line, not too long, visible even if empty."""
    names = [_visible(token) if token.strip(" ") else repr(token) for token in tokens]
    return [name if len(name) <= most else name[: most - 1] + "…" for name in names]


def _grid(case: dict, shown: list[Map], digits: int) -> Grid:
    """Cells wide enough for their digits, or small ones without."""
    heads, queries, keys = shown[0].values.shape[1:]
    rows, columns = shown[0].rows or case["tokens"], shown[0].columns or case["key_tokens"]
    names = _names(rows[:queries]), _names(columns[:keys])
    if max(queries, keys) <= TOKENS_WITH_DIGITS:
        longest = max((rounded(value, digits) for m in shown for value in m.values[~m.hatched].tolist() or [0.0]), key=len)
        width = max(0.46, letters.width([longest]) + 0.15)
        if heads * keys * width <= PAGE_WITH_DIGITS:
            return Grid(*names, (width, 0.4), digits)
    return Grid(*names, (min(0.3, PANEL / keys), min(0.3, PANEL / queries)))


@dataclass(frozen=True)
class Word:
    """A line of text on a page: where it is anchored (in inches), its size in points, and its looks."""

    x: float
    y: float
    text: str
    size: float
    anchor: float
    color: str
    bold: bool
    upright: bool

    def svg(self) -> str:
        """As an SVG element, in points."""
        x, y, down = 72 * self.x, 72 * self.y, 72 * MIDDLE * self.size
        turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if self.upright else ""
        anchor = {0: "", 0.5: ' text-anchor="middle"', 1: ' text-anchor="end"'}[self.anchor]
        looks = f' fill="{self.color}"' * (self.color != INK) + ' font-weight="bold"' * self.bold
        return f'<text x="{x:.1f}" y="{y + down:.1f}" font-size="{self.size:g}"{anchor}{looks}{turned}>{escape(self.text)}</text>'


class Sheet(Figure):
    """A figure whose words are told apart from it."""

    words: tuple[Word, ...] = ()
    outlines: tuple[PathPatch, ...] = ()


class Page:
    """A figure drawn on in inches, x to the right and y down from the top left corner."""

    def __init__(self) -> None:
        self.figure = Sheet(facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.autoscale(False)
        self.words: list[Word] = []

    def cut(self, width: float, height: float) -> Figure:
        """The figure, all words on it, cut to its size."""
        outlines = []
        for color in dict.fromkeys(word.color for word in self.words):
            lines = [_placed(word) for word in self.words if word.color == color]
            points, codes = (np.concatenate(parts) for parts in zip(*lines, strict=True))
            outlines.append(self.axes.add_artist(PathPatch(Outline(points, codes), facecolor=color, linewidth=0, zorder=3)))
        self.figure.words, self.figure.outlines = tuple(self.words), tuple(outlines)
        width, height = round(width, 2), round(height, 2)
        self.figure.set_size_inches(width, height)
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        return self.figure

    def text(self, x: float, y: float, text: str, size: float = 8, anchor: float = 0.5, font=REGULAR, color=INK, upright=False) -> None:
        """One line of text on the height y: from x (anchor 0), centred on x (0.5) or ending there (1); `upright`, it reads upwards."""
        self.words.append(Word(x, y, text, size, anchor, color, font is BOLD, upright))

    def paragraph(self, y: float, text: str, width: float, size: float, **looks) -> float:
        """Text from the left margin at `y`, broken to fit the page's `width`; returns where the next line goes."""
        for line in textwrap.wrap(_visible(text), int((width - 2 * MARGIN) / (EM * size))):
            self.text(MARGIN, y + LINE / 2, line, size, 0, **looks)
            y += LINE * max(1, size / 10)
        return y

    def panel(self, x: float, y: float, m: Map, lead: tuple[int, int], grid: Grid) -> None:
        """The heatmap of one sequence and head (`lead`), whose first cell starts at (x, y), names of the keys on top.

        Below a number that sources print wrongly stands, struck, what they print.
        """
        values, hatched, scale = m.values[lead], m.hatched[lead], m.scale
        colours = scale.rgba(values, hatched)
        width, height = grid.cell
        if max(values.shape) > TOKENS_WITH_DIGITS:
            extent = (x, x + grid.width, y + grid.height, y)
            self.axes.imshow(colours, extent=extent, aspect="auto", interpolation="nearest")
        else:
            self.axes.add_collection(
                PolyCollection(_boxes(x, y, values.shape, grid.cell), facecolors=colours.reshape(-1, 4), edgecolors="white")
            )
        self.hatch(x, y, hatched, grid.cell)
        if grid.digits is not None:
            for i, j in np.argwhere(~hatched):
                text = rounded(values[i, j].item(), grid.digits).replace("-", "−")
                ink = "white" if colours[i, j, :3] @ (0.299, 0.587, 0.114) < 0.5 else INK
                printed = m.printed.get((*lead, int(i), int(j)))
                middle, centre = x + (j + 0.5) * width, y + (i + 0.5) * height
                self.text(middle, centre - (0.08 if printed else 0), text, color=ink)
                if printed:
                    half = letters.width([printed], 7) / 2 + 0.02
                    self.text(middle, centre + 0.1, printed, 7, color=ink)
                    self.axes.plot((middle - half, middle + half), (centre + 0.1, centre + 0.1), color=ink, linewidth=0.8, zorder=4)
        for j in _some(grid.keys, width):
            if grid.upright:
                self.text(x + (j + 0.5) * width, y - 0.05, grid.keys[j], anchor=0, upright=True)
            else:
                self.text(x + (j + 0.5) * width, y - 0.1, grid.keys[j])

    def queries(self, x: float, y: float, grid: Grid) -> None:
        """Names of the queries, left of a panel that starts at (x, y)."""
        for i in _some(grid.queries, grid.cell[1]):
            self.text(x - 0.06, y + (i + 0.5) * grid.cell[1], grid.queries[i], anchor=1)

    def hatch(self, x: float, y: float, hatched: np.ndarray, cell: tuple[float, float]) -> None:
        """Hatching over the masked cells, one box for each run of them in a row."""
        boxes = []
        for i, row in enumerate(hatched):
            ends = np.flatnonzero(np.diff(row, prepend=False, append=False)).tolist()
            boxes += [
                ((x + a * cell[0], y + i * cell[1]), (x + b * cell[0], y + (i + 1) * cell[1]))
                for a, b in zip(ends[::2], ends[1::2], strict=True)
            ]
        if boxes:
            corners = [[(a, c), (b, c), (b, d), (a, d), (a, c)] for (a, c), (b, d) in boxes]
            outline = Outline.make_compound_path(*(Outline(box, closed=True) for box in corners))
            self.axes.add_patch(PathPatch(outline, facecolor="none", edgecolor="#999999", linewidth=0, hatch="/////"))

    def colour_bar(self, x: float, y: float, height: float, scale: Scale, digits: int) -> None:
        """The colours of `scale`, with the values at its ends and in the middle."""
        middle = (scale.low + scale.high) / 2
        ramp = np.linspace(scale.high, scale.low, 128)[:, None]
        extent = (x, x + 0.13, y + height, y)
        self.axes.imshow(scale.rgba(ramp, np.zeros_like(ramp, dtype=bool)), extent=extent, aspect="auto", interpolation="nearest")
        for value, at in ((scale.high, y), (middle, y + height / 2), (scale.low, y + height)):
            self.axes.plot((x + 0.13, x + 0.17), (at, at), color=GREY, linewidth=0.8)
            self.text(x + 0.21, at, rounded(value, digits).replace("-", "−"), 7.5, 0)


def _placed(word: Word) -> tuple[np.ndarray, np.ndarray]:
    """Points [n, 2] and codes [n] of the outline of a word on its page, in inches."""
    font = BOLD if word.bold else REGULAR
    points, codes = letters.outline(word.text, font)
    right, up = (points * word.size - [word.anchor * letters.width([word.text], word.size, font), MIDDLE * word.size]).T
    right, up = (-up, right) if word.upright else (right, up)
    return np.stack([word.x + right, word.y - up], axis=-1), codes


def _boxes(x: float, y: float, shape: tuple[int, int], cell: tuple[float, float]) -> np.ndarray:
    """Corners [Lq*Lk, 4, 2] of cells, row by row."""
    i, j = (index.reshape(-1, 1) for index in np.indices(shape))
    return np.stack([x + (j + [0, 1, 1, 0]) * cell[0], y + (i + [0, 0, 1, 1]) * cell[1]], axis=-1)


def _some(names: list[str], space: float) -> range:
    """Indices of the names that have room, each needing a line."""
    return range(0, len(names), math.ceil(0.12 / space))


def case_figure(case: dict, whole: list[Map], looks: dict) -> Figure:
    """Each map below the one before, one column per head; all again for each sequence of a batch.

    case: as in case.json. whole: its maps, as `chosen` gives them. looks: {digits, ...}, decimals in the cells.
    """
    shown = [m.first(SEQUENCES) for m in whole]
    page = Page()
    if not shown:
        width = 5.0
        return page.cut(width, _heading(page, case, "no scores and no weights", width) + MARGIN)
    scored = [m for m in shown if m.rows is None]  # maps of queries by keys have one grid
    grids = [_grid(case, [m] if m.rows else scored, looks["digits"]) for m in shown]
    left = MARGIN + LINE + max(grid.left for grid in grids)
    bar = left + max(m.values.shape[1] * (grid.width + GAP) for m, grid in zip(shown, grids, strict=True)) - GAP + 0.15
    width = max(4.8, bar + 0.25 + letters.width([rounded(m.scale.low, looks["digits"]) for m in shown]) + MARGIN)
    y = _heading(page, case, " and ".join(filter(None, [", ".join(m.name for m in shown[:-1]), shown[-1].name])), width)
    for sequence in range(shown[0].values.shape[0]):
        if case["dims"].get("B"):
            page.text(MARGIN, y + LINE, f"sequence {sequence}", 10, 0, BOLD)
            y += 1.5 * LINE
        for m, grid in zip(shown, grids, strict=True):
            page.text(left, y + LINE, m.name, 9, 0, BOLD)
            page.text(left + letters.width([m.name], 9, BOLD) + 0.12, y + LINE, m.formula, 8, 0, color=GREY)
            y += 3.5 * LINE + grid.above
            for head in range(m.values.shape[1]):
                x = left + head * (grid.width + GAP)
                page.text(x + grid.width / 2, y - grid.above - 1.3 * LINE, m.panel.format(head), 9)
                page.text(x + grid.width / 2, y - grid.above - 0.4 * LINE, m.sides[1], 7.5, color=GREY)
                page.panel(x, y, m, (sequence, head), grid)
            page.queries(left, y, grid)
            page.text(MARGIN + LINE / 2, y + grid.height / 2, m.sides[0], 7.5, color=GREY, upright=True)
            page.colour_bar(bar, y, max(grid.height, BAR), m.scale, looks["digits"])
            y += max(grid.height, BAR) + 0.1
    y += LINE
    for note in [*_notes(whole, shown), *_boxes_note(page)]:
        y = page.paragraph(y, note, width, 7.5, color=GREY)
    return page.cut(width, y + MARGIN)


def _heading(page: Page, case: dict, what: str, width: float) -> float:
    page.figure.set_label(_visible(f"{case['title']}: {what}"))
    y = page.paragraph(MARGIN, case["title"], width, 12, font=BOLD)
    y = page.paragraph(y, f"{case['suite']} / {case['name']}: {what}", width, 8.5)
    return page.paragraph(y, case["look"], width, 8.5, color=GREY)


def _notes(whole: list[Map], shown: list[Map]) -> list[str]:
    """What a reader must know to read the figure right: hatching, and what is not drawn."""
    notes = ["Hatched cells are masked."] if any(m.hatched.any() for m in shown) else []
    notes += ["Struck is what the source prints; above it stands what is right."] if any(m.printed for m in shown) else []
    missing: dict[str, None] = {}
    for m, all_of_it in zip(shown, whole, strict=True):
        words = ("sequences", "heads", "queries", "keys") if m.rows is None else ("sequences", "heads", "rows", "columns")
        axes = zip(words, m.values.shape, all_of_it.values.shape, strict=True)
        missing |= dict.fromkeys(f"the first {n} of {of} {axis}" for axis, n, of in axes if n < of)
    return notes + ([f"Drawn: {', '.join(missing)}."] if missing else [])


def _boxes_note(page: Page) -> list[str]:
    """A warning, also for the log, if the page has letters that no font of this machine has."""
    lacking = letters.undrawn(word.text for word in page.words)
    if not lacking:
        return []
    codes = ", ".join(f"U+{ord(letter):04X}" for letter in lacking[:8])
    note = f"No font of this machine has {codes}{' ...' if len(lacking) > 8 else ''}: boxes in the PNG, letters in the SVG."
    print(f"{page.figure.get_label()}: {note}", file=sys.stderr)
    return [note]


def overview_figure(suite: dict, cases: list[tuple[dict, Map]]) -> Figure:
    """The weights of many cases at a glance: one row per case, one column per head, one scale.

    suite: {name, description, ...}. cases: case.json of each, with its map of weights, of which the first sequence is drawn.
    """
    page = Page()
    rows = [(case, m.first(1)) for case, m in cases[:CASES]]
    heads = max((m.values.shape[1] for _, m in rows), default=1)
    grids = []
    for case, m in rows:
        queries, keys = m.values.shape[2:]
        cell = min(0.4, SMALL / keys), min(0.4, SMALL / queries)
        grids.append(Grid(_names(case["tokens"][:queries], 8), _names(case["key_tokens"][:keys], 8), cell, 2 if min(cell) >= 0.3 else None))
    left = MARGIN + NAMES + max((grid.left for grid in grids), default=0)
    bar = left + heads * (SMALL + GAP) - GAP + 0.15
    width = max(5.2, bar + 0.45 + MARGIN)
    page.figure.set_label(f"{suite['name']}: the weights at a glance")
    y = page.paragraph(MARGIN, page.figure.get_label(), width, 12, font=BOLD)
    y = page.paragraph(y, suite["description"], width, 8.5, color=GREY)
    y = (
        page.paragraph(
            y, "Rows are queries, columns are keys; one scale for all. The first sequence stands for a batch.", width, 8.5, color=GREY
        )
        + LINE
    )
    for head in range(heads):
        page.text(left + head * (SMALL + GAP) + SMALL / 2, y, f"head {head}", 9)
    for i, ((case, m), grid) in enumerate(zip(rows, grids, strict=True)):
        y += LINE + grid.above
        title = textwrap.wrap(_visible(case["title"]), int(NAMES / (EM * 8)))[:4]
        for n, (line, colour) in enumerate([(case["name"], INK), *((line, GREY) for line in title)]):
            page.text(MARGIN, y + grid.height / 2 + (n - len(title) / 2) * 0.15, line, 8, 0, color=colour)
        for head in range(m.values.shape[1]):
            page.panel(left + head * (SMALL + GAP), y, replace(m, printed={}), (0, head), grid)
        page.queries(left, y, grid)
        if i == 0:
            page.colour_bar(bar, y, SMALL, m.scale, 1)
        y += grid.height
    y += LINE
    if any(m.hatched.any() for _, m in rows):
        y = page.paragraph(y, "Hatched cells are masked.", width, 7.5, color=GREY)
    bare = [case["name"] for case, m in rows if m.scale.low]
    if bare:
        words = f"Without a softmax, so on scales of their own, around 0: {', '.join(bare)}."
        y = page.paragraph(y, words, width, 7.5, color=GREY)
    for note in _boxes_note(page):
        y = page.paragraph(y, note, width, 7.5, color=GREY)
    if len(cases) > CASES:
        y = page.paragraph(y, f"Drawn: the first {CASES} of {len(cases)} cases.", width, 7.5, color=GREY)
    return page.cut(width, y + MARGIN)


def write_png(figure: Figure, file: BinaryIO, dpi: int) -> None:
    """Write `figure` as PNG, the same bytes each time; its paper is opaque, so without the channel that says how much shines through."""
    figure.dpi = dpi
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).save(file, "png", dpi=(dpi, dpi), compress_level=3)


def write_svg(figure: Figure, file: BinaryIO) -> None:
    """Write `figure` as SVG, the same bytes each time, its label as title and its words as text."""
    words, outlines = (figure.words, figure.outlines) if isinstance(figure, Sheet) else ((), ())
    for outline in outlines:
        outline.set_visible(False)
    drawn = BytesIO()
    FigureCanvasSVG(figure).print_svg(drawn, metadata={"Title": figure.get_label(), "Date": None, "Creator": None})
    for outline in outlines:
        outline.set_visible(True)
    body, end, rest = drawn.getvalue().decode("utf-8").rpartition("</svg>")
    text = "\n".join([f'<g font-family="{FAMILIES}">', *(word.svg() for word in words), "</g>\n"]) if words else ""
    file.write((body + text + end + rest).encode("utf-8"))
