"""A pytest plugin: a test with the argument `attention_case` runs once for each case, and fails with the sentence of the judge.

    def test_my_attention(attention_case):
        attention_case.check(my_attention)

In the ini file, `attention_suites` and `attention_cases` choose the cases, and `attention_expected` names a file of those that are known
not to be right. It is strict in both directions: what is expected to be wrong and is right fails, too.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:  # the rest is imported when a test asks for cases: the plugin is loaded in every run of pytest
    from pathlib import Path

    from worked_attention.referee.diagnosis import Diagnoser

CASES = pytest.StashKey[list]()
PROPERTY = "attention_verdict"
DIGITS = 9


class Expected(NamedTuple):
    """What a case is known to come to, why, and where that is written."""

    verdict: str
    reason: str
    place: str


class AttentionCase:
    """One case: `key` is its suite/name, `case` what it is, `parameters` the arrays that it starts from."""

    def __init__(self, key: str, case: dict, folder: Path, expected: Expected | None, diagnoser: Diagnoser):
        self.key, self.case, self.folder, self.expected, self.diagnoser = key, case, folder, expected, diagnoser
        self.word: str | None = None  # the verdict, once it was checked

    def __repr__(self) -> str:
        return self.key

    @property
    def parameters(self) -> dict:
        """The arrays that the case starts from, by name. Skips the test if torch draws them and is not installed."""
        from worked_attention.stages import parameters

        try:
            return parameters.stage(self.case, self.folder)
        except ImportError as error:
            pytest.skip(f"its parameters need {error.name}, which is not installed")

    def check(self, attention: Callable | object) -> None:
        """Judge `attention` on this case: a function of (case, arrays), or anything that has functions named after stages.

        Passes if it is right. Skips if it raises NotImplementedError. Fails if not, or if it is not what the file of expectations says.
        """
        __tracebackhide__ = True
        word, sentence = self._judged(attention)
        self.word = word
        if self.expected is None:
            if word == "unsupported":
                pytest.skip(sentence)
            if word != "right":
                pytest.fail(f"{self.key} is {word}: {sentence}", pytrace=False)
            return
        verdict, reason, place = self.expected
        if word != verdict:
            pytest.fail(f"{self.key} is {word}, and {place} expects {verdict} ({reason}): {sentence}", pytrace=False)
        (pytest.skip if word == "unsupported" else pytest.xfail)(f"{word}, as expected: {reason}")

    def _judged(self, attention: Callable | object) -> tuple[str, str]:
        """The verdict in a word and in a sentence."""
        from worked_attention.referee.caller import answered, npy
        from worked_attention.referee.declarations import declared
        from worked_attention.referee.handed import handed
        from worked_attention.referee.outcome import remedies, says
        from worked_attention.referee.report import case_verdict
        from worked_attention.referee.submissions import received
        from worked_attention.stages.catalogue import COMPUTED

        module = attention
        if not any(hasattr(attention, name) for name in ("attention", *COMPUTED)):
            if not callable(attention):
                raise TypeError(f"{attention!r} is no function, and has none called attention, nor {', '.join(COMPUTED)}")
            module = SimpleNamespace(attention=attention, ARRAYS=getattr(attention, "ARRAYS", "numpy"))
        given = self.parameters
        try:
            header, made = answered(module, self.case, handed(self.case, given))
        except Exception as error:
            if self.expected is None or self.expected.verdict != "failed":
                raise
            return "failed", f"raised {type(error).__name__}: {error}"
        sent = received(header["word"], header["text"], {name: npy(array) for name, array in made.items()})
        found = case_verdict(self.case, given, sent, declared(getattr(attention, "CONVENTIONS", {})), self.diagnoser)
        return found["verdict"], "\n".join([says(found, DIGITS), *remedies(found)])


class Tally:
    """Counts the verdicts of a whole run. If cases were checked and none was judged, the run fails: nothing was shown."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Also of what ran in other processes."""
        if report.when == "call":
            self.words += [str(value) for name, value in report.user_properties if name == PROPERTY]

    def nothing(self) -> bool:
        """Whether cases were checked, and none was judged."""
        from worked_attention.referee.outcome import JUDGED

        return bool(self.words) and not set(JUDGED) & set(self.words)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """The run fails where nothing was shown."""
        if exitstatus == pytest.ExitCode.OK and self.nothing():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The counts, in a line."""
        if self.words:
            from worked_attention.referee.outcome import counts

            found = ", ".join(f"{count} {word}" for word, count in counts(self.words).items())
            terminalreporter.write_line(f"attention cases: {found}{'; nothing was judged' * self.nothing()}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.pluginmanager.register(Tally(), "worked_attention_tally")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Put the verdict on a case into the report of its test."""
    report = yield
    case = getattr(item, "funcargs", {}).get("attention_case")
    if call.when == "call" and isinstance(case, AttentionCase) and case.word:
        report.user_properties.append((PROPERTY, case.word))
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """The three settings of the ini file."""
    parser.addini("attention_suites", "suites of attention cases: names of shipped ones, or your own .yaml files", "args", [])
    parser.addini("attention_cases", "attention cases, as suite/case, such as masks/*", "args", [])
    parser.addini("attention_expected", "a YAML file of the attention cases that are known not to be right", "string", "")


def pytest_report_header() -> str:
    """The versions that a verdict depends on."""
    return ", ".join(f"{name} {version(name)}" for name in ("worked-attention", "numpy", "ml-dtypes"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each case."""
    if "attention_case" in metafunc.fixturenames:
        if CASES not in metafunc.config.stash:
            metafunc.config.stash[CASES] = _cases(metafunc.config)
        cases = metafunc.config.stash[CASES]
        metafunc.parametrize("attention_case", cases, ids=[case.key for case in cases])


def _cases(config: pytest.Config) -> list[AttentionCase]:
    """The cases that the ini file names. Raises CollectError if it names what is not there."""
    from worked_attention.cases.chosen import chosen
    from worked_attention.cases.strict_yaml import Problems
    from worked_attention.referee.diagnosis import Diagnoser

    suites = [str(config.rootpath / name) if name.endswith(".yaml") else name for name in config.getini("attention_suites")]
    try:
        found = chosen(suites, config.getini("attention_cases"))
        keys = [f"{suite}/{case}" for suite, content in found.suites.items() for case in content["cases"]]
        name = config.getini("attention_expected")
        expected = expectations(config.rootpath / name, name, keys) if name else {}
    except (Problems, ValueError) as error:
        raise pytest.Collector.CollectError(str(error)) from None
    diagnoser, cases = Diagnoser(), []
    for key in keys:
        suite, _, case = key.partition("/")
        cases.append(AttentionCase(key, found.suites[suite]["cases"][case], found.folders[suite], expected.get(key), diagnoser))
    return cases


def expectations(path: Path, name: str, keys: list[str]) -> dict[str, Expected]:
    """What the file at `path` (called `name` in messages) expects of the cases `keys`, by case.

    It holds `suite/case: {verdict: convention, reason: ...}`, or a pattern such as `masks/*`. Raises Problems: on a verdict that there is
    not, a reason that is missing, a pattern that fits no case, and a case that two patterns fit.
    """
    from worked_attention.cases.strict_yaml import Document, Problem, Problems
    from worked_attention.cases.words import did_you_mean, short
    from worked_attention.referee.outcome import WORDS

    document = Document(path, name)
    problems, expected = list(document.problems), {}
    words = [word for word in WORDS if word != "right"]
    entries = document.data if isinstance(document.data, dict) else {}
    if not problems and not entries:
        problems.append(Problem(name, None, None, None, "should hold a mapping such as `masks/*: {verdict: convention, reason: ...}`"))
    for pattern, entry in entries.items():
        line = document.line((pattern,))

        def report(message: str, line: int | None = line, pattern: str = pattern) -> None:
            problems.append(Problem(name, line, None, str(pattern), message))

        if not isinstance(entry, dict) or set(entry) != {"verdict", "reason"}:
            report("should be a mapping of verdict and reason")
            continue
        if entry["verdict"] not in words:
            report(f"there is no verdict {short(entry['verdict'])}{did_you_mean(entry['verdict'], words)}")
        if not isinstance(entry["reason"], str) or not entry["reason"].strip():
            report("the reason should be text")
        fitting = [key for key in keys if fnmatchcase(key, str(pattern))]
        if not fitting:
            report(f"fits no case{did_you_mean(pattern, keys)}")
        for key in fitting:
            if key in expected:
                report(f"fits {key}, of which {expected[key].place} says something, too")
            expected[key] = Expected(entry["verdict"], entry["reason"], f"{name}:{line}")
    if problems:
        raise Problems(problems)
    return expected
