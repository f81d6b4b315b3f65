"""Heatmaps of one case, and of a suite at a glance: NumPy in, matplotlib Figure out.

Rows are queries, columns are keys with their names on top. Weights have one scale, 0 to 1, in every figure; scores have one scale per
case, symmetric around 0. Masked cells are hatched and hold no digits. Everything is placed by hand, in inches from the top left corner
of the page: automatic layout would take longer than all the drawing.
"""

import math
import textwrap
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import BinaryIO

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

matplotlib.rcdefaults()  # the same figures whatever a user's own matplotlibrc says
matplotlib.rcParams.update({"svg.hashsalt": "attention", "svg.fonttype": "path", "hatch.linewidth": 0.5})
FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")  # named by file, so that no other DejaVu of the machine is taken
REGULAR, BOLD = (FontProperties(fname=FONTS / file) for file in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"))

HEADS, SEQUENCES, TOKENS, CASES = 8, 2, 128, 24  # more of them are not drawn, and the figure says so
TOKENS_WITH_DIGITS, PAGE_WITH_DIGITS = 12, 16  # cells hold digits up to so many tokens and inches of panels side by side
PANEL, SMALL, NAMES = 2.6, 1.1, 1.8  # inches: longer side of a panel without digits, of one in the overview, and the names beside it
MARGIN, GAP, LINE = 0.2, 0.3, 0.19  # inches: page edge, space between panels, height of a line of text
EM = 0.62 / 72  # inches: width of a usual letter per point of its size
GREY, MASKED = "#555555", "#eeeeee"


def rounded(value: float, digits: int) -> str:
    """`value` with so many decimals, half away from zero on its exact decimal expansion, as in school; never "-0.000"."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if abs(value) >= 1e5:
        return f"{value:.1e}".replace("e+", "e")
    text = str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    return text if any(digit in text for digit in "123456789") else text.lstrip("-")


@dataclass(frozen=True)
class Scale:
    """From values to colours: `low` and `high` are the ends of the colour map."""

    colours: str
    low: float
    high: float

    def rgba(self, values: np.ndarray, blank: np.ndarray) -> np.ndarray:
        """Colours [..., 4] of `values` [...]; cells that are `blank`, NaN or infinite are grey."""
        with np.errstate(invalid="ignore"):
            colours = matplotlib.colormaps[self.colours]((values - self.low) / (self.high - self.low))
        colours[blank | ~np.isfinite(values)] = matplotlib.colors.to_rgba(MASKED)
        return colours


@dataclass(frozen=True)
class Map:
    """One kind of heatmap of a case: `values` and where they are `hatched`, both [B, H, Lq, Lk]."""

    name: str
    formula: str
    values: np.ndarray
    hatched: np.ndarray
    scale: Scale


def maps(arrays: dict[str, np.ndarray], looks: dict) -> list[Map]:
    """The scores and the weights of a case, as far as it has them.

    arrays: of `scaled`, `masked`, `keep` (boolean, True = attend) and `weights`, each [..., H, Lq, Lk], any float dtype.
    looks: {weights, scores}, names of colour maps. Masked is where `keep` is False or `masked` is -inf.
    """
    arrays = {name: a.astype(bool if name == "keep" else float).reshape(-1, *a.shape[-3:]) for name, a in arrays.items()}
    shape = next((a.shape for name, a in arrays.items() if name in ("scaled", "weights")), None)
    if shape is None:
        return []
    masked = ~np.broadcast_to(arrays.get("keep", True), shape) | np.isneginf(arrays.get("masked", 0.0))
    found = []
    if "scaled" in arrays:
        scores, name, formula = arrays["scaled"], "scaled scores", "scale × query · key"
        entering = arrays.get("masked", scores)
        if not np.array_equal(entering[~masked], scores[~masked], equal_nan=True):
            scores, name, formula = entering, "scores", "scaled, then softcap and bias"
        seen = np.abs(scores[~masked & np.isfinite(scores)])
        largest = seen.max(initial=0) or 1.0
        found.append(Map(name, formula, scores, masked, Scale(looks["scores"], -largest, largest)))
    if "weights" in arrays:
        weights = arrays["weights"]  # a convention for rows without any key may give masked cells weight: then it is shown
        found.append(Map("weights", "softmax of each row", weights, masked & (weights == 0), Scale(looks["weights"], 0.0, 1.0)))
    return found


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
        return _width(self.queries) + 0.08

    @property
    def upright(self) -> bool:
        """Whether the names of the keys are too wide for their columns."""
        return _width(self.keys) + 0.06 > self.cell[0]

    @property
    def above(self) -> float:
        """Room for the names of the keys."""
        return (_width(self.keys) if self.upright else 0.11) + 0.08


def _width(names: list[str], size: float = 8) -> float:
    return max(map(len, names)) * EM * size


def _names(tokens: list[str], most: int = 12) -> list[str]:
    """Tokens as labels: on one line, not too long, visible."""
    plain = ["".join(c if c.isprintable() else repr(c)[1:-1] for c in token) for token in tokens]
    return [name if len(name) <= most else name[: most - 1] + "…" for name in (p if p.strip() else repr(p) for p in plain)]


def _grid(case: dict, shown: list[Map], digits: int) -> Grid:
    """Cells wide enough for their digits, or small ones without."""
    heads, queries, keys = shown[0].values.shape[1:]
    names = _names(case["tokens"][:queries]), _names(case["key_tokens"][:keys])
    if max(queries, keys) <= TOKENS_WITH_DIGITS:
        longest = max(len(rounded(value, digits)) for m in shown for value in m.values[~m.hatched].tolist() or [0.0])
        width = max(0.46, longest * EM * 8 + 0.12)
        if heads * keys * width <= PAGE_WITH_DIGITS:
            return Grid(*names, (width, 0.4), digits)
    return Grid(*names, (min(0.3, PANEL / max(queries, keys)),) * 2)


class Page:
    """A figure drawn on in inches, x to the right and y down from the top left corner."""

    def __init__(self) -> None:
        self.figure = Figure(facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.autoscale(False)

    def cut(self, width: float, height: float) -> Figure:
        """The figure, cut to its size."""
        self.figure.set_size_inches(width, height)
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        return self.figure

    def text(self, x: float, y: float, text: str, size: float = 8, ha: str = "center", va: str = "center", font=REGULAR, **looks) -> None:
        """One line of text."""
        self.axes.text(x, y, text, fontproperties=font, fontsize=size, ha=ha, va=va, parse_math=False, **looks)

    def paragraph(self, y: float, text: str, width: float, size: float, **looks) -> float:
        """Text from the left margin at `y`, broken to fit the page's `width`; returns where the next line goes."""
        for line in textwrap.wrap(text, int((width - 2 * MARGIN) / (EM * size))):
            self.text(MARGIN, y + LINE / 2, line, size, "left", **looks)
            y += LINE * max(1, size / 10)
        return y

    def panel(self, x: float, y: float, values: np.ndarray, hatched: np.ndarray, scale: Scale, grid: Grid) -> None:
        """One heatmap whose first cell starts at (x, y), names of the keys on top."""
        colours = scale.rgba(values, hatched)
        width, height = grid.cell
        if grid.digits is None:
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
                ink = "white" if colours[i, j, :3] @ (0.299, 0.587, 0.114) < 0.5 else "black"
                self.text(x + (j + 0.5) * width, y + (i + 0.5) * height, text, color=ink)
        for j in _some(grid.keys, width):
            if grid.upright:
                self.text(x + (j + 0.5) * width, y - 0.05, grid.keys[j], va="bottom", rotation=90)
            else:
                self.text(x + (j + 0.5) * width, y - 0.1, grid.keys[j])

    def queries(self, x: float, y: float, grid: Grid) -> None:
        """Names of the queries, left of a panel that starts at (x, y)."""
        for i in _some(grid.queries, grid.cell[1]):
            self.text(x - 0.06, y + (i + 0.5) * grid.cell[1], grid.queries[i], ha="right")

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
            self.text(x + 0.21, at, rounded(value, digits).replace("-", "−"), 7.5, "left")


def _boxes(x: float, y: float, shape: tuple[int, int], cell: tuple[float, float]) -> np.ndarray:
    """Corners [Lq*Lk, 4, 2] of cells, row by row."""
    i, j = (index.reshape(-1, 1) for index in np.indices(shape))
    return np.stack([x + (j + [0, 1, 1, 0]) * cell[0], y + (i + [0, 0, 1, 1]) * cell[1]], axis=-1)


def _some(names: list[str], space: float) -> range:
    """Indices of the names that have room, each needing a line."""
    return range(0, len(names), math.ceil(0.12 / space))


def case_figure(case: dict, arrays: dict[str, np.ndarray], looks: dict) -> Figure:
    """Scaled scores above weights, one column per head; both again for each sequence of a batch.

    case: as in case.json. arrays: as for `maps`. looks: {digits, weights, scores} of config.yaml.
    """
    whole = maps(arrays, looks)
    shown = [Map(m.name, m.formula, *(a[:SEQUENCES, :HEADS, :TOKENS, :TOKENS] for a in (m.values, m.hatched)), m.scale) for m in whole]
    page = Page()
    if not shown:
        width = 5.0
        return page.cut(width, _heading(page, case, "no scores and no weights", width) + MARGIN)
    grid = _grid(case, shown, looks["digits"])
    sequences, heads = shown[0].values.shape[:2]
    left = MARGIN + LINE + grid.left
    bar = left + heads * (grid.width + GAP) - GAP + 0.15
    width = max(4.8, bar + 0.25 + _width([rounded(m.scale.low, looks["digits"]) for m in shown]) + MARGIN)
    y = _heading(page, case, " and ".join(m.name for m in shown), width)
    for sequence in range(sequences):
        if case["dims"].get("B"):
            page.text(MARGIN, y + LINE, f"sequence {sequence}", 10, "left", font=BOLD)
            y += 1.5 * LINE
        for m in shown:
            page.text(left, y + LINE, m.name, 9, "left", font=BOLD)
            page.text(left + _width([m.name], 10), y + LINE, m.formula, 8, "left", color=GREY)
            y += 3.5 * LINE + grid.above
            for head in range(heads):
                x = left + head * (grid.width + GAP)
                page.text(x + grid.width / 2, y - grid.above - 1.3 * LINE, f"head {head}", 9)
                page.text(x + grid.width / 2, y - grid.above - 0.4 * LINE, "key j", 7.5, color=GREY)
                page.panel(x, y, m.values[sequence, head], m.hatched[sequence, head], m.scale, grid)
            page.queries(left, y, grid)
            page.text(MARGIN + LINE / 2, y + grid.height / 2, "query i", 7.5, color=GREY, rotation=90)
            page.colour_bar(bar, y, grid.height, m.scale, looks["digits"])
            y += grid.height
    y += LINE
    for note in _notes(whole, shown):
        y = page.paragraph(y, note, width, 7.5, color=GREY)
    return page.cut(width, y + MARGIN)


def _heading(page: Page, case: dict, what: str, width: float) -> float:
    y = page.paragraph(MARGIN, case["title"], width, 12, font=BOLD)
    y = page.paragraph(y, f"{case['suite']} / {case['name']}: {what}", width, 8.5)
    return page.paragraph(y, case["look"], width, 8.5, color=GREY)


def _notes(whole: list[Map], shown: list[Map]) -> list[str]:
    """What a reader must know to read the figure right: hatching, and what is not drawn."""
    notes = ["Hatched cells are masked."] if any(m.hatched.any() for m in shown) else []
    axes = zip(("sequences", "heads", "queries", "keys"), shown[0].values.shape, whole[0].values.shape, strict=True)
    missing = [f"the first {n} of {all_of_them} {axis}" for axis, n, all_of_them in axes if n < all_of_them]
    return notes + ([f"Drawn: {', '.join(missing)}."] if missing else [])


def overview_figure(suite: dict, cases: list[dict], weights: list[Map], looks: dict) -> Figure:
    """The weights of many cases at a glance: one row per case, one column per head, one scale.

    suite: {name, description, ...}. cases: case.json of each, and beside it its `weights`, of which the first sequence is drawn.
    """
    page = Page()
    rows = list(zip(cases, weights, strict=True))[:CASES]
    drawn = [Map(m.name, m.formula, *(a[:1, :HEADS, :TOKENS, :TOKENS] for a in (m.values, m.hatched)), m.scale) for _, m in rows]
    heads = max((m.values.shape[1] for m in drawn), default=1)
    grids = []
    for (case, _), m in zip(rows, drawn, strict=True):
        queries, keys = m.values.shape[2:]
        side = SMALL / max(queries, keys)
        grids.append(Grid(_names(case["tokens"][:queries], 8), _names(case["key_tokens"][:keys], 8), (side, side)))
    left = MARGIN + NAMES + max((grid.left for grid in grids), default=0)
    bar = left + heads * (SMALL + GAP) - GAP + 0.15
    width = max(5.2, bar + 0.45 + MARGIN)
    y = page.paragraph(MARGIN, f"{suite['name']}: the weights at a glance", width, 12, font=BOLD)
    y = page.paragraph(y, suite["description"], width, 8.5, color=GREY)
    y = (
        page.paragraph(
            y, "Rows are queries, columns are keys; one scale for all. The first sequence stands for a batch.", width, 8.5, color=GREY
        )
        + LINE
    )
    for head in range(heads):
        page.text(left + head * (SMALL + GAP) + SMALL / 2, y, f"head {head}", 9)
    for i, ((case, _), m, grid) in enumerate(zip(rows, drawn, grids, strict=True)):
        y += LINE + grid.above
        title = textwrap.wrap(case["title"], int(NAMES / (EM * 8)))[:4]
        for n, (line, colour) in enumerate([(case["name"], "black"), *((line, GREY) for line in title)]):
            page.text(MARGIN, y + grid.height / 2 + (n - len(title) / 2) * 0.15, line, 8, "left", color=colour)
        for head in range(m.values.shape[1]):
            page.panel(left + head * (SMALL + GAP), y, m.values[0, head], m.hatched[0, head], m.scale, grid)
        page.queries(left, y, grid)
        if i == 0:
            page.colour_bar(bar, y, SMALL, m.scale, 1)
        y += grid.height
    y += LINE
    if len(cases) > CASES:
        y = page.paragraph(y, f"Drawn: the first {CASES} of {len(cases)} cases.", width, 7.5, color=GREY)
    return page.cut(width, y + MARGIN)


def write_png(figure: Figure, file: BinaryIO, dpi: int) -> None:
    """Write `figure` as PNG, the same bytes each time."""
    figure.dpi = dpi
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})


def write_svg(figure: Figure, file: BinaryIO) -> None:
    """Write `figure` as SVG, text as outlines, the same bytes each time."""
    FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None, "Creator": None})
