"""Adapters of real libraries and the page about them: what the page says, and, where a library is installed, that it still says so."""

import ast
import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ROOT

from worked_attention.cases.chosen import chosen
from worked_attention.referee.report import judge_all
from worked_attention.referee.submissions import Submission

sys.path.insert(0, str(ROOT / "examples" / "libraries"))

import matrix  # noqa: E402

PAGE = (ROOT / "docs" / "libraries.md").read_text("utf-8")
ADAPTERS = [f"{library}/{adapter}" for library in matrix.libraries() for adapter in matrix.adapters(library)]
CASES = (
    *("heads/grouped", "masks/more_queries_than_keys", "masks/empty_row_*", "scores/alibi", "scores/softcap_before_bias"),
    *("positions/rotary_interleaved", "positions/rotary_base", "positions/rotary_yarn", "masks/layer_empty_row_is_nan"),
)


def section(name: str) -> str:
    """What the page says of an adapter that is not right."""
    return PAGE.split(f"\n### {name}\n")[1].split("\n### ")[0]


def test_there_are_enough():
    assert len(matrix.libraries()) >= 10 and len(ADAPTERS) >= len(matrix.libraries())


def test_the_page_has_each_adapter_with_its_versions():
    rows = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert [line.split("[")[1].split("]")[0] for line in rows] == ADAPTERS
    for name, row in zip(ADAPTERS, rows, strict=True):
        library = name.partition("/")[0]
        assert all(f"{package} {version}" in row for package, version in matrix.versions(library).items())
        assert row.count("|") == len(matrix.SUITES) + 3 and f"\n### {name}\n" in PAGE
    assert set(matrix.SUITES) <= {path.stem for path in (ROOT / "config" / "suites").glob("*.yaml")}


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_is_short_and_says_what_it_is(name: str):
    text = (matrix.HERE / f"{name}.py").read_text("utf-8")
    assert ast.get_docstring(ast.parse(text)) and len(text.splitlines()) <= 50


@pytest.mark.parametrize("line", ["flax", "flax>=0.12", "flax==0.12.*", "flax==0.12.8,<1"])
def test_what_is_not_pinned_is_refused(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "flax").mkdir()
    (tmp_path / "flax" / "requirements.txt").write_text(f"jax==0.10.2\n{line}\n", "utf-8")
    monkeypatch.setattr(matrix, "HERE", tmp_path)
    with pytest.raises(ValueError, match="each line should be PACKAGE==VERSION"):
        matrix.versions("flax")


def test_a_loose_version_of_npm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "requirements.txt").write_text("onnx==1.23.2\n", "utf-8")
    (tmp_path / "js" / "package.json").write_text(json.dumps({"dependencies": {"a": "1.2.3", "b": "^1.0.0"}}), "utf-8")
    monkeypatch.setattr(matrix, "HERE", tmp_path)
    with pytest.raises(ValueError, match="b should have one version"):
        matrix.versions("js")


FAULTS = {  # what other people's reports and our own tries had found, by adapter; the page has to say each
    "equinox/rotary": "wrong**: projections: what you sent equals: rotation with base 10000",
    "x_transformers/grouped": "key and value heads repeated as 0, 1, 0, 1 where 0, 0, 1, 1 is right",
    "x_transformers/attend": "the softcap after the bias",
    "x_transformers/alibi": "ALiBi with the last query at the last key",
    "x_transformers/causal": "follows empty_row: nan",
    "transformers/mpt_alibi": "ALiBi counted from the last key (a constant more in each row, which the softmax does not see)",
    "keras/layer": "follows empty_row: uniform",
    "keras/layer_with_scores": "follows empty_row: zero",
    "javascript/tfjs": "follows empty_row: nan",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_known_fault_stands_on_the_page_by_name(name: str):
    assert FAULTS[name] in section(name)


def verdict(word: str, **more: object) -> dict:
    nothing = dict.fromkeys(("contract", "evidence", "convention", "first_wrong_stage", "diagnosis", "worst"))
    return nothing | {"verdict": word, "problems": [], "stages": {}} | more


WRONG = verdict(
    "wrong",
    first_wrong_stage="scores",
    diagnosis={"mistakes": [], "sentence": "what you sent equals: no scale (within 1e-6)"},
    worst={"array": "masked", "index": [0], "got": 2.0, "expected": 1.0, "bound": 1e-9, "largest": 3.0},
)
FOUND = {
    "masks/a": verdict("right", contract="float32"),
    "masks/b": WRONG,
    "masks/c": WRONG,
    "heads/d": verdict("convention", convention="empty_row: nan", contract="float32"),
    "heads/e": verdict("unsupported", problems=["needs bias"]),
    "scores/f": verdict("failed", problems=["raised ValueError: no"]),
    "scores/g": WRONG | {"diagnosis": None},
}


def test_verdicts_become_cells_and_reasons():
    assert matrix.cell(FOUND, "masks") == "1 right<br>2 wrong"
    assert matrix.cell(FOUND, "heads") == "1 convention"
    assert matrix.cell(FOUND, "cache") == "–"
    assert matrix.reasons(FOUND) == [
        "- **wrong**: scores: what you sent equals: no scale (`masks/b and 1 more`)",
        "- **wrong**: first wrong: scores; masked[0] is 2, should be 1 (`scores/g`)",
        "- **failed**: raised ValueError: no (`scores/f`)",
        "- **convention**: follows empty_row: nan (`heads/d`)",
    ]


def test_a_verdict_that_nobody_has_heard_of_is_refused():
    with pytest.raises(ValueError, match="no verdict is called passable"):
        matrix.cell({"masks/a": verdict("passable")}, "masks")
    with pytest.raises(ValueError, match="no verdict is called passable"):
        matrix.reasons({"masks/a": verdict("passable")})


def test_the_page_says_what_did_not_run_and_what_was_not_judged():
    found = {"flax/attention": FOUND, "mlx/attention": "cannot be installed: no wheel", "mlx/rotary": {"heads/e": FOUND["heads/e"]}}
    pins = {"flax": {"flax": "1", "jax": "2"}, "mlx": {"mlx": "3"}}
    text = matrix.page(found, pins, "2026-01-02", "3.11", "x86_64")
    assert "on 2026-01-02, with Python 3.11 on x86_64" in text and "| flax 1, jax 2 |" in text
    assert "### mlx/attention\n\n- **not run**: cannot be installed: no wheel\n" in text
    assert "### mlx/rotary\n\n- nothing was judged\n" in text


def test_the_version_that_the_tests_install_is_that_of_the_page():
    pinned = matrix.versions("rotary_embedding_torch")["rotary-embedding-torch"]
    assert f"rotary-embedding-torch=={pinned}\n" in (ROOT / "envs" / "requirements-test.txt").read_text("utf-8")


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_with_its_library_is_as_the_page_says(name: str):
    """What is installed has to come to reasons that stand on the page; for the tests that is one small library."""
    library = name.partition("/")[0]
    if (matrix.HERE / library / "package.json").exists():
        pytest.skip("needs packages of npm")
    for package, version in matrix.versions(library).items():
        try:
            there = metadata.version(package.partition("[")[0]).partition("+")[0]  # such as 2.13.0+cpu
        except metadata.PackageNotFoundError:
            pytest.skip(f"{package} is not installed")
        if there != version:
            pytest.skip(f"{package} is {there}, the page has {version}")
    found = chosen((), CASES)
    verdicts = judge_all(Submission(matrix.HERE / f"{name}.py", found.suites, found.folders, found.others), found.suites)["cases"]
    assert any(case["verdict"] != "unsupported" for case in verdicts.values())
    said = section(name)
    for line in matrix.reasons(verdicts):
        assert line.rpartition(" (`")[0] in said
