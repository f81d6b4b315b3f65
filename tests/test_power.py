"""The power of the shipped suites: no known mistake passes all of them."""

import json
from pathlib import Path

import pytest
from conftest import ROOT, run

from worked_attention.cases.suites import load_suite
from worked_attention.referee.mistakes.library import LIBRARY
from worked_attention.referee.power import caught
from worked_attention.stages.whole import compute

FOLDER = ROOT / "config" / "suites"
SUITES = ("handworked", "heads", "masks", "scores", "positions", "softmax", "cache", "gradients", "field_cases_2")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_mistake_is_caught_at_its_stage():
    waiting = dict(LIBRARY)
    for suite in SUITES:
        for case in load_suite(FOLDER / f"{suite}.yaml", {"max_array_mb": 256})["cases"].values():
            right = compute(case, FOLDER)
            waiting = {name: mistake for name, mistake in waiting.items() if not caught(case, right, mistake)}
    assert not waiting


def test_rule_power(project: Path):
    for suite in (project / "config" / "suites").glob("*.yaml"):
        if suite.stem not in ("handworked", "softmax"):
            suite.unlink()
    done = run(project, "power")
    assert done.returncode == 0, done.stderr
    assert "caught by no case: rotary_left_out, no rotation" in done.stdout
    matrix = json.loads((project / "results" / "power.json").read_text("utf-8"))
    assert matrix["mistakes"]["divided_by_sqrt_d_model"]["stage"] == "scores"
    assert "handworked/two_heads" in matrix["mistakes"]["divided_by_sqrt_d_model"]["caught"]
    assert "rotary_left_out" in matrix["uncaught"] and "not_scaled" not in matrix["uncaught"]
    assert "handworked/two_heads" not in matrix["nothing_new"] and "handworked/one_head" in matrix["nothing_new"]
    rows = (project / "results" / "power.csv").read_text("utf-8").splitlines()
    assert rows[0] == "mistake,stage,case,word"
    assert "divided_by_sqrt_d_model,scores,handworked/two_heads,caught" in rows
