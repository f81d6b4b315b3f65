"""The pytest plugin, as an installed wheel in somebody's own project: strict in both directions, and never green for nothing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, build_wheel

from worked_attention.cases.strict_yaml import Problems
from worked_attention.pytest_plugin import expectations

EXAMPLE = ROOT / "examples" / "pytest_project"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed in it; what it needs is here already."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "site", build_wheel(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A copy of the example, which is somebody else's project."""
    return shutil.copytree(EXAMPLE, tmp_path / "theirs", ignore=shutil.ignore_patterns("__pycache__", ".*"))


def their_tests(project: Path, installed: Path, *args: str) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *args]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, encoding="utf-8")


def only(project: Path, kernel: str, cases: str = "handworked/two_heads", expected: str = "") -> None:
    """Let the project hold one test, of a function that is given as text."""
    (project / "test_kernel.py").write_text(kernel + "\n\ndef test_kernel(attention_case):\n    attention_case.check(kernel)\n", "utf-8")
    settings = f'[tool.pytest.ini_options]\nattention_suites = ["handworked"]\nattention_cases = ["{cases}"]\n'
    (project / "pyproject.toml").write_text(settings + 'attention_expected = "expected.yaml"\n' * bool(expected), "utf-8")
    (project / "expected.yaml").write_text(expected, "utf-8")


def test_the_example_passes(theirs: Path, installed: Path):
    done = their_tests(theirs, installed, "-rx")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^worked-attention [0-9.]+, numpy [0-9.]+, ml-dtypes [0-9.]+$", done.stdout, re.MULTILINE)
    right, wrong = (int(re.search(rf"attention cases: .*?(\d+) {word}", done.stdout)[1]) for word in ("right", "wrong"))
    assert right > 20 and wrong == done.stdout.count("wrong, as expected: the kernel has no sinks yet") == 2


@pytest.mark.parametrize(
    ("was", "now"), [("return mean /", "return (1 + 1e-6) * mean /"), ("keep[..., part]", "keep[..., ::-1][..., part]")]
)
def test_a_wrong_kernel_fails_with_the_sentence_of_the_judge(theirs: Path, installed: Path, was: str, now: str):
    kernel = (theirs / "kernel.py").read_text("utf-8")
    assert was in kernel
    (theirs / "kernel.py").write_text(kernel.replace(was, now), "utf-8")
    done = their_tests(theirs, installed, "-k", "two_heads or causal_top_left")
    assert done.returncode == 1 and " is wrong: first wrong: " in done.stdout
    assert "Traceback" not in done.stdout and "pytest_plugin.py" not in done.stdout


def test_another_convention_is_told_and_can_be_expected(theirs: Path, installed: Path):
    kernel = (theirs / "kernel.py").read_text("utf-8")
    (theirs / "kernel.py").write_text(kernel.replace("np.where(total > 0, total, 1.0)", "total"), "utf-8")
    done = their_tests(theirs, installed, "-k", "empty_row_zero")
    assert done.returncode == 1 and "masks/empty_row_zero is convention: follows empty_row: nan, in float64" in done.stdout
    with open(theirs / "attention_expected.yaml", "a", encoding="utf-8") as file:
        file.write("masks/empty_row_zero: {verdict: convention, reason: NaN says where nothing was seen}\n")
    done = their_tests(theirs, installed, "-k", "empty_row_zero", "-rx")
    assert done.returncode == 0 and "convention, as expected: NaN says where nothing was seen" in done.stdout


def test_what_is_expected_to_be_wrong_and_is_right_fails(theirs: Path, installed: Path):
    with open(theirs / "attention_expected.yaml", "a", encoding="utf-8") as file:
        file.write("handworked/two_heads: {verdict: wrong, reason: I thought so}\n")
    done = their_tests(theirs, installed, "-k", "two_heads")
    assert done.returncode == 1
    assert "handworked/two_heads is right, and attention_expected.yaml:4 expects wrong (I thought so): in float64" in done.stdout


ZEROS = "def kernel(case, arrays):\n    return {'output': 0 * arrays['x']}\n"
RAISES = "def kernel(case):\n    raise KeyError('a bug')\n"
BEYOND = "def kernel(case):\n    raise NotImplementedError('not yet')\n"
ALL = "handworked/*: {{verdict: {}, reason: as it is}}\n"


@pytest.mark.parametrize(
    ("kernel", "expected", "code", "says"),
    [
        (ZEROS, "", 1, "handworked/two_heads is wrong: first wrong: "),
        (ZEROS, ALL.format("wrong"), 0, "1 xfailed"),
        (ZEROS, ALL.format("convention"), 1, "handworked/two_heads is wrong, and expected.yaml:1 expects convention (as it is)"),
        (RAISES, "", 1, "KeyError: 'a bug'"),
        (RAISES, ALL.format("failed"), 1, "nothing was judged"),
        (RAISES, ALL.format("wrong"), 1, "KeyError: 'a bug'"),
        (BEYOND, "", 1, "attention cases: 1 unsupported; nothing was judged"),
        (BEYOND, ALL.format("unsupported"), 1, "nothing was judged"),
        ("def kernel(case):\n    return {'Output': [1.0]}\n", "", 1, "is unreadable: returned no array of the case; it has q, k, v"),
        ("def kernel(case):\n    return 'text'\n", "", 1, "is unreadable: output: holds str"),
        ("kernel = 3\n", "", 1, "TypeError: 3 is no function, and has none called attention, nor projections"),
        (ZEROS, ALL.format("rihgt"), 2, "expected.yaml:1: handworked/*: there is no verdict rihgt"),
    ],
)
def test_outcomes(theirs: Path, installed: Path, kernel: str, expected: str, code: int, says: str):
    only(theirs, kernel, expected=expected)
    done = their_tests(theirs, installed)
    assert done.returncode == code, done.stdout
    assert says in done.stdout and "INTERNALERROR" not in done.stdout


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        (ALL.format("right"), "there is no verdict right"),
        ("handworked/two_head: {verdict: wrong, reason: x}\n", "fits no case; did you mean handworked/two_heads?"),
        ("handworked/*: {verdict: wrong}\n", "should be a mapping of verdict and reason"),
        ("handworked/*: {verdict: wrong, reason: ' '}\n", "the reason should be text"),
        (
            ALL.format("wrong") + "handworked/one*: {verdict: failed, reason: x}\n",
            "fits handworked/one_head, of which expected.yaml:1 says",
        ),
        (ALL.format("wrong") * 2, "expected.yaml:2"),
        ("- a\n", "should hold a mapping such as"),
    ],
)
def test_expectations_that_cannot_be_meant(tmp_path: Path, expected: str, says: str):
    (tmp_path / "expected.yaml").write_text(expected, "utf-8")
    with pytest.raises((Problems, ValueError)) as refused:
        expectations(tmp_path / "expected.yaml", "expected.yaml", ["handworked/two_heads", "handworked/one_head"])
    assert says in str(refused.value)


def test_a_case_that_is_not_there(theirs: Path, installed: Path):
    only(theirs, ZEROS, cases="handworked/two_head")
    done = their_tests(theirs, installed)
    assert done.returncode == 2 and "there is no such case; did you mean handworked/two_heads?" in done.stdout


def test_in_several_processes(theirs: Path, installed: Path):
    """The verdicts are counted where the run is ended."""
    only(theirs, BEYOND, cases="handworked/*")
    done = their_tests(theirs, installed, "-n", "2")
    assert done.returncode == 1 and "attention cases: 6 unsupported; nothing was judged" in done.stdout


def test_tests_without_cases_are_as_they_were(theirs: Path, installed: Path):
    (theirs / "test_kernel.py").write_text(
        "import sys\ndef test_other():\n    assert 'worked_attention.referee.judge' not in sys.modules\n", "utf-8"
    )
    done = their_tests(theirs, installed)
    assert done.returncode == 0 and "attention cases" not in done.stdout
