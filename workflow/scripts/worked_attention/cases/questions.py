"""The questions of config/questions.yaml: pages that answer in words and in numbers of cases, checked before any job starts.

A text asks for a number in braces: `{handworked/two_heads weights[0, 0, 1]}` is an element, with fewer indices a row; `{sum of
handworked/two_heads weights[0, 0]}` asks a word of WORDS about one array, `{largest difference of A and B}` about two, and `{d_k of
counted/base}` about a case. Cases of config/counted.yaml have sizes and are never computed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from worked_attention.cases.options import schema
from worked_attention.cases.strict_yaml import Document, Problem, Problems
from worked_attention.cases.suites import UNLIMITED, load_suite
from worked_attention.cases.violations import violations
from worked_attention.cases.words import did_you_mean, kind, short

COUNTED = "counted"  # the name of the suite whose cases are not computed
BRACES = re.compile(r"\{([^{}]*)\}")
PLACE = re.compile(r"([a-z0-9_]+)/([a-z0-9_]+)(?: ([a-z0-9_]+)(?:\[([0-9, ]+)\])?)?")
WORDS = {  # what can be asked, of how many arrays; of none, it is about the case
    "": 1,
    "sum": 1,
    "mean": 1,
    "largest": 1,
    "smallest": 1,
    "variance": 1,
    "entropy": 1,
    "length": 1,
    "rank": 1,
    "share of others": 1,
    "largest difference": 2,
    "shape": 1,
    "numbers": 1,
    "multiply-adds": 1,
    "parameters": 0,
    "bytes": 0,
}
WITHOUT_NUMBERS = ("shape", "numbers", "multiply-adds", "parameters", "bytes")  # what a counted case can say, besides its sizes
DRAWN = ("flow", "pooling", "grid", "boxes", "geometry", "against")  # blocks that name a case
BARE = ("convolution", "recurrence")  # what arcs are drawn of besides cases


@dataclass(frozen=True)
class Place:
    """A case, one of its arrays or None, and leading indices into that."""

    suite: str
    case: str
    array: str | None
    index: tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """What stands in a pair of braces: a word of WORDS or the name of a size, and the places that it is asked about."""

    word: str
    places: tuple[Place, ...]


def asked(text: str) -> Asked:
    """What `text`, from a pair of braces, asks for. Raises ValueError with what is wrong and what would be right."""
    word, of, rest = text.rpartition(" of ")
    places = tuple(place(part) for part in (rest if of else text).split(" and "))
    wanted = WORDS.get(word, 0)
    if len(places) != max(wanted, 1):
        raise ValueError(f"{word or 'a number'} is asked of {max(wanted, 1)}, and here are {len(places)} places")
    if wanted and not all(p.array for p in places):
        raise ValueError(f"names no array; write {places[0].suite}/{places[0].case} and then the array")
    return Asked(word, places)


def place(text: str) -> Place:
    """A case, and perhaps an array and an index. Raises ValueError."""
    found = PLACE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{short(text)} names no number; write suite/case array[index], as in handworked/two_heads weights[0, 1]")
    suite, case, array, index = found.groups()
    try:
        return Place(suite, case, array, tuple(int(i) for i in index.split(",")) if index else ())
    except ValueError:
        raise ValueError(f"{short(text)} has no list of indices in its brackets; write them as in [0, 1]") from None


def pieces(text: str) -> Iterator[str | Asked]:
    """The words of `text`, and what it asks for between them."""
    for n, piece in enumerate(BRACES.split(text)):
        yield asked(piece) if n % 2 else piece


def texts(block: str | dict) -> list[str]:
    """The texts of a block in which numbers may be asked for."""
    if isinstance(block, str):
        return [block]
    if "numbers" in block:
        return [cell for cells in block["numbers"]["rows"].values() for cell in cells]
    return []


def places(block: str | dict) -> list[Place]:
    """Every place that a block names. Raises ValueError if one is none."""
    found = [p for text in texts(block) for piece in pieces(text) if isinstance(piece, Asked) for p in piece.places]
    if isinstance(block, dict):
        found += [place(block[key]) for key in ("table", *DRAWN) if key in block]
        found += [place(block["arcs"])] if block.get("arcs", BARE[0]) not in BARE else []
        found += [place(block["submission"]["of"])] if "submission" in block else []
    return found


def load_counted(path: Path) -> dict:
    """The suite of cases that are counted and never computed, from config/counted.yaml. Raises `Problems`."""
    return load_suite(path, UNLIMITED)


def load_questions(path: Path, suites: dict[str, dict]) -> dict[str, dict]:
    """Every question by name: {title, source, blocks, places: [Place], missing: [suite]}, of a file config/questions.yaml.

    suites: resolved, those that are counted as `counted`. missing: the suites that it needs and that are not there; such a question
    cannot be answered, and what it asks of them is not checked. Raises `Problems`.
    """
    document = Document(path, path.as_posix())
    problems = list(document.problems)

    def report(where: tuple, message: str) -> None:
        problems.append(Problem(document.name, document.line(where), None, ".".join(map(str, where)) or None, message))

    if not isinstance(document.data, dict):
        report((), f"holds {kind(document.data)}, should hold a mapping with `questions:`")
        raise Problems(problems)
    for where, message in violations(schema("questions"), document.data):
        report(where, message)
    if problems:
        raise Problems(problems)
    found = {}
    for name, question in document.data["questions"].items():
        needed: list[Place] = []
        for n, block in enumerate(question["blocks"]):
            where = ("questions", name, "blocks", n)
            try:
                here = places(block)
            except ValueError as error:
                report(where, str(error))
                continue
            needed += here
            for message in wrong(block, here, suites):
                report(where, message)
        missing = sorted({p.suite for p in needed} - set(suites))
        found[name] = {"source": "", **question, "places": needed, "missing": missing}
    if problems:
        raise Problems(problems)
    return found


def wrong(block: str | dict, here: list[Place], suites: dict[str, dict]) -> Iterator[str]:
    """What is wrong with the places of a block whose suites are there."""
    for p in [p for p in here if p.suite in suites]:
        cases = suites[p.suite]["cases"]
        if p.case not in cases:
            yield f"no case {p.suite}/{p.case}{did_you_mean(p.case, cases)}"
        elif p.array and p.array not in cases[p.case]["shapes"]:
            yield f"{p.suite}/{p.case} has no array {p.array}{did_you_mean(p.array, cases[p.case]['shapes'])}"
        elif p.array and not fits(p.index, cases[p.case]["shapes"][p.array]):
            yield f"{p.array}{list(p.index)} is not in {p.suite}/{p.case}, where {p.array} has the shape {cases[p.case]['shapes'][p.array]}"
    there = {p: suites[p.suite]["cases"][p.case] for p in here if p.suite in suites and p.case in suites[p.suite]["cases"]}
    for one in [piece for text in texts(block) for piece in pieces(text) if isinstance(piece, Asked)]:
        for p in [p for p in one.places if p in there]:
            if one.word not in WORDS and one.word not in there[p]["dims"]:
                yield f"{short(one.word)} is no word and no size of {p.suite}/{p.case}{did_you_mean(one.word, [*WORDS, *there[p]['dims']])}"
            elif p.suite == COUNTED and one.word in WORDS and one.word not in WITHOUT_NUMBERS:
                yield f"{p.suite}/{p.case} is counted and never computed, so it has no {one.word or 'numbers'}"
            elif one.word == "" and p.array in there[p]["shapes"] and len(p.index) + 1 < len(there[p]["shapes"][p.array]):
                yield f"{p.array}{list(p.index)} is more than a row; give more indices, or show it as a table"


def fits(index: tuple[int, ...], shape: list[int]) -> bool:
    """Whether leading indices lie inside a shape."""
    return len(index) <= len(shape) and all(i < n for i, n in zip(index, shape, strict=False))


def refusal(text: str) -> str:
    """The first line that says why a suite of this text is refused. Raises ValueError if it is not."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "mine.yaml")
        path.write_text(text, "utf-8")
        try:
            load_suite(path, UNLIMITED)
        except Problems as problems:
            return str(problems.problems[0]).replace(f"{Path(folder).as_posix()}/", "")
    raise ValueError(f"this suite is not refused:\n{text}")
