"""The conformance matrix as facts, table and picture."""

import csv
import io
import xml.etree.ElementTree as ElementTree

from matrix import SHORT, patterns, picture, table, verdicts
from referee.bounds import CONTRACTS

NAMES = ("torch.mha", "torch.sdpa", "torch.flash", "torch.flex", "torch.manual", "onnx.reference", "onnxruntime.cpu", "jax.nn")


def comparison(case: str, dtype: str = "float64", **special) -> dict:
    """A comparison in which all pass, but for the references named in `special` (with _ for .)."""
    results = {name: {"verdict": "pass", "contract": dtype, "arrays": {}, "first_divergence": None} for name in NAMES}
    results |= {name.replace("_", "."): result for name, result in special.items()}
    return {"suite": "masks", "case": case, "dtype": dtype, "references": results, "claims": [], "first_divergence": None}


ALIKE = comparison("alike")
ROW = comparison(
    "row",
    torch_mha={"verdict": "convention", "contract": "float64", "empty_row": "nan", "reason": "follows empty_row: nan"},
    jax_nn={"verdict": "convention", "contract": "float32", "empty_row": "uniform", "reason": "follows empty_row: uniform"},
    torch_sdpa={"verdict": "pass", "contract": "float64", "empty_row": "zero"},
    torch_flex={"verdict": "unsupported", "reason": "has <no> softcap & more"},
    onnx_reference={"verdict": "not installed"},
)
FOUND = verdicts([ALIKE, ROW, {**ROW, "case": "row_again"}], {"torch": "2.0", "jax": "0.1", "numpy": "1"})


def test_every_contract_has_a_sign():
    """What the comparisons say of half precisions: one of the named contracts, or that none holds."""
    for contract in (*CONTRACTS, "none"):
        half = comparison("half", "float16", jax_nn={"verdict": "pass", "contract": contract}, torch_mha={"verdict": "unsupported"})
        assert f"✓ {SHORT[contract]}" in picture(verdicts([half], {}))


def test_facts():
    assert FOUND["versions"] == {"torch": "2.0", "onnx": None, "onnxruntime": None, "jax": "0.1"}
    assert FOUND["fully_masked_row"]["torch.mha"] == ["nan"]
    assert FOUND["fully_masked_row"]["jax.nn"] == ["uniform"]
    assert FOUND["fully_masked_row"]["torch.flex"] == []
    assert FOUND["cases"][1]["cells"]["torch.mha"] == {
        "verdict": "convention",
        "contract": "float64",
        "empty_row": "nan",
        "reason": "follows empty_row: nan",
    }


def test_table_has_a_line_for_each_cell():
    rows = list(csv.DictReader(io.StringIO(table(FOUND))))
    assert len(rows) == 3 * len(NAMES)
    assert rows[8] | {"reason": ""} == {
        "suite": "masks",
        "case": "row",
        "dtype": "float64",
        "implementation": "torch.mha",
        "version": "2.0",
        "verdict": "convention",
        "contract": "float64",
        "empty_row": "nan",
        "reason": "",
    }


def test_only_cases_that_tell_are_drawn_and_like_ones_together():
    assert [[case["case"] for case in cases] for _, cases in patterns(FOUND)] == [["row", "row_again"]]


def test_picture_is_well_formed_and_names_what_a_masked_row_becomes():
    drawn = picture(FOUND)
    words = "\n".join(ElementTree.fromstring(drawn).itertext()).split("\n")
    assert {"NaN", "0", "mean of V", "row and 1 more, f64"} <= set(words)
    assert "has &lt;no&gt; softcap &amp; more" in drawn
    assert drawn == picture(FOUND)
