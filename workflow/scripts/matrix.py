"""The conformance matrix: every case and every implementation, as facts, as a table and as a picture."""

import csv
import io
from xml.sax.saxutils import escape, quoteattr

from references import LIBRARIES, packages

LOOKS = {  # colour and sign of each verdict
    "pass": ("#b7dfb9", "✓"),
    "convention": ("#f6e3a1", "c"),
    "unsupported": ("#eeeeee", "–"),
    "fail": ("#e8968c", "✗"),
    "not installed": ("#ffffff", ""),
}
WORDS = {"zero": "0", "nan": "NaN", "uniform": "mean of V", "other": "other"}
SHORT = {  # dtypes and contracts
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32 accumulation": "f32 sums",
    "weights stored in half": "half weights",
    "scores and weights stored in half": "half scores",
    "queries and keys scaled in half": "half q, k",
    "none": "no contract",
}
ROW, WIDE, LABEL, HEAD, MARGIN = 18, 116, 280, 44, 12  # pixels: height of a row, width of a column and of the labels, height of a head


def verdicts(comparisons: list[dict], installed: dict[str, str]) -> dict:
    """{versions, fully_masked_row, cases} from the comparison of every case and the versions of the installed packages.

    fully_masked_row: for each implementation what it makes of a query without keys, each word once. cases: [{suite, case, dtype,
    cells: {implementation: {verdict, and contract, empty_row, reason where there is one}}}].
    """
    names = [f"{library}.{name}" for library, members in LIBRARIES.items() for name in members]
    kept = ("verdict", "contract", "empty_row", "reason")
    cases = []
    for comparison in comparisons:
        there = {name: comparison["references"][name] for name in names if name in comparison["references"]}
        cells = {name: {key: result[key] for key in kept if key in result} for name, result in there.items()}
        cases.append({"suite": comparison["suite"], "case": comparison["case"], "dtype": comparison["dtype"], "cells": cells})
    rows = {name: sorted({case["cells"].get(name, {}).get("empty_row") for case in cases} - {None}) for name in names}
    versions = {package: installed.get(package) for library in LIBRARIES for package in packages(library)}
    return {"versions": versions, "fully_masked_row": rows, "cases": cases}


def table(found: dict) -> str:
    """The matrix as CSV, one line for each case and implementation."""
    columns = ["suite", "case", "dtype", "implementation", "version", "verdict", "contract", "empty_row", "reason"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for case in found["cases"]:
        where = {key: case[key] for key in ("suite", "case", "dtype")}
        for name, cell in case["cells"].items():
            writer.writerow({**where, "implementation": name, "version": found["versions"][name.split(".")[0]] or "", **cell})
    return text.getvalue()


def patterns(found: dict) -> list[tuple[dict, list[dict]]]:
    """(cells, cases) for each suite, dtype and way in which implementations differ; cases in which all do the same are left out."""
    groups: dict[tuple, list[dict]] = {}
    for case in found["cases"]:
        said = tuple((name, cell["verdict"], cell.get("contract")) for name, cell in case["cells"].items())
        if len({verdict for _, verdict, _ in said} - {"not installed"}) > 1:
            groups.setdefault((case["suite"], case["dtype"], said), []).append(case)
    return [(cases[0]["cells"], cases) for cases in groups.values()]


def picture(found: dict) -> str:
    """The matrix as SVG: first the fully masked row, then a row for each of the `patterns`; what a cell means is its tooltip."""
    names = list(found["fully_masked_row"])
    parts, y = [], MARGIN
    for i, name in enumerate(names):
        version = found["versions"][name.split(".")[0]] or "not installed"
        parts += [_text(_left(i) + WIDE / 2, y + 14, name, bold=True), _text(_left(i) + WIDE / 2, y + 30, version, grey=True)]
    y += HEAD
    parts.append(_text(MARGIN, y + 13, "A fully masked row becomes", bold=True, middle=False))
    for i, words in enumerate(found["fully_masked_row"].values()):
        word = "as the case says" if len(words) > 1 else WORDS[words[0]] if words else "–"
        parts += [_box(i, y, "#dbe7f3" if words else "#ffffff", "weights, or contexts, of a query that sees no key"), _sign(i, y, word)]
    y += 2 * ROW
    suite = None
    for cells, cases in patterns(found):
        if cases[0]["suite"] != suite:
            suite = cases[0]["suite"]
            parts.append(_text(MARGIN, y + 13, suite, bold=True, middle=False))
            y += ROW
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        said = ", ".join(case["case"] for case in cases)
        parts.append(_text(MARGIN + 10, y + 13, f"{cases[0]['case']}{more}, {SHORT[cases[0]['dtype']]}", middle=False, tip=said))
        for i, name in enumerate(names):
            cell = cells.get(name, {"verdict": "not installed"})
            colour, sign = LOOKS[cell["verdict"]]
            contract = cell.get("contract", cases[0]["dtype"])
            sign += f" {SHORT[contract]}" if cell["verdict"] == "pass" and contract != cases[0]["dtype"] else ""
            tip = ", ".join(cell[key] for key in ("verdict", "contract", "reason") if key in cell)
            parts += [_box(i, y, colour, f"{name}: {tip}"), _sign(i, y, sign)]
        y += ROW
    y += ROW
    for i, (word, (colour, sign)) in enumerate(LOOKS.items()):
        parts += [_box(i, y, colour, word), _sign(i, y, f"{sign} {word}".strip())]
    parts.append(_text(MARGIN, y + 13, "✓ f32: passes in f32. More in the tooltips", middle=False, grey=True))
    width, height = _left(len(names)) + MARGIN, y + ROW + MARGIN
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f'{start} font-family="DejaVu Sans, sans-serif" font-size="11">', _background(), *parts, "</svg>"]) + "\n"


def _left(i: int) -> int:
    return MARGIN + LABEL + i * WIDE


def _background() -> str:
    return '<rect width="100%" height="100%" fill="white"/>'


def _box(i: int, y: int, colour: str, tip: str) -> str:
    size = f'x="{_left(i)}" y="{y}" width="{WIDE - 2}" height="{ROW - 2}"'
    return f'<rect {size} fill={quoteattr(colour)} stroke="#bbbbbb" stroke-width="0.5"><title>{escape(tip)}</title></rect>'


def _sign(i: int, y: int, sign: str) -> str:
    return _text(_left(i) + WIDE / 2, y + 12, sign)


def _text(x: float, y: float, words: str, bold: bool = False, grey: bool = False, middle: bool = True, tip: str = "") -> str:
    looks = ' font-weight="bold"' * bold + ' fill="#555555"' * grey + ' text-anchor="middle"' * middle + ' pointer-events="none"' * middle
    return f'<text x="{x:g}" y="{y}"{looks}>{f"<title>{escape(tip)}</title>" if tip else ""}{escape(words)}</text>'
