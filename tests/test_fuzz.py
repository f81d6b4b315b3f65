"""Random cases for a kernel: they can be pasted, the right kernel passes all of them, and a wrong one is shown the smallest it fails."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from blockwise import FAULTS, asked
from click.testing import CliRunner, Result
from conftest import ROOT

from worked_attention.cases.chosen import chosen
from worked_attention.cases.options import schema
from worked_attention.command import main
from worked_attention.fuzzing import kernel, search
from worked_attention.fuzzing.cases import DTYPES, OPTIONS, REGIMES, Choose, Drawn, any_case, around
from worked_attention.fuzzing.search import Failure, Found, fuzz, randomly, resolved, suite
from worked_attention.referee.submissions import Sent

ALLOWED = ("undecided", "unsupported")
NOT_DRAWN = {  # what random cases do without, and why
    **dict.fromkeys(("title", "look", "source", "extends", "sweep", "tokens", "key_tokens", "claims"), "says nothing to a kernel"),
    "torch_draws": "parameters come from seeds",
    **dict.fromkeys(("precision", "backward", "upstream"), "a kernel shows its output only"),
    **dict.fromkeys(("scaled", "x_k", "x_v", "d_vv"), "queries, keys and values are handed over ready"),
    "empty_row": "NaN in place of 0 is a convention, and called one",
}


def command(*args: object) -> Result:
    done = CliRunner().invoke(main, [str(arg) for arg in args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def drawn(cases: int, seed: int = 0, block: int = 4) -> list[Drawn]:
    def make(choose: Choose) -> Drawn:
        return any_case(choose, block, DTYPES, list(OPTIONS))

    return [one for one, _ in randomly(make, cases, seed)]


def found(fault: str, dtype: str, cases: int, seed: int = 0) -> Found:
    return fuzz(asked(4, fault), {}, cases, seed, 4, ALLOWED, (dtype,))


# What is drawn


@pytest.fixture(scope="module")
def many() -> list[Drawn]:
    return drawn(1000)


def test_what_is_drawn_can_be_pasted(many: list[Drawn], tmp_path: Path):
    cases = many[:120]
    verdict = {"verdict": "wrong", "diagnosis": None, "first_wrong_stage": None, "problems": [], "convention": None}
    (tmp_path / "pasted.yaml").write_text(suite([Failure(one, verdict, 1) for one in cases], "All of them.", 9), "utf-8")
    pasted = chosen([str(tmp_path / "pasted.yaml")], []).suites["pasted"]["cases"]
    assert len(pasted) == len(cases)
    for one, case in zip(cases, pasted.values(), strict=True):
        described = {"suite": "fuzz", "name": "drawn", "title": "drawn"}
        assert case | described == resolved(one.raw)


def test_everything_is_drawn_but_what_is_named(many: list[Drawn]):
    """Each option, with each of its kinds, and each parameter, by its name in the schema."""
    cases, case = many, schema("suite")["$defs"]["case"]["properties"]
    said = [one.raw for one in cases]
    known = {(name,) for name in case if name not in ("mask", "parameters", "sizes")}
    known |= {(block, name) for block in ("mask", "parameters", "sizes") for name in case[block]["properties"]}
    missing = {place for place in known if not any(place[-1] in (raw if len(place) == 1 else raw.get(place[0], {})) for raw in said)}
    assert {place[-1] for place in missing} == set(NOT_DRAWN)
    kinds = [((name,), rule) for name, rule in case.items()] + [(("mask", name), rule) for name, rule in case["mask"]["properties"].items()]
    for place, rule in kinds:
        for kind in rule.get("enum", []):
            if kind != rule.get("default") and place[-1] not in NOT_DRAWN:
                assert any((raw if len(place) == 1 else raw.get(place[0], {})).get(place[-1]) == kind for raw in said), (place, kind)
    assert {regime for regime in REGIMES if any(regime in one.options for one in cases)} == set(REGIMES) - {"plain"}


@pytest.mark.parametrize("block", [2, 4, 16, 64, 100])
def test_lengths_lie_around_the_edges_of_blocks(block: int):
    lengths = around(block)
    assert {1, block - 1, block, block + 1, 2 * block, 2 * block + 1} <= set(lengths)
    assert min(lengths) == 1 and max(lengths) == 2 * block + 1 and lengths == sorted(lengths)
    assert len(lengths) < 100  # of larger ranges Hypothesis draws what stands in other modules


def test_all_edges_are_met_and_heads_come_in_odd_groups(many: list[Drawn]):
    raws = [one.raw for one in many]
    for side in ("Lq", "Lk"):
        assert {1, 3, 4, 5, 8, 9} <= {raw["sizes"][side] for raw in raws}
    assert len({(raw["sizes"]["Lq"], raw["sizes"]["Lk"]) for raw in raws}) > 36
    assert {(raw["heads"], raw["kv_heads"]) for raw in raws if "kv_heads" in raw} >= {(3, 1), (9, 3)}
    assert any(0 in raw.get("mask", {}).get("key_lengths", []) for raw in raws)


# What is found


def test_no_alarm_for_the_right_kernel():
    result = fuzz(asked(4), {}, 100, 1, 4, ALLOWED)
    assert not result.failures and result.counts["right"] > 60
    assert "mask.window" not in result.refused and {"softcap", "mask.keep", "x", "softmax: hardmax"} <= set(result.refused)
    assert not any(option.startswith("dtype") for option in result.refused)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("fault", "dtype", "holds"),
    [
        ("last queries not written", "float32", {"sizes": {"Lq": 1, "Lk": 1, "d_k": 2, "d_v": 2}}),
        ("sink joins in every block", "float32", {"parameters": "sinks"}),
        ("key heads taken in turn", "bfloat16", {"kv_heads": 2}),
    ],
)
def test_a_fault_is_found_and_shrunk(fault: str, dtype: str, holds: dict):
    """By the first failure of 80 cases; benchmarks/fuzz.py does it for all of them."""
    result = found(fault, dtype, 80)
    first = result.failures[0]
    raw = first.case.raw
    assert first.verdict["verdict"] == "wrong" and max(raw["sizes"]["Lq"], raw["sizes"]["Lk"]) <= 8
    assert all(wanted in raw[key] if isinstance(wanted, str) else raw[key] == wanted for key, wanted in holds.items()), raw
    assert raw["dtype"] == dtype and len(raw) <= 6
    assert sum(failure.alike for failure in result.failures) + result.others == result.counts["wrong"]


def test_two_faults_are_shown_apart():
    """Failures that lack something of the smallest case are of another kind."""
    kernel = asked(4)

    def ask(case: dict, given: dict) -> Sent:
        sent = kernel(case, given)
        for wrong in ("sinks" in given, case["heads"] > case["kv_heads"]):
            sent.arrays = {name: array + array.dtype.type(wrong) for name, array in sent.arrays.items()}
        return sent

    failures = fuzz(ask, {}, 80, 0, 4, ALLOWED, ("float64",)).failures
    assert [sorted(failure.case.options) for failure in failures] in ([["kv_heads"], ["sinks"]], [["sinks"], ["kv_heads"]])


def test_a_kernel_that_takes_nothing_alone_is_asked_all():
    def ask(case: dict, given: dict) -> Sent:
        return Sent(problems=["no"], word="unsupported")

    result = fuzz(ask, {}, 20, 0, 4, ALLOWED)
    assert result.counts == {"unsupported": 20} and not result.failures and not result.refused


# The command

KERNEL = """
import os, sys, time
sys.path.insert(0, {tests!r})
sys.path.insert(1, {scripts!r})
import blockwise
def attention(case, arrays):
    {first}
    return blockwise.attention(case, arrays, 4, {fault!r})
"""


def written(path: Path, fault: str = "", first: str = "pass") -> Path:
    text = KERNEL.format(tests=str(ROOT / "tests"), scripts=str(ROOT / "workflow" / "scripts"), first=first, fault=fault)
    path.write_text(text, "utf-8")
    return path


def test_what_is_found_replays_and_is_kept(tmp_path: Path):
    """Same bytes from the same seed, wherever it runs; the suite that is kept fails with the judge, and nothing else is written."""
    file, keep = written(tmp_path / "kernel.py", "last keys not read"), tmp_path / "kept.yaml"
    said = command("fuzz", file, "--cases", 30, "--block", 4, "--keep", keep)
    assert said.exit_code == 1 and re.search(r"^30 cases: \d+ wrong", said.stdout)
    assert said.stdout.endswith(keep.read_text("utf-8")) and "Refused, and drawn no more: q, k, v" not in said.stdout
    lines = keep.read_text("utf-8").splitlines()
    assert len(lines) < 15 and any(line.startswith("  # wrong: first wrong: ") for line in lines)
    judged = command("judge", file, "--suite", keep)
    assert judged.exit_code == 1 and "1 wrong" in judged.stdout
    (tmp_path / "empty").mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "scripts"), "PYTHONHASHSEED": "7", "TZ": "Asia/Taipei"}
    code = "from worked_attention.command import main; main()"
    again = [sys.executable, "-c", code, "fuzz", "../kernel.py", "--cases", "30", "--block", "4", "--digits", "9"]
    done = subprocess.run(again, cwd=tmp_path / "empty", env=env, capture_output=True, encoding="utf-8")
    assert done.stdout == said.stdout and not list((tmp_path / "empty").iterdir())
    assert command("fuzz", file, "--cases", 30, "--block", 4, "--seed", 1).stdout != said.stdout


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("if case['dims']['Lk'] > 4: raise ValueError('only', case['dims']['Lk'])", "# failed: raised ValueError"),
        ("if case['dims']['Lq'] > 4: os._exit(3)", "# failed: ended with code 3"),
        ("if case['dims']['Lk'] > 4: return arrays['query'].sum(axis=-1)", "# wrong: first wrong: "),
    ],
)
def test_a_kernel_that_ends_or_raises_is_shrunk_too(first: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "TRIES", 60)
    done = command("fuzz", written(tmp_path / "kernel.py", first=first), "--cases", 12, "--block", 4)
    assert done.exit_code == 1 and done.stdout.count("_1:\n") == 1 and says in done.stdout


def test_a_kernel_that_is_too_slow_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "SECONDS", 2)
    done = command("fuzz", written(tmp_path / "kernel.py", first="if case['dims']['Lk'] > 4: time.sleep(60)"), "--cases", 50, "--block", 4)
    assert done.exit_code == 1 and "# failed: took more than 2 seconds and was stopped" in done.stdout
    assert int(re.match(r"(\d+) cases?: ", done.stdout)[1]) < 50


@pytest.mark.parametrize(
    ("text", "args", "code", "says"),
    [
        ("", ["--cases", "5"], 2, "defines no function attention"),
        ("raise SystemExit", [], 2, "kernel.py: raised SystemExit"),
        ("def attention(case): raise NotImplementedError", ["--cases", "5", "--block", "4"], 1, "nothing was judged"),
        ("def attention(case): return None\nCONVENTIONS = {'empty_row': 'none'}", [], 2, "CONVENTIONS: empty_row is text (none)"),
        ("def attention(case): return None", ["--keep", "My-suite.yaml"], 2, "has small letters, digits and _, and ends in .yaml"),
        ("def attention(case): return None", ["--block", "1"], 2, "--block"),
        ("def attention(case): return None", ["--allow", "wrong"], 2, "should be of undecided, convention, unsupported"),
        (None, [], 2, "there is no such file or folder"),
    ],
)
def test_how_it_ends(text: str | None, args: list[str], code: int, says: str, tmp_path: Path):
    if text is not None:
        (tmp_path / "kernel.py").write_text(text, "utf-8")
    done = command("fuzz", tmp_path / "kernel.py", *args)
    assert done.exit_code == code and says in done.output, done.output
    assert command("fuzz", tmp_path).exit_code == 2


def test_a_right_kernel_ends_with_0_and_writes_nothing(tmp_path: Path):
    done = command("fuzz", written(tmp_path / "kernel.py"), "--cases", 15, "--block", 4, "--keep", tmp_path / "kept.yaml")
    assert done.exit_code == 0 and re.match(r"15 cases: \d+ ", done.stdout) and not (tmp_path / "kept.yaml").exists()
    strict = command("fuzz", written(tmp_path / "kernel.py"), "--cases", 30, "--block", 4, "--allow", "")
    assert strict.exit_code in (0, 1) and ("unsupported" in strict.stdout) == (strict.exit_code == 1)


def test_without_hypothesis_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("worked_attention.fuzzing")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    done = command("fuzz", written(tmp_path / "kernel.py"))
    assert done.exit_code == 2 and "fuzz needs hypothesis, which is not installed; pip install 'worked-attention[fuzz]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_fault_has_a_name_once():
    assert len(FAULTS) == len(set(FAULTS)) >= 24
    assert json.dumps(FAULTS)
