"""The conformance matrix as facts, table and picture."""

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from conftest import run, with_suites

from worked_attention.cases.columns import libraries, references
from worked_attention.conformance.matrix import CONTRACTS, SHORT, patterns, picture, table, verdicts
from worked_attention.drawing.style import FAMILIES
from worked_attention.referee.bounds.contracts import halves
from worked_attention.stages.dtypes import DTYPES

NAMES = references()[1:]


def cells(**special: dict) -> dict:
    """The cells of a case in which all pass in two dtypes, but for the references named in `special` (with _ for .)."""
    found = {name: {dtype: {"verdict": "pass", "contract": dtype} for dtype in ("float64", "float32")} for name in NAMES[:-1]}
    return found | {name.replace("_", "."): dict.fromkeys(("float64", "float32"), cell) for name, cell in special.items()}


ROW = cells(
    torch_mha={"verdict": "convention", "contract": "float64", "empty_row": "nan", "reason": "follows empty_row: nan"},
    onnxruntime_cpu={"verdict": "pass", "contract": "float32", "empty_row": "zero"},
    torch_flex={"verdict": "unsupported", "reason": "has <no> softcap & more"},
)
FOUND = verdicts({"masks": {"alike": cells(), "row": ROW, "row_again": ROW}}, {"torch": "2.0", "onnx": "1.0", "numpy": "1"}, libraries())


def test_facts():
    assert FOUND["versions"] == {"torch": "2.0", "onnx": "1.0", "onnxruntime": None, "jax": None}
    assert FOUND["fully_masked_row"]["torch.mha"] == ["nan"]
    assert FOUND["fully_masked_row"]["onnxruntime.cpu"] == ["zero"]
    assert FOUND["fully_masked_row"]["torch.flex"] == FOUND["fully_masked_row"]["jax.nn"] == []
    assert [case["case"] for case in FOUND["cases"]] == ["alike", "row", "row_again"]
    assert FOUND["cases"][1]["cells"]["torch.flex"]["float32"] == {"verdict": "unsupported", "reason": "has <no> softcap & more"}


def test_table_has_a_line_for_each_cell():
    rows = list(csv.DictReader(io.StringIO(table(FOUND))))
    assert len(rows) == 3 * len(NAMES) * 2
    first = rows[2 * len(NAMES)]
    assert first == {
        "suite": "masks",
        "case": "row",
        "implementation": "torch.mha",
        "version": "2.0",
        "dtype": "float64",
        "verdict": "convention",
        "contract": "float64",
        "empty_row": "nan",
        "reason": "follows empty_row: nan",
    }
    assert {row["verdict"] for row in rows if row["implementation"] == "jax.nn"} == {"not installed"}


def test_only_cases_that_tell_are_drawn_and_like_ones_together():
    assert [[case["case"] for case in cases] for _, cases in patterns(FOUND)] == [["row", "row_again"]]


def test_picture_is_well_formed_and_names_what_a_masked_row_becomes():
    drawn = picture(FOUND)
    words = "\n".join(ElementTree.fromstring(drawn).itertext()).split("\n")
    assert {"NaN", "0", "row and 1 more", *SHORT.values()} <= set(words)
    assert "has &lt;no&gt; softcap &amp; more" in drawn
    assert "Rows: 1, of 2 cases; those of a suite with the same verdicts share one. Left out: 1, in which all do the same." in words
    assert drawn == picture(FOUND) and f'font-family="{FAMILIES}"' in drawn


def test_every_dtype_and_contract_has_a_sign():
    """What the comparisons say of half precisions: one of the named contracts, or that none holds."""
    assert list(SHORT) == list(DTYPES)
    named = [name for name, _, _ in halves("float16")]
    assert set(CONTRACTS) == {"float32", *named, "none"}
    for contract in (*named, "none"):
        half = {"torch.sdpa": {"float16": {"verdict": "pass", "contract": contract}}, "torch.mha": {"float16": {"verdict": "unsupported"}}}
        drawn = picture(verdicts({"masks": {"half": half}}, {}, libraries()))
        assert f">{CONTRACTS[contract][0]}</text>" in drawn and f"torch.sdpa in float16: pass, {contract}" in drawn


def test_each_case_in_each_dtype(project: Path):
    """A case that names no dtype is run in all four, one that does in its own."""
    with_suites(project)
    heads = {f"{name}_heads": {"normal": {"seed": i}} for i, name in enumerate("qkv")}
    plain = {"heads": 2, "sizes": {"Lq": 3, "Lk": 3, "d_k": 4}, "parameters": heads, "mask": {"keep": [[1, 1, 0], [0, 0, 0], [1, 0, 1]]}}
    large = {**plain, "parameters": {**heads, "k_heads": [[[1, 1e6, 0, 0], [0, 0, 1, 1], [1e6, 1, 1, 1]]] * 2}}
    cases = {"plain": plain, "half": {**plain, "dtype": "float16"}, "large": large}
    (project / "config" / "suites" / "tiny.yaml").write_text(json.dumps({"cases": cases}), "utf-8")
    done = run(project, "conformance")
    assert done.returncode == 0, done.stderr
    found = {case["case"]: case["cells"] for case in json.loads((project / "results" / "conformance.json").read_text("utf-8"))["cases"]}
    assert set(found["plain"]["torch.sdpa"]) == set(DTYPES) and set(found["half"]["torch.sdpa"]) == {"float16"}
    for dtype, cell in found["plain"]["torch.sdpa"].items():
        assert cell == {"verdict": "pass", "contract": dtype if not DTYPES[dtype].half else "float32 accumulation", "empty_row": "zero"}
    assert found["plain"]["torch.manual"]["bfloat16"]["verdict"] == "pass"
    assert found["large"]["torch.sdpa"]["bfloat16"]["verdict"] == "pass"
    assert "infinity" in found["large"]["torch.sdpa"]["float16"]["reason"], (
        "1e6 is infinite in float16, and a mask that is added lets it through"
    )
