"""The command: what it prints and writes, and above all how it ends."""

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from conftest import ROOT

from worked_attention.cases.chosen import chosen, shipped
from worked_attention.command import main
from worked_attention.referee.outcome import annotations, grouped, junit
from worked_attention.stages.whole import compute

RIGHT, WRONG = ROOT / "examples" / "attention_right.py", ROOT / "examples" / "attention_wrong.py"
DATA = json.loads((ROOT / "tests" / "data" / "handworked.json").read_bytes())


def command(*args: object) -> Result:
    done = CliRunner().invoke(main, [str(arg) for arg in args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


# How it ends


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ([RIGHT, "--suite", "handworked"], 0, "6 cases: 6 right"),
        ([WRONG, "--suite", "handworked"], 1, "5 wrong"),
        ([WRONG, "--case", "handworked/one_head"], 0, "1 case: 1 right"),
        ([RIGHT, "--case", "handworked/*", "--case", "softmax/plus_one"], 1, "1 unsupported"),
        ([RIGHT, "--case", "handworked/*", "--case", "softmax/plus_one", "--allow", "convention,unsupported"], 0, "1 unsupported, 6 right"),
        ([RIGHT, "--case", "softmax/plus_one", "--allow", "unsupported"], 1, "nothing was judged"),
        ([WRONG, "--suite", "handworked", "--allow", "wrong"], 2, "wrong: should be of undecided, convention, unsupported"),
        (["nowhere.py"], 2, "nowhere.py: there is no such file or folder"),
        ([RIGHT, "--suite", "handworkd"], 2, "there is no such suite; did you mean handworked?"),
        ([RIGHT, "--suite", "nowhere.yaml"], 2, "nowhere.yaml"),
        ([RIGHT, "--case", "two_heads"], 2, "case two_heads: should be suite/case"),
        ([RIGHT, "--case", "handworked/two_head"], 2, "there is no such case; did you mean handworked/two_heads?"),
        ([RIGHT, "--suite", "heads", "--case", "handworked/*"], 2, "case handworked/*: is in no suite that is asked for (heads); add"),
        ([RIGHT, "--suite", "handworked", "--contract", "float8"], 2, "float8"),
        ([RIGHT, "--suite", "handworked", "--json", WRONG / "no.json"], 2, "no.json: cannot be written (Not a directory)"),
    ],
)
def test_how_it_ends(args: list, code: int, says: str):
    done = command("judge", *args)
    assert done.exit_code == code, done.output
    assert says in done.output and "Traceback" not in done.output


def test_contract(tmp_path: Path):
    """What holds in float32 only is right, and wrong where float64 is asked for."""
    made = compute(chosen(["handworked"], []).suites["handworked"]["cases"]["two_heads"])
    folder = tmp_path / "mine" / "handworked" / "two_heads"
    folder.mkdir(parents=True)
    np.save(folder / "output.npy", made["output"].astype(np.float32))
    assert command("judge", tmp_path / "mine", "--contract", "float32").exit_code == 0
    done = command("judge", tmp_path / "mine", "--contract", "float64")
    assert done.exit_code == 1 and "right only in float32, and not in float64 as is asked for" in done.output
    np.save(folder / "output.npy", made["output"])
    assert command("judge", tmp_path / "mine", "--contract", "float64").exit_code == 0


def test_cases_that_are_not_asked_for_are_let_alone(tmp_path: Path):
    suite = chosen(["handworked"], []).suites["handworked"]["cases"]
    for name, array in (("two_heads", compute(suite["two_heads"])["output"]), ("one_head", np.zeros((3, 4)))):
        (tmp_path / "mine" / "handworked" / name).mkdir(parents=True)
        np.save(tmp_path / "mine" / "handworked" / name / "output.npy", array)
    done = command("judge", tmp_path / "mine", "--case", "handworked/two_heads")
    assert done.exit_code == 0 and "extra" not in done.output
    assert command("judge", tmp_path / "mine", "--suite", "handworked").exit_code == 1


def test_from_any_folder_with_a_suite_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    np.save(tmp_path / "here" / "v.npy", np.array([[[1.0], [2.0]]]))
    parameters = "{q_heads: [[[0.0], [0.0]]], k_heads: [[[0.0], [0.0]]], v_heads: {file: v.npy}}"
    text = f"description: Mine.\ncases:\n  flat:\n    title: Flat\n    parameters: {parameters}\n"
    (tmp_path / "here" / "mine.yaml").write_text(text, "utf-8")
    (tmp_path / "kernel.py").write_text("def attention(case, arrays):\n    return {'contexts': [[[1.5], [1.5]]]}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert command("judge", "kernel.py", "--suite", "here/mine.yaml").exit_code == 0
    (tmp_path / "kernel.py").write_text("def attention(case, arrays):\n    return {'contexts': [[[1.5], [1.4]]]}\n", "utf-8")
    assert command("judge", "kernel.py", "--suite", "here/mine.yaml").exit_code == 1
    (tmp_path / "here" / "mine.yaml").write_text("cases:\n  flat: {haeds: 2}\n", "utf-8")
    done = command("judge", "kernel.py", "--suite", "here/mine.yaml")
    assert done.exit_code == 2 and "here/mine.yaml:2: case flat: haeds: unknown key; did you mean heads?" in done.output


def test_fail_fast(tmp_path: Path):
    done = command("judge", WRONG, "--suite", "handworked", "--fail-fast")
    assert done.exit_code == 1 and "1 case: 1 wrong" in done.output


# What it writes


def test_files(tmp_path: Path):
    text = "print('hello')\n" + WRONG.read_text("utf-8")
    (tmp_path / "mine.py").write_text(text, "utf-8")
    report, found = tmp_path / "junit.xml", tmp_path / "verdict.json"
    chosen_cases = ["--suite", "handworked", "--case", "handworked/*", "--suite", "softmax", "--case", "softmax/plus_one"]
    done = command("judge", tmp_path / "mine.py", *chosen_cases, "--junit", report, "--json", found, "--allow", "unsupported", "--github")
    assert done.exit_code == 1
    verdict = json.loads(found.read_bytes())
    assert verdict["format"] == 1 and verdict["counts"] == {"wrong": 5, "unsupported": 1, "right": 1}
    assert (tmp_path / "verdict.output.txt").read_text("utf-8") == "== loading it\nhello\n"
    suites = {suite.get("name"): suite for suite in xml.parse(report).getroot()}
    assert {key: suites["handworked"].get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": "5",
        "errors": "0",
        "skipped": "0",
    }
    (skipped,) = suites["softmax"].iter("skipped")
    assert skipped.get("message") == "only plain attention from x"
    failure = next(suites["handworked"].iter("failure"))
    assert failure.get("type") == "wrong" and "divided by sqrt(d_model)" in failure.get("message")
    (line,) = [line for line in done.output.splitlines() if line.startswith("::error ")]  # five equal faults
    assert re.fullmatch(r"::error file=[^:,]*mine\.py,title=handworked/two_heads and 4 more%3A wrong::first wrong: scores; .*", line)


def verdict(word: str, problem: str) -> dict:
    worst = {"array": "output", "index": [0, 0], "bound": 2.0, "largest": 1.0} if word == "undecided" else None
    nothing = dict.fromkeys(("contract", "evidence", "first_wrong_stage", "diagnosis"))
    return {"verdict": word, **nothing, "worst": worst, "problems": [problem]}


def test_what_github_and_junit_cannot_hold_is_escaped():
    cases = {"a/b": verdict("failed", "50 % <&> :: \\x1b"), "a/c": verdict("unsupported", "no")}
    (line,) = annotations(cases, ("unsupported",), Path("my,file:1.py"), 9)
    assert line == "::error file=my%2Cfile%3A1.py,title=a/b%3A failed::50 %25 <&> :: \\x1b\n"
    (error,) = xml.fromstring(junit(cases, (), 9)).iter("error")
    assert error.get("message") == "50 % <&> :: \\x1b"
    assert len(list(annotations(cases, (), None, 9))) == 2


def test_groups():
    cases = {
        "a/1": verdict("failed", "x"),
        "a/2": verdict("failed", "y"),
        "a/3": verdict("failed", "x"),
        "a/4": verdict("unsupported", "x"),
    }
    assert grouped(cases) == [["a/1", "a/3"], ["a/2"], ["a/4"]]
    right = verdict("right", "")
    assert grouped({"a/1": right, "a/2": right}) == [["a/1"], ["a/2"]]


def test_what_is_printed_is_shown(tmp_path: Path):
    (tmp_path / "mine.py").write_text("print('hello')\n" + RIGHT.read_text("utf-8"), "utf-8")
    done = command("judge", tmp_path / "mine.py", "--suite", "handworked")
    assert "hello" not in done.output and "--show-output shows them" in done.output
    done = command("judge", tmp_path / "mine.py", "--suite", "handworked", "--show-output")
    assert done.stderr == "== loading it\nhello\n"
    (tmp_path / "mine.py").write_text("print('hello')\nimport nothing_of_this_name\n", "utf-8")
    done = command("judge", tmp_path / "mine.py", "--show-output")
    assert done.exit_code == 2 and "hello\n" in done.stderr and done.stderr.count("nothing_of_this_name") == 1


# The other commands


def test_list():
    lines = command("list", "--suite", "handworked").output.splitlines()
    assert lines[0].startswith("handworked: ")
    assert [line.split()[0] for line in lines[1:]] == list(chosen(["handworked"], []).suites["handworked"]["cases"])
    assert set(re.findall(r"^(\w+): ", command("list").output, re.MULTILINE)) == set(shipped())


def test_show_prints_the_right_values():
    """The weights of the hand-worked case are those that its article prints."""
    text = command("show", "handworked/two_heads", "--digits", "4").output
    assert "weights: weights [2, 3, 3] float64" in text
    assert re.search(r"\s+".join(f"{x:.4g}".replace(".", "[.]") for x in DATA["printed_first_query"]["head0_weights"]), text)
    assert command("show", "handworked/nothing").exit_code == 2


def test_export(tmp_path: Path):
    done = command("export", tmp_path / "golden", "--case", "handworked/two_heads")
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "golden" / "handworked" / "manifest.json").read_bytes())
    entry = manifest["cases"]["two_heads"]["arrays"]["weights"]
    weights = np.load(tmp_path / "golden" / "handworked" / entry["file"])
    assert np.abs(weights[0, 0] - [0.2831, 0.4172, 0.2997]).max() < 5e-5
    done = command("export", tmp_path / "golden", "--suite", "handworked")
    assert done.exit_code == 2 and "is there already" in done.output


def test_exported_outputs_judged_are_right(tmp_path: Path):
    """What is exported has the layout of a submission, but for the name of a folder."""
    command("export", tmp_path / "golden", "--suite", "heads")
    for case in (tmp_path / "golden" / "heads" / "plain").iterdir():
        (tmp_path / "mine" / "heads").mkdir(parents=True, exist_ok=True)
        case.rename(tmp_path / "mine" / "heads" / case.name)
    assert command("judge", tmp_path / "mine", "--suite", "heads", "--contract", "float64").exit_code == 0


def test_from_cold():
    """The hand-worked suite in 1.5 s, of the processor and of the process that it starts together."""
    code = "from worked_attention.command import main; main()"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "scripts")}

    def seconds() -> float:
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code, "judge", RIGHT, "--suite", "handworked"], env=env, capture_output=True)
        after = os.times()
        assert done.returncode == 0, done.stderr
        return after.children_user + after.children_system - before.children_user - before.children_system

    began = time.monotonic()
    assert min(seconds() for _ in range(3)) < 1.5
    assert time.monotonic() - began < 60


# What a suite can tell

ALIKE = """
cases:
  alike:
    heads: 1
    parameters: {q: [[0.1, 0.2], [0.1, 0.2]], k: [[0.3, 0.1], [0.3, 0.1]], v: [[0.5, 0.5], [0.5, 0.5]]}
"""
TELLING = (
    ALIKE.replace("[0.3, 0.1], [0.3", "[0.3, 0.1], [-0.9")
    .replace("[0.5, 0.5], [0.5", "[0.5, 0.7], [-0.5")
    .replace("[0.1, 0.2], [0.1", "[0.1, 0.2], [0.8")
)
MEAN = """
import numpy as np
def attention(case, arrays):
    return np.broadcast_to(arrays["value"].mean(axis=-2), case["shapes"]["output"])
"""


def test_a_suite_that_cannot_tell_says_so(tmp_path: Path):
    kernel, suite = tmp_path / "kernel.py", tmp_path / "own.yaml"
    kernel.write_text(MEAN, "utf-8")
    suite.write_text(ALIKE, "utf-8")
    done = command("judge", kernel, "--suite", suite)
    assert done.exit_code == 0 and re.search(r"Warning: own: .* would notice \d+ of the \d+ known mistakes", done.stderr)
    suite.write_text(TELLING, "utf-8")
    done = command("judge", kernel, "--suite", suite)
    assert done.exit_code == 1 and "Warning" not in done.stderr


def test_large_cases_are_not_tried_in_passing(tmp_path: Path):
    """They are said to be left out, alone or beside small ones, and cost no more than what is judged."""
    kernel, suite = tmp_path / "kernel.py", tmp_path / "own.yaml"
    kernel.write_text(MEAN, "utf-8")
    numbers = ", ".join(f"{name}: {{normal: {{seed: {i}}}}}" for i, name in enumerate(("x", "w_q", "w_k", "w_v")))
    large = f"  large: {{heads: 1, sizes: {{Lq: 1, d_model: 600}}, parameters: {{{numbers}}}}}\n"
    suite.write_text(f"cases:\n{large}", "utf-8")
    done = command("judge", kernel, "--suite", suite)
    assert done.exit_code == 0 and done.stderr == (
        "own: is too large to tell in passing which known mistakes it would notice; `worked-attention power` does\n"
    )
    suite.write_text(ALIKE + large, "utf-8")
    done = command("judge", kernel, "--suite", suite)
    assert re.search(r"Warning: own: .* known mistakes that can be made in them \(1 large ones were not tried\)", done.stderr)


def test_the_power_of_own_cases(tmp_path: Path):
    found = {}
    for name, text in {"alike": ALIKE, "telling": TELLING}.items():
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
        said = command("power", "--suite", tmp_path / f"{name}.yaml").stdout
        found[name] = {
            way: (int(some), int(all_of_them)) for way, some, all_of_them in re.findall(r", ([\w ]+): (\d+) of (\d+) known", said)
        }
        assert list(found[name]) == ["all arrays", "output", "bfloat16", "float16"]
        assert said.count("\n  not ") == sum(all_of_them - some for some, all_of_them in found[name].values())
    for way, (some, all_of_them) in found["telling"].items():
        assert some > all_of_them / 2 > found["alike"][way][0]
    assert "not no_maximum: exponentials of scores that were not shifted" in said  # small scores need no shift, so nobody can tell
    assert "not softmax_twice" not in said
