"""An array that only its own stage knows, or that is not as its case says, ends a run."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, copy_project, run, with_suites
from shipped import all_shipped
from strategies import resolved

from worked_attention.files.artifacts import objection
from worked_attention.referee.bounds.contracts import roundoffs
from worked_attention.referee.bounds.rounding import Boundless
from worked_attention.referee.bounds.whole import bounds, centres
from worked_attention.referee.truth.whole import truth
from worked_attention.references import torch_manual
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE
from worked_attention.stages.whole import compute

FOLDER = ROOT / "config" / "suites"
HEADS = {"sizes": {"Lq": 2, "d_k": 2}, "parameters": {name: {"grid": {}} for name in ("q_heads", "k_heads", "v_heads")}}

SMALL = {"figures": "none", "references": ["torch.manual"], "cases": {"only": HEADS}}


def covering() -> list[dict]:
    """Shipped cases that torch.manual runs and that have every array of the catalogue between them, as few as are found quickly."""
    suites = all_shipped()
    cases = [case for suite in suites.values() for case in suite["cases"].values() if suite["references"] != "none"]
    cases = [case for case in cases if torch_manual.supports(case) is None and case["mask"]["empty_row"] != "error"]
    left, chosen = set(CATALOGUE), []
    while left:
        best = max(cases, key=lambda case: len(left & set(case["shapes"])))
        assert left & set(best["shapes"]), f"no shipped case has {sorted(left)}"
        chosen.append(best)
        left -= set(best["shapes"])
    return chosen


@pytest.mark.parametrize("case", covering(), ids=lambda case: f"{case['suite']}/{case['name']}")
def test_every_array_has_truth_bound_and_an_independent_reference(case: dict):
    ours = compute(case, FOLDER)
    made = {name for stage, names in case["arrays"].items() if stage != "parameters" for name in names}
    given = {name: ours[name] for name in case["arrays"]["parameters"]}
    assert set(truth(case, ours)) == made
    assert set(bounds(case, centres(case, ours), *roundoffs(case))) == made
    assert made - set(given) <= set(torch_manual.run(case, given))


def test_arrays_that_are_not_those_of_the_stage_are_refused():
    case = resolved({**HEADS, "dtype": "float32"})
    made = {name: array for name, array in compute(case).items() if name in case["arrays"]["weights"]}
    assert objection(case, "weights", made) is None
    assert objection(case, "weights", made | {"weights": made["weights"].astype(np.float16)}) == "weights is float16, should be float32"
    assert objection(case, "weights", {}) == "weights is missing"
    assert objection(case, "weights", made | {"lse": made["weights"]}) == "lse is not of this case"


def test_an_array_without_bound_is_no_exact_one():
    case = resolved(HEADS)
    arrays = compute(case)
    case["arrays"]["weights"].append("lse")
    with pytest.raises(Boundless, match="lse"):
        bounds(case, arrays | {"lse": arrays["weights"]}, *roundoffs(case))


def test_an_array_without_truth_is_told():
    case = resolved(HEADS)
    case["arrays"]["weights"].append("lse")
    case["shapes"]["lse"] = case["shapes"]["weights"]
    with pytest.raises(NotImplementedError, match="lse"):
        truth(case, compute(resolved(HEADS)))


def with_a_new_array(project: Path, bound: bool) -> None:
    """A log-sum-exp with the constant 42, in the catalogue and in its stage, and with a made-up bound and truth if `bound`."""
    package = project / "workflow" / "scripts" / "worked_attention"

    def edit(path: str, old: str, new: str) -> None:
        text = (package / path).read_text("utf-8")
        assert old in text, path
        (package / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    edit(
        "stages/catalogue.py",
        '    "dropped": _array(',
        '    "lse": _array("weights", "... H Lq Lk", "log of the denominator", "masked", always),\n    "dropped": _array(',
    )
    edit(
        "stages/weights.py",
        '    if "dropout_keep" in arrays:',
        '    made["lse"] = np.full_like(made["weights"], 42)\n    if "dropout_keep" in arrays:',
    )
    if bound:
        edit(
            "referee/bounds/weights.py",
            '    KINDS[of.case["softmax"]](of)',
            '    KINDS[of.case["softmax"]](of)\n    of.bound["lse"] = None',
        )
        edit("referee/truth/weights.py", "    return made", '    made["lse"] = np.full_like(made["weights"], arb(42))\n    return made')


@pytest.mark.parametrize(("bound", "line"), [(False, "truth has no formula for lse"), (True, "no independent reference shows lse")])
def test_a_new_array_that_no_route_knows_ends_the_run(tmp_path: Path, bound: bool, line: str):
    project = copy_project(tmp_path / "project")
    with_a_new_array(project, bound)
    (with_suites(project) / "config" / "suites" / "small.yaml").write_text(json.dumps(SMALL), "utf-8")
    done = run(project)
    assert done.returncode != 0
    assert f"small/only: {line}" in done.stdout + done.stderr
    assert not (project / "results" / "verdict.txt").exists()


def test_every_boolean_array_is_of_the_catalogue():
    assert set(BOOLEAN) <= set(CATALOGUE)
