"""Answer sheets: tables of comma-separated values with a row for each cell of a worksheet, which somebody fills in.

What comes back is not trusted, and may have been through a spreadsheet: a byte order mark, semicolons, empty columns and a minus of print
are fine; an answer that is no number is not, and is told with its line and cell.
"""

import csv
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from pathlib import Path

from worked_attention.cases.words import DASHES, did_you_mean, short
from worked_attention.pages.language import _
from worked_attention.stages.catalogue import axes
from worked_attention.worksheets.sheet import Index, Sheet

COLUMNS = ("cell", "what", "answer")
NAME, SHEET = "name", "sheet"  # rows that are no cell: who answers, and of which worksheet
LARGEST = 100_000  # bytes
NUMBER = re.compile(r"[-+]?([0-9]{1,15}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,2})?")
IDENTITY = re.compile(r"([a-z0-9_]{1,100}/[a-z0-9_]{1,100}) ([1-9][0-9]{0,5}) ([0-9a-f]{6})")


class Unreadable(Exception):
    """What is wrong with an answer sheet: `problems`, each in a line."""

    def __init__(self, *problems: str):
        self.problems = list(problems)
        super().__init__("\n".join(problems))


@dataclass
class Filled:
    """An answer sheet as it came: who answers, of which worksheet it says it is, (line, text) of each answer by cell."""

    name: str
    identity: str
    rows: dict[str, tuple[int, str]]

    @property
    def place(self) -> tuple[str, int]:
        """(suite/case, number) of the worksheet. Raises Unreadable."""
        if not (found := IDENTITY.fullmatch(self.identity)):
            said = f"is {short(repr(self.identity))}, should be as it was printed, such as handworked/two_heads 1 3fa9c1"
            raise Unreadable(f"row {SHEET}: {said}")
        return found[1], int(found[2])


def blank(sheet: Sheet) -> str:
    """The answer sheet of a worksheet, with nothing answered; a byte order mark tells spreadsheets that it is UTF-8."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    rows.writerow((SHEET, _("leave this row as it is"), sheet.identity))
    rows.writerow((NAME, _("your name"), ""))
    for cell, (array, index) in sheet.cells.items():
        rows.writerow((cell, place(sheet, array, index), ""))
    return "\N{BYTE ORDER MARK}" + text.getvalue()


def place(sheet: Sheet, array: str, index: Index) -> str:
    """Where a number stands, in words: "weights: head 0, query x1, x2"."""
    work, shape, along = sheet.work, sheet.right[array].shape, axes(array, sheet.case["dims"])
    row, column = (work.labels(along[end], shape[end])[index[end]] for end in (-2, -1))
    return f"{array}: {work.at(array, index[:-2], index[-2]) if work.where(array, index[:-2]) else row}, {column}"


def read(path: Path) -> Filled:
    """The answer sheet at `path`. Raises Unreadable with everything that is wrong with its table."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise Unreadable(f"is no file of at most {LARGEST:,} bytes")
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Unreadable("is not UTF-8; save it as CSV UTF-8") from None
    rows, problems = {}, []
    head = lines[0] if lines else ""
    mark = max(",;\t", key=head.count)
    columns = tuple(column.strip() for column in next(csv.reader([head], delimiter=mark), []))
    columns = columns[: max((i + 1 for i, column in enumerate(columns) if column), default=0)]
    if columns != COLUMNS:
        raise Unreadable(f"line 1: has the columns {short(', '.join(columns)) or 'none'}, should have {', '.join(COLUMNS)}")
    for number, line in enumerate(lines[1:], 2):
        try:
            fields = [field.strip() for field in next(csv.reader([line], delimiter=mark, strict=True), [])]
        except csv.Error:
            problems.append(f"line {number}: has a quote that is not closed")
            continue
        if not any(fields):
            continue
        cell, more = fields[0], any(fields[len(COLUMNS) :])
        if more:
            problems.append(f"line {number}: {short(cell)}: has {len(fields)} columns, should have {len(COLUMNS)}{comma(fields[2:])}")
        elif cell in rows:
            problems.append(f"line {number}: {short(cell)}: stands in line {rows[cell][0]} as well; keep one of them")
        else:
            rows[cell] = number, (fields + ["", ""])[2]
    if SHEET not in rows:
        problems.append(f"has no row {SHEET}, which says of which worksheet it is; fill in the file that came with it")
    if problems:
        raise Unreadable(*problems)
    return Filled(rows.pop(NAME, (0, ""))[1], rows.pop(SHEET)[1], rows)


def is_blank(path: Path) -> bool:
    """Whether nothing is filled in yet in an answer sheet of ours."""
    try:
        filled = read(path)
    except Unreadable:
        return False
    return not filled.name and not any(text for _, text in filled.rows.values())


def comma(fields: list[str]) -> str:
    """Advice on a number that was written with a comma and so fell into two columns."""
    found = [field for field in fields if field]
    return f"; write {found[0]}.{found[1]} with a point" if len(found) == 2 and NUMBER.fullmatch(".".join(found)) else ""


def numbers(filled: Filled, sheet: Sheet) -> dict[str, Decimal]:
    """The answers as numbers, by cell, those that are empty left out. Raises Unreadable with everything that is wrong with them."""
    found, problems = {}, []
    if filled.identity != sheet.identity:
        problems.append(f"row {SHEET}: belongs to a worksheet with other numbers, {filled.identity}; this one is {sheet.identity}")
    for cell, (line, text) in filled.rows.items():
        plain = text.translate(DASHES)
        if cell not in sheet.cells:
            problems.append(f"line {line}: {short(cell)}: is no cell of the worksheet{did_you_mean(cell, sheet.cells)}")
        elif NUMBER.fullmatch(plain):
            found[cell] = Decimal(plain)
        elif text:
            problems.append(f"line {line}: {cell}: is {short(repr(text))}, should be a number{advice(plain)}")
    if problems:
        raise Unreadable(*problems)
    return found


def advice(text: str) -> str:
    """How to write the number that a text may mean."""
    narrow = unicodedata.normalize("NFKC", text).replace(" ", "")
    if NUMBER.fullmatch(narrow):
        return f"; write {narrow} in plain digits without spaces"
    if NUMBER.fullmatch(narrow.replace(",", ".")):
        return f"; write {narrow.replace(',', '.')} with a point"
    return " such as 0.2831"
