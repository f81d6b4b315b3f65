"""What came of many answer sheets: a line of each for the terminal, and all of them as a table for a spreadsheet."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

from worked_attention.cases.escapes import printable
from worked_attention.cases.words import harmless, short
from worked_attention.files.formats import read_json
from worked_attention.worksheets.answers import Unreadable, numbers, read
from worked_attention.worksheets.grading import Grade, grade
from worked_attention.worksheets.making import again
from worked_attention.worksheets.sheet import Sheet, Unsuited

COLUMNS = (
    *("file", "name", "sheet", "verdict", "right", "of", "first wrong", "stage", "written", "should be", "within", "it equals", "problem"),
)


@dataclass
class Entry:
    """One answer sheet: its file, who answered, of which worksheet, the grade, and what could not be read, line by line."""

    file: Path
    name: str
    sheet: str
    grade: Grade
    problems: list[str]


def graded(files: list[Path], worksheets: Path, suites: Path) -> list[Entry]:
    """A grade for each answer sheet. worksheets: the folder where worksheets were made. suites: that of the suites."""

    @cache
    def sheet(key: str, number: int) -> Sheet:
        recorded = worksheets / key / "sheets.json"
        if not recorded.is_file():
            raise Unreadable(f"belongs to worksheets of {key}, which are not in {worksheets.as_posix()}; make them first")
        try:
            return again(read_json(recorded), number, suites)
        except Unsuited as error:
            raise Unreadable(f"belongs to sheet {number} of {key}: {error}") from None

    found = []
    for file in files:
        name = said = ""
        try:
            filled = read(file)
            name, said = filled.name, filled.identity
            its = sheet(*filled.place)
            found.append(Entry(file, name, said, grade(its, numbers(filled, its)), []))
        except Unreadable as error:
            found.append(Entry(file, name, said, Grade("unreadable"), error.problems))
    return found


def line(entry: Entry) -> str:
    """One answer sheet in a line; one that cannot be read in a line for each problem."""
    where, of = entry.file.name, entry.grade
    if entry.problems:
        return "\n".join(printable(f"{where}: unreadable: {problem}") for problem in entry.problems)
    who = f" ({short(entry.name)})" if entry.name else ""
    text = f"{where}{who}: sheet {entry.sheet.split()[1]}: {of.verdict}, {of.count('right')} of {len(of.cells)} right"
    if missing := of.count("not answered"):
        text += f", {missing} not answered"
    if of.first:
        text += f"; first wrong: {of.first} ({of.stage}) is {of.written}, should be {of.right:.9g} within {of.within:.2g}"
        text += f"; what is written equals: {of.mistake}" if of.mistake else ""
    return printable(text)


def table(entries: list[Entry]) -> str:
    """All answer sheets as comma-separated values."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows([harmless(value) for value in row] for row in map(columns, entries))
    return text.getvalue()


def columns(entry: Entry) -> Iterator[object]:
    """The values of one row."""
    of = entry.grade
    yield from (entry.file.name, entry.name, entry.sheet, of.verdict)
    yield from (of.count("right"), len(of.cells)) if of.cells else ("", "")
    yield from (of.first, of.stage, of.written, f"{of.right:.9g}", f"{of.within:.2g}", of.mistake) if of.first else [""] * 6
    yield "; ".join(entry.problems)


def objection(entries: list[Entry]) -> str | None:
    """Why the job fails: an answer sheet cannot be read, or none has an answer; None if neither."""
    unreadable = [entry.file.name for entry in entries if entry.problems]
    if unreadable:
        return f"{len(unreadable)} cannot be read, first {short(printable(unreadable[0]))}"
    return "nothing is answered" if all(entry.grade.verdict == "blank" for entry in entries) else None
