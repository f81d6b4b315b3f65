"""results/cases.csv and cases.json: a row for each case, with numbers known from elsewhere, which a spreadsheet opens as it is meant."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from strategies import resolved

from worked_attention.cases.columns import columns, numbers, options, references
from worked_attention.cases.suites import load_suite
from worked_attention.referee.compare import Gate
from worked_attention.referee.exactness import against_exact
from worked_attention.stages.weights import row_entropy
from worked_attention.studies.cases import row, spreadsheet

NOBODY = {"references": {}, "claims": []}
EQUAL = {"heads": 2, "parameters": {"q": [[0, 0], [0, 0]], "k": [[1, 2]] * 4, "v": [[1, 2]] * 4}}  # all scores are 0


def case(**raw: object) -> dict:
    return {**resolved({**EQUAL, **raw}), "extends": None, "sweep": None}


def array(**told: object) -> dict:
    return {"max_abs": None, "ulp": None, "gate": None, "verdict": "pass"} | told


def test_a_row_has_every_column_and_counts_what_is_known():
    """Equal weights of four keys: entropy ln 4. Two heads of one column each: 2·2·4 multiply-adds for q·k and as many for the contexts."""
    found = row(case(title="T"), np.full((2, 2, 4), 0.25), NOBODY)
    assert list(found) == list(columns()) and set(numbers()) < set(found)
    assert found["entropy"] == pytest.approx(np.log(4), rel=1e-15) and found["largest_weight"] == 0.25
    assert found["multiply_adds"] == 2 * (2 * 2 * 4) and found["parameters"] == 0 and found["bytes"] % 8 == 0
    assert (found["title"], found["heads"], found["scale"], found["Lq"], found["Lk"], found["d_k"]) == ("T", 2, "1/sqrt(d_k)", 2, 4, 1)
    assert found["truth.verdict"] is found["truth.max_abs"] is found["softcap"] is found["rotary.base"] is None
    assert found["mask.empty_row"] == "zero" and found["uses"] == "heads" and found["sweep"] is None


def test_options_are_told_as_the_case_has_them():
    rotary = {"pairing": "half", "scaling": {"rule": "linear", "factor": 2}}
    turned = case(heads=1, rotary=rotary, mask={"causal": "top_left", "window": {"left": 1}}, softcap=30, dtype="float32")
    found = row(turned, np.eye(2, 4)[None], NOBODY)
    told = (
        "rotary.pairing",
        "rotary.scaling.factor",
        "mask.causal",
        "mask.window.left",
        "mask.window.align",
        "softcap",
        "precision.scores",
    )
    assert [found[name] for name in told] == ["half", 2, "top_left", 1, "top_left", 30, "float32"]
    assert found["entropy"] == 0 and found["rotary.scaling.low"] is None


def test_the_largest_error_is_that_over_all_arrays():
    arrays = {"qk": array(max_abs=1e-9, ulp=2.0), "weights": array(max_abs=3e-9, ulp=0.5), "bias": array(verdict="not exposed")}
    compared = {"truth": {"verdict": "fail", "arrays": arrays}, "torch.mha": {"verdict": "unsupported", "arrays": {}}}
    claims = [{"agrees": True}, {"agrees": False}, {"agrees": True}]
    found = row(case(), np.full((2, 2, 4), 0.25), {"references": compared, "claims": claims})
    assert (found["truth.verdict"], found["truth.max_abs"], found["truth.ulp"]) == ("fail", 3e-9, 2.0)
    assert (found["torch.mha.verdict"], found["torch.mha.max_abs"], found["torch.sdpa.verdict"]) == ("unsupported", None, None)
    assert (found["claims"], found["errata"]) == (3, 1)


def test_weights_that_are_no_numbers_are_spelled_and_scores_have_no_entropy():
    weights = np.full((2, 2, 4), 0.25)
    weights[0, 0] = np.nan
    assert row(case(mask={"empty_row": "nan"}), weights, NOBODY)["entropy"] == "NaN"
    assert row(case(softmax="none"), weights, NOBODY)["entropy"] is None
    assert row_entropy(np.array([0.5, 0.5, 0])) == pytest.approx(np.log(2))


@pytest.mark.parametrize("title", ["=1+1", "+1", "-A1", "@SUM(A1)", "\t=1", '=HYPERLINK("http://x"),"', 'a, "b"', "√d_k", "plain"])
def test_no_title_is_a_formula(title: str):
    """As a spreadsheet reads it: UTF-8 by its mark, quoted, and a text that a formula could begin with after an apostrophe."""
    rows = [row(case(title=title, scale=-0.5), np.full((2, 2, 4), 0.25), NOBODY)]
    data = spreadsheet(rows).encode("utf-8")
    assert data.startswith(b"\xef\xbb\xbfsuite,case,title,")
    (read,) = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    assert list(read) == list(columns())
    formula = title[0] in "=+-@\t"
    assert read["title"] == "'" * formula + title and rows[0]["title"] == title
    assert read["scale"] == "-0.5" and read["mask.fill"] == "'-inf" and read["softcap"] == ""  # a number stays one
    assert not any(value[:1] in ("=", "+", "@", "\t", "\r") for value in read.values())


def test_a_sweep_tells_its_choices(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "cases:\n  s:\n    sizes: {Lq: 2, d_model: 2}\n    sweep: {parameters.x.normal.seed: [3], mask.causal: [null]}\n", "utf-8"
    )
    made = load_suite(path, {"max_array_mb": 1})["cases"]["s_seed_3_no_causal"]
    found = row(made, np.eye(2)[None], NOBODY)
    assert (found["sweep"], found["choices"]) == ("s", "parameters.x.normal.seed: 3; mask.causal: null")


def test_columns_are_the_options_and_the_references_of_the_schema():
    guide = (ROOT / "config" / "README.md").read_text("utf-8")
    assert all(f"| `{name}` |" in guide for name in options())
    assert {"heads", "scale", "mask.causal", "rotary.scaling.factor", "dropout"} <= set(options())
    assert references()[0] == "truth" and {"torch.sdpa", "jax.nn"} <= set(references())


def test_units_in_the_last_place_are_those_of_our_dtype():
    """One float32 step at 1, though the exact numbers are float64."""
    exact = np.array([1 + 2.0**-23, 0.5])
    assert against_exact(np.array([1, 0.5], np.float32), exact, np.zeros(2), Gate(1e-6))["ulp"] == 1
    assert against_exact(np.array([1, 0.5]), exact, np.zeros(2), Gate(1e-6))["ulp"] == 2.0**29
