"""The default run as a user starts it: what it prints, what it writes, and what it says when a comparison fails."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from conftest import contents, run

from worked_attention.cases.columns import references
from worked_attention.cases.suites import load_suite
from worked_attention.files.artifacts import Kept, read_cases
from worked_attention.files.formats import read_array, write_array
from worked_attention.files.lost import lacking
from worked_attention.files.summary import failure_lines, table
from worked_attention.references.registry import ON_REQUEST

CASES = {
    "handworked": ["two_heads", "one_head", "without_bias", "without_output_projection", "permuted_tokens", "batched"],
    "tutorial": ["identity_attention", "seeded_projection", "seeded_multihead", "figure_1_2", "figure_3_2"],
}
VERDICTS = ["passed", "failed", "undecided", "convention", "unsupported"]
STAGES = ["parameters", "projections", "scores", "weights", "contexts", "outputs"]
USUAL = [name for name in references() if name not in ON_REQUEST]
TORCH = [name for name in USUAL if name.startswith("torch.")]
LOADED = re.compile(r"""<(script|link|img|iframe|source|object)\b[^>]*\b(src|href|data)\s*=\s*["']?\s*(https?:)?//""", re.IGNORECASE)


def strict(path: Path) -> dict:
    """A JSON file; NaN and infinity are refused, as a strict reader does."""
    return json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)


def comparison(project: Path, suite: str, case: str) -> dict:
    return strict(project / "results" / suite / "comparison" / f"{case}.json")


@pytest.fixture
def summary(built: Path) -> dict:
    return strict(built / "results" / "summary.json")


def test_the_table_stands_on_the_terminal(first_run: tuple[Path, subprocess.CompletedProcess]) -> None:
    project, done = first_run
    assert done.returncode == 0, done.stderr
    table = (project / "results" / "verdict.txt").read_text("utf-8")
    assert table in done.stdout
    head, _, handworked, tutorial, *_ = table.splitlines()
    assert head.split("  ")[0] == "suite" and head.split()[1:] == ["cases", "claims", "errata", "truth", *VERDICTS]
    assert handworked.split()[:5] == ["handworked", "6", "51", "0", "6"]
    assert tutorial.split()[:5] == ["tutorial", "5", "25", "21", "5"]
    counts = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.startswith("torch.")}
    assert counts["torch.mha"] == ["7", "0", "0", "0", "4"] and counts["torch.manual"] == ["11", "0", "0", "0", "0"]
    assert max(map(len, table.splitlines())) <= 100
    assert "nothing" not in table and done.stdout.rstrip().endswith("results/{suite}/{stage}/{case}/")
    assert "tutorial/figure_1_2 weights[0, 0, 0]: printed 0.83, right 0.92" in table


def test_summary(summary: dict) -> None:
    assert set(summary) == {"format", "suites", "errata", "failures", "sampled"}
    assert summary["failures"] == []
    for suite, cases in CASES.items():
        entry = summary["suites"][suite]
        assert set(entry) == {"cases", "claims", "references"}
        assert entry["cases"] == len(cases)
        assert set(entry["claims"]) == {"checked", "errata"}
        assert list(entry["references"]) == USUAL
        assert all(sum(counts.values()) == len(cases) for counts in entry["references"].values())
    for reference, counts in summary["suites"]["handworked"]["references"].items():
        assert counts == {"pass": 6} or counts == {"not installed": 6} and reference not in ("truth", *TORCH)


def test_a_row_for_every_case(built: Path, summary: dict) -> None:
    table = strict(built / "results" / "cases.json")
    rows = {(row["suite"], row["case"]): row for row in table["cases"]}
    assert list(rows) == [(suite, case) for suite, cases in CASES.items() for case in cases] and table["format"] == 1
    for (suite, case), row in rows.items():
        references = comparison(built, suite, case)["references"]
        assert list(row) == list(table["columns"])
        assert {name: row[f"{name}.verdict"] for name in references} == {name: result["verdict"] for name, result in references.items()}
        assert row["truth.max_abs"] == max(array["max_abs"] for array in references["truth"]["arrays"].values())
        weights = np.load(built / "results" / suite / "weights" / case / "weights.npy").astype(float)
        assert row["largest_weight"] == weights.max() and row["entropy"] == pytest.approx(
            -np.mean(np.sum(weights * np.log(weights), axis=-1))
        )
    assert sum(row["errata"] for row in rows.values()) == len(summary["errata"])
    text = (built / "results" / "cases.csv").read_text("utf-8-sig").splitlines()
    assert len(text) == 1 + len(rows) and text[0] == ",".join(table["columns"])
    assert 'href="cases.csv"' in (built / "results" / "index.html").read_text("utf-8")


def test_errata(summary: dict) -> None:
    found = [(erratum["suite"], erratum["case"], erratum["array"]) for erratum in summary["errata"]]
    assert found.count(("tutorial", "figure_1_2", "weights")) == 8
    assert found.count(("tutorial", "figure_3_2", "weights")) == 13
    assert len(found) == 21
    for erratum in summary["errata"]:
        assert set(erratum) == {"suite", "case", "array", "index", "printed", "right", "rounded"}
        assert f"{erratum['right']:.2f}" == erratum["rounded"] != erratum["printed"]


@pytest.mark.parametrize(("suite", "case"), [(suite, case) for suite, cases in CASES.items() for case in cases])
def test_comparison(built: Path, suite: str, case: str) -> None:
    compared = comparison(built, suite, case)
    assert list(compared["references"]) == USUAL
    assert compared["first_divergence"] is None
    for reference in compared["references"].values():
        assert reference["verdict"] in ("pass", "unsupported", "not installed")
        assert (reference["verdict"] == "pass") == bool(reference["arrays"])
        for array in reference["arrays"].values():
            if array["verdict"] == "pass":
                assert set(array) == {"max_abs", "ulp", "gate", "verdict", "evidence"} and array["evidence"] in ("certified", "typical")
                assert array["max_abs"] <= {"float64": 1e-12, "float32": 1e-5}[reference.get("contract", compared["dtype"])]
                assert array["gate"] >= 0 and array["ulp"] >= 0
            else:
                assert array == {"max_abs": None, "ulp": None, "gate": None, "verdict": "not exposed"}


def test_every_stage_is_compared(built: Path) -> None:
    case = strict(built / "results" / "handworked" / "parameters" / "two_heads" / "case.json")
    computed = {name for stage in STAGES[1:] for name in case["arrays"][stage]}
    references = comparison(built, "handworked", "two_heads")["references"]
    passed = {name: {a for a, result in r["arrays"].items() if result["verdict"] == "pass"} for name, r in references.items()}
    assert passed["torch.manual"] == computed
    assert passed["torch.mha"] == {"weights", "output", "sequence_first.weights", "sequence_first.output"}
    assert passed["torch.sdpa"] == {"contexts", "concat", "output"}


def test_the_exact_numbers_lie_beside_ours(built: Path) -> None:
    """(exact, radius) of each element: no more than float64 rounds, for the balls are far narrower."""
    truth = built / "results" / "handworked" / "truth" / "truth.npz"
    ours = np.load(built / "results" / "handworked" / "outputs" / "two_heads" / "output.npy")
    exact, radius = np.moveaxis(np.load(truth)["two_heads/output"], -1, 0)
    assert exact.shape == ours.shape and np.abs(exact - ours).max() < 1e-14
    assert (radius > 0).all() and (radius <= 2.0**-52 * np.abs(exact)).all()


def test_every_json_is_strict(built: Path) -> None:
    paths = list((built / "results").rglob("*.json"))
    assert len(paths) > 60
    for path in paths:
        strict(path)


def test_every_array_is_described(built: Path) -> None:
    paths = [path for suite in CASES for stage in STAGES for path in (built / "results" / suite / stage).rglob("*.npy")]
    assert {path.parts[-4] for path in paths} == set(CASES)
    for path in paths:
        array, stage = np.load(path, allow_pickle=False), strict(path.with_name("stage.json"))
        assert (stage["suite"], stage["stage"], stage["case"]) == path.parts[-4:-1]
        assert set(stage["arrays"]) == {other.stem for other in path.parent.glob("*.npy")}
        described = stage["arrays"][path.stem]
        assert (described["shape"], described["dtype"]) == (list(array.shape), array.dtype.name)
        assert len(described["axes"]) == array.ndim
        assert described["formula"]
        assert np.array_equal(np.array(described["values"], dtype=array.dtype), array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(6, dtype="f4").reshape(2, 3).T,
        np.arange(8.0)[::2],
        np.array([[True, False]]),
        np.zeros((0, 3)),
    ],
)
def test_arrays_are_written_as_numpy_writes_them(tmp_path: Path, array: np.ndarray) -> None:
    write_array(tmp_path / "ours.npy", array)
    np.save(tmp_path / "theirs.npy", np.ascontiguousarray(array))
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    again = read_array(tmp_path / "ours.npy")
    assert again.dtype == array.dtype and np.array_equal(again, array)


def test_a_stage_reads_what_it_asks_for_and_no_more(built: Path, tmp_path: Path) -> None:
    """Of arrays that are not asked for nothing is read, so that they may be lost, and that is seen when one is."""
    copied = shutil.copytree(built / "results" / "handworked" / "projections", tmp_path / "projections")
    case = strict(built / "results" / "handworked" / "parameters" / "two_heads" / "case.json")
    (copied / "two_heads" / "q.npy").unlink()
    kept = Kept([copied], case)
    assert list(kept) == case["arrays"]["projections"] and len(kept) == 6 and "x" not in kept and kept.get("x") is None
    assert np.array_equal(kept["v_heads"], np.load(copied / "two_heads" / "v_heads.npy"))
    assert kept["v_heads"] is kept["v_heads"]
    with pytest.raises(SystemExit, match=r"projections/two_heads has lost q\.npy"):
        dict(kept)


def test_python_objects_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Object arrays"):
        write_array(tmp_path / "objects.npy", np.array([None]))
    assert not list(tmp_path.iterdir())


def test_case_json(built: Path) -> None:
    results = built / "results" / "handworked"
    case = strict(results / "parameters" / "two_heads" / "case.json")
    assert case["parameter_count"] == 80
    counted = {"parameters": 0, "projections": 144, "scores": 36, "weights": 0, "contexts": 36, "outputs": 48, "backward": 0}
    assert case["multiply_adds"] == counted
    for stage in STAGES:
        arrays = {path.stem: np.load(path) for path in (results / stage / "two_heads").glob("*.npy")}
        assert list(case["arrays"][stage]) == sorted(arrays, key=list(case["arrays"][stage]).index)
        assert case["bytes"][stage] == sum(array.nbytes for array in arrays.values())
        assert {name: case["shapes"][name] for name in arrays} == {name: list(array.shape) for name, array in arrays.items()}


def test_the_first_sequence_of_a_batch_is_as_it_is_alone(built: Path) -> None:
    results = built / "results" / "handworked"
    for stage, array in (
        ("projections", "q_heads"),
        ("scores", "qk"),
        ("weights", "weights"),
        ("contexts", "concat"),
        ("outputs", "output"),
    ):
        alone, batch = (np.load(results / stage / case / f"{array}.npy") for case in ("two_heads", "batched"))
        assert batch.shape == (2, *alone.shape)
        np.testing.assert_allclose(batch[0], alone, rtol=0, atol=1e-15)


def test_permuted_tokens_permute_the_outputs(built: Path) -> None:
    outputs = built / "results" / "handworked" / "outputs"
    straight, permuted = (np.load(outputs / case / "output.npy") for case in ("two_heads", "permuted_tokens"))
    np.testing.assert_allclose(permuted, straight[[2, 0, 1]], rtol=0, atol=1e-15)


def test_as_far_as_the_weights(project: Path) -> None:
    assert run(project, "results/handworked/weights").returncode == 0
    made = {name.rsplit("/", 2)[0] for name in contents(project / "results") if name.endswith("stage.json")}
    assert made == {f"handworked/{stage}" for stage in ("parameters", "projections", "scores", "weights")}
    assert not (project / "results" / "summary.json").exists()


def test_one_suite_alone(project: Path) -> None:
    done = run(project, "--summary", "--config", "suites=[handworked]")
    outputs = [line.split("\t")[0] for line in done.stdout.splitlines()[1:]]
    assert "results/handworked/comparison" in outputs
    assert "results/some-suites/verdict.txt" in outputs
    assert not [output for output in outputs if "tutorial" in output]


def test_a_failed_comparison_is_written_and_fails_the_run(built: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(built, tmp_path / "project"))
    config = project / "config" / "config.yaml"
    usual = config.read_text("utf-8")
    config.write_text("suites: [handworked]\ngates: {rule: absolute, float64: 1e-300}\n", encoding="utf-8")
    for _ in range(2):  # and again, for nothing was mended
        done = run(project)
        assert done.returncode != 0
        assert re.search(
            r"Error: handworked/two_heads: torch\.\w+ first diverges in stage \w+: \S+ differs by \S+ \(gate 1e-300\)", done.stderr
        )
        assert "Traceback" not in done.stdout + done.stderr
    assert not (project / "results" / "verdict.txt").exists()
    failures = strict(project / "results" / "summary.json")["failures"]
    assert failures and all(
        set(f) == {"suite", "case", "reference", "stage", "array", "max_abs", "ulp", "gate", "evidence"} for f in failures
    )
    compared = comparison(project, "handworked", "two_heads")
    assert compared["first_divergence"]["stage"] in STAGES
    assert "fail" in {result["verdict"] for reference in compared["references"].values() for result in reference["arrays"].values()}
    config.write_text(usual, encoding="utf-8")
    assert run(project).returncode == 0  # with the usual gates it passes again
    assert contents(project / "results")["summary.json"] == contents(built / "results")["summary.json"]


def test_a_run_in_a_pipe_is_short(first_run: tuple[Path, subprocess.CompletedProcess]) -> None:
    _, done = first_run
    lines = (done.stderr + done.stdout).splitlines()
    assert len(lines) <= 80 and max(map(len, lines)) <= 120
    assert "\r" not in done.stderr + done.stdout and "message: None" not in done.stderr


def test_a_run_on_a_terminal_shows_how_far_it_is(built: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(built, tmp_path / "project"))
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--forcerun", "projections", "--config", "suites=[handworked]"]
    with subprocess.Popen(command, cwd=project, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        seen = b""
        with contextlib.suppress(OSError):  # the terminal is closed when the last process that writes to it ends
            while part := os.read(screen, 4096):
                seen += part
    os.close(screen)
    text = seen.decode("utf-8")
    assert process.returncode == 0, text
    assert re.search(r"\r\x1b\[K\[#+\.+\] [1-9]\d* of \d+ jobs done, now \w+", text)
    table = (project / "results" / "some-suites" / "verdict.txt").read_text("utf-8")
    left = re.sub(r"[^\n]*\r\x1b\[K", "", text.replace("\r\n", "\n"))  # what a line is overwritten with is what one sees
    assert table in left and left.index(table) > left.rfind("jobs done")
    assert left.rstrip().endswith("results/{suite}/{stage}/{case}/")


@pytest.fixture
def failing(project: Path) -> Path:
    """A project whose one case ends stage weights with an error."""
    shutil.rmtree(project / "config" / "suites")
    (project / "config" / "suites").mkdir()
    suite = "references: none\nfigures: none\ncases:\n  blind:\n    mask: {keep: [[0, 0]], empty_row: error}\n"
    suite += "    parameters: {scaled: [[[0.5, 1.0]]], v: [[1.0], [2.0]]}\n"
    (project / "config" / "suites" / "small.yaml").write_text(suite, "utf-8")
    return project


def test_the_line_of_a_failed_job_is_the_last(failing: Path) -> None:
    done = run(failing)
    assert done.returncode != 0
    *_, rule, line = done.stderr.splitlines()
    assert re.fullmatch(r"\w+ of small failed, says results/logs/small/\w+\.log:", rule)
    assert line.startswith("small/blind: stage ") and (failing / rule.split()[-1][:-1]).read_text("utf-8") == line + "\n"
    for noise in ("message: None", "empty file", "Traceback", "At least one job"):
        assert noise not in done.stderr


@pytest.mark.parametrize(
    ("first_line", "last"),
    [
        ("import nothing_of_that_name", r"Error: \w+ of small failed before it could open its log; what Python said of it stands above"),
        ("import os; os.kill(os.getpid(), 9)", r"Error: \w+ of small was stopped from outside \(.*9.*\), perhaps for want of memory"),
    ],
)
def test_a_job_that_ends_without_a_log_is_told(failing: Path, first_line: str, last: str) -> None:
    script = failing / "workflow" / "scripts" / "projections.py"
    script.write_text(f"{first_line}\n{script.read_text('utf-8')}", "utf-8")
    done = run(failing)
    assert done.returncode != 0
    assert re.fullmatch(last, done.stderr.splitlines()[-1])


def test_braces_in_the_path_of_the_project_are_refused_in_a_line(project: Path, tmp_path: Path) -> None:
    done = run(project.rename(tmp_path / "{mine}"), "--dry-run")
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert re.fullmatch(r"Error: .*/\{mine\} has braces in its path, .*; move the project", done.stderr.splitlines()[-1])


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_run_says_so_in_a_line(failing: Path, times: int) -> None:
    script = failing / "workflow" / "scripts" / "projections.py"
    script.write_text(f"import time\nopen('begun', 'w').close()\ntime.sleep(60)\n{script.read_text('utf-8')}", "utf-8")
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    with subprocess.Popen(command, cwd=failing, stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True) as process:
        while not (failing / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        for _ in range(times):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C on a terminal: to all of them
            time.sleep(0.1)
        *_, line = (said := process.communicate()[1]).splitlines()
    assert process.returncode != 0 and "Traceback" not in said
    assert line == "Error: interrupted; the same command goes on from there"


def test_scores_that_are_kept_in_half_as_many_bytes_have_lost_nothing(tmp_path: Path) -> None:
    (suite := tmp_path / "narrow.yaml").write_text(
        "cases: {a: {dtype: float32, precision: {scores: float16}, sizes: {Lq: 40, d_model: 4}, parameters: {x: {grid: {}}}}}", "utf-8"
    )
    (folder := tmp_path / "scores" / "a").mkdir(parents=True)
    (folder / "stage.json").write_text("{}", "utf-8")
    for name in ("qk", "scaled", "masked"):
        np.save(folder / f"{name}.npy", np.zeros((1, 40, 40), np.float16))
    cases = load_suite(suite, {})["cases"].values()
    assert lacking(folder.parent, cases) is None
    np.save(folder / "scaled.npy", np.zeros((1, 30, 40), np.float16))
    assert lacking(folder.parent, cases) == "a/scaled.npy"


@pytest.mark.parametrize("damage", ["missing", "empty", "cut short"])
def test_what_a_stage_has_lost_is_named(built: Path, tmp_path: Path, damage: str) -> None:
    results = Path(shutil.copytree(built / "results" / "handworked", tmp_path / "handworked"))
    cases = [strict(results / "parameters" / name / "case.json") for name in CASES["handworked"]]
    assert all(lacking(results / stage, cases) is None for stage in STAGES)
    path = results / "weights" / "batched" / "weights.npy"
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else 150])
    assert lacking(results / "weights", cases) == "batched/weights.npy"
    if damage == "missing":
        inputs = Inputs(parameters=str(results / "parameters"), weights=str(results / "weights"))
        with pytest.raises(SystemExit, match=r"handworked/weights/batched has lost weights\.npy"):
            list(read_cases(inputs))


class Inputs(dict):
    """What snakemake.input is to a script, as far as `read_cases` needs it."""

    __getattr__ = dict.__getitem__


def test_the_table_tells_the_verdicts_apart() -> None:
    counts = {"truth": {"pass": 2, "fail": 1}, "a.b": {"pass": 1, "undecided": 1, "unsupported": 1}, "c.d": {"not installed": 3}}
    suite = {"cases": 3, "claims": {"checked": 0, "errata": 0}, "references": counts}
    alone = {"cases": 1, "claims": {"checked": 0, "errata": 0}, "references": {}}
    lines = table(
        {"suites": {"a_name_that_no_table_can_hold": suite, "alone": alone}, "errata": [], "failures": [], "sampled": []}, "page"
    ).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[2].split() == ["a_name_that_no_...", "3", "0", "0", "2", "1", "0", "1", "0", "1"]
    assert lines[3].split() == ["alone", "1", "0", "0", *"-" * 6]
    assert [line.split() for line in lines if line.startswith("truth ")] == [["truth", "2", "1", "0", "0", "0"]]
    assert lines[-1] == "not installed: c.d (pip install -r envs/requirements-references.txt)"
    absent = {"references": {name: {"not installed": 3} for name in ("onnx.reference", "onnxruntime.cpu", "jax.nn")}}
    sampled = [{"suite": "s", "case": "c", "queries": 20, "of": 4096}]
    lines = table({"suites": {"all_absent": alone | absent}, "errata": [], "failures": [], "sampled": sampled}, "page").splitlines()
    assert max(map(len, lines)) <= 100 and "  s/c: 20 of 4,096 queries" in lines
    at = lines.index("not installed: onnx.reference, onnxruntime.cpu, jax.nn")
    assert lines[at + 1] == "(pip install -r envs/requirements-references.txt)"  # one line, to be copied
    many = [{"suite": "s", "case": f"c{i}", "reference": "a.b", "stage": "scores", "array": "qk", "reason": "is odd"} for i in range(99)]
    told = failure_lines(many, "summary.json")
    assert told[0] == "Error: s/c0: a.b first diverges in stage scores: qk is odd" and told[-1] == "and 75 more, in summary.json"


def test_a_zipped_report_has_the_pages_of_long_suites_too(built: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(built, tmp_path / "project"))
    rules = project / "workflow" / "rules" / "pages.smk"
    text = rules.read_text("utf-8")
    assert "FEW = 8 " in text
    rules.write_text(text.replace("FEW = 8 ", "FEW = 5 "), "utf-8")  # handworked has six cases
    for name in ("report.html", "report.zip"):
        done = run(project, "--report", name)
        assert done.returncode == 0, done.stderr
    page = (project / "report.html").read_text("utf-8")
    assert "figure_1_2.html" in page and "two_heads.html" not in page
    with ZipFile(project / "report.zip") as packed:
        pages = {Path(name).name for name in packed.namelist()}
    assert {"figure_1_2.html", "two_heads.html", "index.html"} <= pages


def test_report_opens_without_a_network(built: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(built, tmp_path / "project"))
    done = run(project, "--report", "report.html")
    assert done.returncode == 0, done.stderr
    page = (project / "report.html").read_text("utf-8")
    assert not LOADED.search(page)
    assert "url(http" not in page and "@import" not in page
    assert "two_heads" in page and "figure_1_2" in page
