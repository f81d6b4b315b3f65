"""Cases that a kernel fails, and the smallest one of each kind: all are drawn first, failures are then shrunk by Hypothesis.

What the kernel refuses (NotImplementedError) is drawn no more: each option is asked for alone before.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import yaml
from hypothesis import Phase, Verbosity, core, find, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes
from hypothesis.errors import NoSuchExample

from worked_attention.cases.options import filled, schema
from worked_attention.cases.resolve import resolve
from worked_attention.cases.violations import violations
from worked_attention.fuzzing.cases import DTYPES, OPTIONS, Choose, Drawn, any_case, around, case_with
from worked_attention.referee.diagnosis import Diagnoser
from worked_attention.referee.outcome import counts, remedies, says
from worked_attention.referee.report import case_verdict
from worked_attention.referee.submissions import Arrays, Sent
from worked_attention.stages import parameters

Ask = Callable[[dict, Arrays], Sent]  # what a kernel answers to a resolved case and its parameters
KINDS = 8  # of failures that are shrunk
TRIES = 600  # cases that are judged to shrink one
SHORTER = 300  # cases that are drawn to find a shorter one


class TooSlow(Exception):
    """A kernel took longer for a case than anybody waits."""


@dataclass(frozen=True)
class Failure:
    """The smallest case of a kind of failures, its verdict with a diagnosis, and how many of those drawn have all that it has."""

    case: Drawn
    verdict: dict
    alike: int


@dataclass(frozen=True)
class Found:
    """What came of it: verdicts counted by word, the options that the kernel refuses, one failure of each kind, and how many others there
    are."""

    counts: dict[str, int]
    refused: list[str]
    failures: list[Failure]
    others: int


def resolved(raw: dict) -> dict:
    """The case that a suite would make of `raw`. Raises ValueError if it is none."""
    said = [f"{where}: {message}" for where, message in violations(schema("suite")["$defs"]["case"], raw)]
    limits = filled(schema("config"), {})["limits"]
    case = resolve(raw, "fuzz", "drawn", Path(), limits, lambda where, message: said.append(f"{where}: {message}"))
    if said:
        raise ValueError("; ".join(said))
    return case | {"extends": None, "sweep": None}


class Judge:
    """The verdicts on what a kernel makes of cases, each asked for once."""

    def __init__(self, ask: Ask, conventions: Mapping[str, str]):
        self.ask, self.conventions = ask, dict(conventions)
        self.known: dict[str, dict] = {}
        self.too_slow = False  # then it is asked no more

    def __call__(self, raw: dict) -> dict:
        key = json.dumps(raw)
        if key not in self.known:
            self.known[key] = self.judged(raw, None)
        return self.known[key]

    def knows(self, one: Drawn) -> bool:
        return json.dumps(one.raw) in self.known

    def judged(self, raw: dict, diagnoser: Diagnoser | None) -> dict:
        case = resolved(raw)
        given = parameters.stage(case, Path())
        try:
            sent = self.ask(case, given)
        except TooSlow as error:
            self.too_slow, sent = True, Sent(problems=[str(error)], word="failed")
        return case_verdict(case, given, sent, self.conventions, diagnoser)


def kind(verdict: dict) -> tuple[str, ...]:
    """What failures of one kind share: the verdict, the convention, and what was raised but for numbers in it."""
    return (verdict["verdict"], str(verdict["convention"]), *(re.sub(r"\d+", "#", problem) for problem in verdict["problems"]))


def explains(how: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether failures of the kind `other` may have the cause of those of the kind `how`: what is wrong may look like a convention."""
    return how == other or (how[0], other[0]) == ("wrong", "convention")


def fuzz(
    ask: Ask, conventions: Mapping[str, str], cases: int, seed: int, block: int, allowed: Collection[str], dtypes: Collection[str] = DTYPES
) -> Found:
    """Draw so many `cases` from `seed`, judge them, and shrink one failure of each kind.

    ask: the kernel. conventions: which it declares. block: around whose edges lengths are drawn. allowed: verdicts that are no failure,
    beside `right`. dtypes: of the cases, the simplest first.
    """
    judge = Judge(ask, conventions)
    taken, options = narrowed(judge, block, dtypes)
    judge.too_slow = False  # once more, for what was asked so far is no case

    def make(choose: Choose) -> Drawn:
        return any_case(choose, block, taken, options)

    drawn = []
    for one, choices in randomly(make, cases, seed):
        drawn.append((one, choices, judge(one.raw)))
        if judge.too_slow:
            break
    failing = [(one, choices, kind(verdict)) for one, choices, verdict in drawn if verdict["verdict"] not in ("right", *allowed)]
    failures: list[Failure] = []
    while failing and len(failures) < KINDS:
        first, choices, how = failing[0]
        told = [failure.case for failure in failures if explains(kind(failure.verdict), how)]
        smallest = shrunk(make, Shrinking(judge, first, how, told), choices, block, seed)
        alike = [one for one, _, other in failing if one == first or (explains(how, other) and one.holds(smallest))]
        larger = [failure for failure in failures if explains(how, kind(failure.verdict)) and failure.case.holds(smallest)]
        count = len(alike) + sum(failure.alike for failure in larger)
        failures = [failure for failure in failures if failure not in larger] + [Failure(smallest, diagnosed(judge, smallest), count)]
        failing = [entry for entry in failing if entry[0] not in alike]
    refused = [f"dtype: {name}" for name in dtypes if name not in taken] + [name for name in OPTIONS if name not in options]
    return Found(counts([verdict["verdict"] for _, _, verdict in drawn]), refused, failures, len(failing))


def narrowed(judge: Judge, block: int, dtypes: Collection[str]) -> tuple[list[str], list[str]]:
    """The `dtypes` and the options that the kernel takes, each asked for alone in a case of one block; all if it takes none so."""

    def takes(dtype: str, *options: str) -> bool:
        one = case_with(lambda items: items[0], block, dtype, options, [block])
        return judge.too_slow or judge(one.raw)["verdict"] != "unsupported"

    taken = [dtype for dtype in dtypes if takes(dtype)]
    first = (taken or list(dtypes))[0]
    options = [name for name in OPTIONS if takes(first, name)]
    return taken or list(dtypes), options if taken or options else list(OPTIONS)


def randomly(make: Callable[[Choose], Drawn], cases: int, seed: int) -> Iterator[tuple[Drawn, tuple[int, ...]]]:
    """So many cases from `seed`, each with the choices that it follows from."""
    random = Random(seed)
    for _ in range(cases):
        choices: list[int] = []

        def choose(items: Sequence, choices: list[int] = choices) -> object:
            if len(items) == 1:
                return items[0]
            choices.append(random.randrange(len(items)))
            return items[choices[-1]]

        yield make(choose), tuple(choices)


def smaller(make: Callable[[Choose], Drawn], fails: Callable[[Drawn], bool], choices: tuple[int, ...]) -> Drawn | None:
    """The smallest case that `fails` which Hypothesis comes to from that of the `choices`; None if that one does not."""

    @st.composite
    def strategy(draw) -> Drawn:
        return make(lambda items: items[draw(st.integers(0, len(items) - 1))] if len(items) > 1 else items[0])

    began = InMemoryExampleDatabase()
    began.save(b"failure", choices_to_bytes((*choices, 0)))  # one more than it takes, for what fits exactly counts as shrunk
    how = settings(database=began, deadline=None, verbosity=Verbosity.quiet, phases=[Phase.reuse, Phase.shrink])
    with reproducibly():
        try:
            return find(strategy(), fails, settings=how, database_key=b"failure")
        except NoSuchExample:
            return None


@dataclass
class Shrinking:
    """Whether a case fails as the `first` one does, in this kind (`how`), and holds none of those that are `told` already."""

    judge: Judge
    first: Drawn
    how: tuple[str, ...]
    told: list[Drawn]
    left: int = TRIES

    def __call__(self, one: Drawn) -> bool:
        if any(one.holds(other) for other in self.told):
            return False
        if not self.judge.knows(one):
            if not self.left or self.judge.too_slow:
                return False
            self.left -= 1
        return kind(self.judge(one.raw)) == self.how


def shrunk(make: Callable[[Choose], Drawn], fails: Shrinking, choices: tuple[int, ...], block: int, seed: int) -> Drawn:
    """The smallest case that `fails`, from the one of the `choices`.

    Lengths may stick beyond two blocks, where those in between do not fail; then it is looked for anew among shorter ones.
    """
    found = smaller(make, fails, choices) or fails.first
    if max(found.sizes[:2]) <= 2 * block or fails.judge.too_slow:
        return found
    lengths = [n for n in around(block) if n <= 2 * block]

    def alike(choose: Choose) -> Drawn:
        return replace(case_with(choose, block, found.raw["dtype"], found.options, lengths), options=found.options)

    def short(one: Drawn) -> bool:
        return max(one.sizes[:2]) <= 2 * block and fails(one)

    again = next((choices for one, choices in randomly(alike, SHORTER, seed) if short(one)), None)
    return again and smaller(alike, short, again) or found


def diagnosed(judge: Judge, one: Drawn) -> dict:
    """The verdict on a case, with the mistake that it equals where it is wrong."""
    verdict = judge(one.raw)
    return judge.judged(one.raw, Diagnoser()) if verdict["verdict"] == "wrong" else verdict


@contextmanager
def reproducibly() -> Iterator[None]:
    """Let Hypothesis shrink in the same order each time, and leave no folder where the command runs."""
    name = "HYPOTHESIS_STORAGE_DIRECTORY"
    before, seed = os.environ.get(name), core.global_force_seed
    with TemporaryDirectory() as folder:
        os.environ[name] = folder
        core.global_force_seed = 0  # as its plugin for pytest does: a seed of one test would switch off its database
        try:
            yield
        finally:
            core.global_force_seed = seed
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def suite(failures: list[Failure], description: str, digits: int) -> str:
    """The failures as the text of a suite, each with its verdict, its remedy and how many are like it as comments."""
    lines = [line("description", description), "cases:"]
    for i, failure in enumerate(failures, start=1):
        word = failure.verdict["verdict"]
        lines.append(f"  # {word}: {says(failure.verdict, digits)}")
        lines += [f"  # {remedy}" for remedy in remedies(failure.verdict)]
        lines.append(f"  # {failure.alike} of the cases drawn fail and have all that this one has")
        lines.append(f"  {word}_{i}:")
        lines += [f"    {line(key, value)}" for key, value in failure.case.raw.items()]
    return "\n".join(lines) + "\n"


def line(key: str, value: object) -> str:
    """`key: value` in one line of YAML."""
    return yaml.safe_dump({key: value}, default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=True)[1:-2]
