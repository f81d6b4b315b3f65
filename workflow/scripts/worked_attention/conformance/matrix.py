"""The conformance matrix: every case, every implementation and every dtype, as facts, as a table and as a picture."""

import csv
import io
from xml.sax.saxutils import escape, quoteattr

from worked_attention.drawing.style import FAMILIES, GREY
from worked_attention.references.registry import packages

LOOKS = {  # colour and sign of each verdict
    "pass": ("#b7dfb9", "✓"),
    "convention": ("#f6e3a1", "c"),
    "undecided": ("#d9d2e9", "?"),
    "unsupported": ("#eeeeee", "–"),
    "fail": ("#e8968c", "✗"),
    "not installed": ("#ffffff", ""),
}
WORDS = {"zero": "0", "nan": "NaN", "uniform": "mean of V", "other": "other"}
SHORT = {"float64": "64", "float32": "32", "float16": "16", "bfloat16": "b16"}
CONTRACTS = {  # sign of a pass in another arithmetic than the dtype, and in words; see referee.bounds
    "float32": ("32", "in float32"),
    "float32 accumulation": ("✓", "sums in float32"),
    "weights stored in half": ("w", "weights in half"),
    "scores and weights stored in half": ("s", "scores in half"),
    "queries and keys scaled in half": ("q", "scaled in half"),
    "sums in half": ("h", "sums in half"),
    "none": ("?", "in none of these"),
}
ROW, CELL, LABEL, HEAD, MARGIN = 18, 29, 250, 60, 12  # pixels: height of a row, width of a cell and of the labels, height of the head
WIDE = CELL * len(SHORT)


def verdicts(cells: dict[str, dict], installed: dict[str, str], libraries: dict[str, list[str]]) -> dict:
    """{versions, fully_masked_row, cases} from the cells, the versions of the installed packages, and the references by library.

    cells: by suite, case, implementation and dtype {verdict, and contract, empty_row, reason where there is one}. fully_masked_row: for
    each implementation what it makes of a query without keys, each word once. cases: [{suite, case, cells}].
    """
    names = [f"{library}.{name}" for library, members in libraries.items() for name in members]
    rows = {}
    for name in names:
        each = [cell for suite in cells.values() for case in suite.values() for cell in case.get(name, {}).values()]
        rows[name] = sorted({cell["empty_row"] for cell in each if "empty_row" in cell})
    versions = {package: installed.get(package) for library in libraries for package in packages(library)}
    cases = [{"suite": suite, "case": case, "cells": found} for suite in cells for case, found in cells[suite].items()]
    return {"versions": versions, "fully_masked_row": rows, "cases": cases}


def table(found: dict) -> str:
    """The matrix as CSV, one line for each case, implementation and dtype."""
    columns = ["suite", "case", "implementation", "version", "dtype", "verdict", "contract", "empty_row", "reason"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for case in found["cases"]:
        dtypes = list(next(iter(case["cells"].values()), {}))
        for name in found["fully_masked_row"]:
            where = {"suite": case["suite"], "case": case["case"], "implementation": name}
            for dtype in dtypes:
                cell = case["cells"].get(name, {}).get(dtype, {"verdict": "not installed"})
                writer.writerow({**where, "version": found["versions"][name.split(".")[0]] or "", "dtype": dtype, **cell})
    return text.getvalue()


def patterns(found: dict) -> list[tuple[dict, list[dict]]]:
    """(cells, cases) for each suite and way in which implementations differ; cases in which all do the same are left out."""
    groups: dict[tuple, list[dict]] = {}
    for case in found["cases"]:
        cells = [(name, dtype, cell) for name, row in case["cells"].items() for dtype, cell in row.items()]
        if len({cell["verdict"] for _, _, cell in cells}) > 1:
            said = tuple((name, dtype, cell["verdict"], cell.get("contract")) for name, dtype, cell in cells)
            groups.setdefault((case["suite"], said), []).append(case)
    return [(cases[0]["cells"], cases) for cases in groups.values()]


def picture(found: dict) -> str:
    """The matrix as SVG: first the fully masked row, then a row for each of the `patterns`; what a cell means is its tooltip."""
    names = list(found["fully_masked_row"])
    parts, y = [], MARGIN
    for i, name in enumerate(names):
        version = found["versions"][name.split(".")[0]] or "not installed"
        parts += [_text(_left(i) + WIDE / 2, y + 14, name, bold=True), _text(_left(i) + WIDE / 2, y + 30, version, grey=True)]
        parts += [_text(_left(i, j) + CELL / 2, y + 50, word, grey=True) for j, word in enumerate(SHORT.values())]
    y += HEAD
    parts.append(_text(MARGIN, y + 13, "A fully masked row becomes", bold=True, middle=False))
    for i, words in enumerate(found["fully_masked_row"].values()):
        word = "as the case says" if len(words) > 1 else WORDS[words[0]] if words else "–"
        colour, tip = "#dbe7f3" if words else "#ffffff", "weights, or contexts, of a query that sees no key"
        parts += [
            _box(_left(i), y, WIDE, colour, tip),
            _text(_left(i) + WIDE / 2, y + 12, word),
        ]
    y += 2 * ROW
    suite, rows = None, patterns(found)
    for cells, cases in rows:
        if cases[0]["suite"] != suite:
            suite = cases[0]["suite"]
            parts.append(_text(MARGIN, y + 13, suite, bold=True, middle=False))
            y += ROW
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        said = ", ".join(case["case"] for case in cases)
        parts.append(_text(MARGIN + 10, y + 13, f"{cases[0]['case']}{more}", middle=False, tip=said))
        for i, name in enumerate(names):
            for j, dtype in enumerate(SHORT):
                if dtype in cells.get(name, {}):
                    parts += _cell(_left(i, j), y, f"{name} in {dtype}", dtype, cells[name][dtype])
        y += ROW
    y += ROW
    legend = [(*looks, word) for word, looks in LOOKS.items() if word != "not installed"]
    legend += [(LOOKS["pass"][0], sign, words) for sign, words in CONTRACTS.values() if sign != "✓"]
    for i, (colour, sign, words) in enumerate(legend):
        parts += [_box(_left(i), y, CELL, colour, words), _text(_left(i) + CELL / 2, y + 12, sign)]
        parts.append(_text(_left(i) + CELL + 4, y + 12, words, middle=False, grey=True))
    parts.append(_text(MARGIN, y + 13, "More in the tooltips and the CSV", middle=False, grey=True))
    y += ROW
    drawn = sum(len(cases) for _, cases in rows)
    told = (
        f"Rows: {len(rows)}, of {drawn} cases; those of a suite with the same verdicts share one. Left out: {len(found['cases']) - drawn}, "
    )
    told += "in which all do the same."
    parts.append(_text(MARGIN, y + 13, told, middle=False, grey=True))
    width, height = _left(max(len(names), len(legend))) + MARGIN, y + ROW + MARGIN
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f'{start} font-family="{FAMILIES}" font-size="11">', _background(), *parts, "</svg>"]) + "\n"


def _cell(x: int, y: int, where: str, dtype: str, cell: dict) -> list[str]:
    colour, sign = LOOKS[cell["verdict"]]
    if cell["verdict"] == "pass" and cell["contract"] != dtype:
        sign = CONTRACTS[cell["contract"]][0]
    tip = ", ".join(cell[key] for key in ("verdict", "contract", "reason") if key in cell)
    return [_box(x, y, CELL, colour, f"{where}: {tip}"), _text(x + CELL / 2, y + 12, sign)]


def _left(i: int, j: int = 0) -> int:
    return MARGIN + LABEL + i * (WIDE + 6) + j * CELL


def _background() -> str:
    return '<rect width="100%" height="100%" fill="white"/>'


def _box(x: int, y: int, width: int, colour: str, tip: str) -> str:
    size = f'x="{x}" y="{y}" width="{width - 2}" height="{ROW - 2}"'
    return f'<rect {size} fill={quoteattr(colour)} stroke="#bbbbbb" stroke-width="0.5"><title>{escape(tip)}</title></rect>'


def _text(x: float, y: float, words: str, bold: bool = False, grey: bool = False, middle: bool = True, tip: str = "") -> str:
    looks = ' font-weight="bold"' * bold + f' fill="{GREY}"' * grey + ' text-anchor="middle"' * middle + ' pointer-events="none"' * middle
    return f'<text x="{x:g}" y="{y}"{looks}>{f"<title>{escape(tip)}</title>" if tip else ""}{escape(words)}</text>'
