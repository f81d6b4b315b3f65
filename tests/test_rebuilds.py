"""What runs again after an edit: a small tree built once, copied for each test. What a run survives is in test_survive.py."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import contents, copy_project, run

from worked_attention.cases.suites import load_suite
from worked_attention.files.formats import read_array, write_array
from worked_attention.files.lost import lacking
from worked_attention.stages.whole import compute

DRAWN = """
references: [torch.mha, torch.sdpa, torch.manual]
cases:
  whole:
    heads: 2
    sizes: {Lq: 3, d_model: 4}
    parameters:
      x: {grid: {}}
      w_q: {normal: {seed: 1}}
      w_k: {normal: {seed: 2}}
      w_v: {normal: {seed: 3}}
      w_o: {normal: {seed: 4}}
  removed:
    extends: whole
    heads: 1
  last:
    extends: whole
    scale: 0.25
    claims: {scaled: {at: [0, 0, 0], values: "0.5"}}
"""
PLAIN = """
figures: none
references: [torch.mha, torch.sdpa, torch.manual]
cases:
  scores:
    parameters: {scaled: [[[0.5, 1.0], [2.0, 3.0]]], v: [[1.0], [2.0]]}
"""
STAGES = ["parameters", "projections", "scores", "weights", "contexts", "outputs"]
AFTER = {"truth", "comparison", "summary", "reported_pages", "front_page", "verdict"}


@pytest.fixture(scope="module")
def small(once: Callable) -> Path:
    """A tree with the suites `drawn` and `plain`, built with two cores."""

    def make(folder: Path) -> None:
        done = run(with_small_suites(copy_project(folder)))
        assert done.returncode == 0, done.stderr

    return once("small", make)


@pytest.fixture
def tree(small: Path, tmp_path: Path) -> Path:
    """A copy of the small tree with everything built."""
    return Path(shutil.copytree(small, tmp_path / "tree"))


def with_small_suites(project: Path) -> Path:
    suites = project / "config" / "suites"
    shutil.rmtree(suites)
    suites.mkdir()
    (suites / "drawn.yaml").write_text(DRAWN, encoding="utf-8")
    (suites / "plain.yaml").write_text(PLAIN, encoding="utf-8")
    return project


def pending(project: Path) -> dict[str, set[str]]:
    """What a run would make anew: the suites by rule, "" for a rule that serves all of them."""
    lines = [line.split("\t") for line in run(project, "--summary").stdout.splitlines()]
    made: dict[str, set[str]] = {}
    for output, _, rule, *_, plan in lines[1:]:
        if plan != "no update":
            folders = output.split("/")
            made.setdefault(rule, set()).add(folders[1] if len(folders) > 2 else "")
    return made


def results(project: Path) -> dict[str, bytes]:
    """Every result but the logs."""
    return {name: data for name, data in contents(project / "results").items() if not name.startswith("logs/")}


def written(project: Path) -> dict[str, int]:
    """When each result was last written."""
    return {name: (project / "results" / name).stat().st_mtime_ns for name in results(project)}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_second_run_has_nothing_to_do(tree: Path) -> None:
    before = written(tree)
    done = run(tree)
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr
    assert written(tree) == before


def test_editing_a_suite_or_its_array_reruns_that_suite(tree: Path) -> None:
    """Though the edited files are older than what was made of them."""
    before = written(tree)
    suite, array = tree / "config" / "suites" / "plain.yaml", tree / "config" / "suites" / "v.npy"
    write_array(array, np.array([[1.0], [2.0]]))
    edit(suite, "v: [[1.0], [2.0]]", "v: {file: v.npy}")
    edit(suite, "0.5", "0.75")
    os.utime(suite, (0, 0))
    assert pending(tree) == {
        **{rule: {"plain"} for rule in [*STAGES, "truth", "reference", "comparison", "reported_pages"]},
        "summary": {""},
        "front_page": {""},
        "verdict": {""},
    }
    assert run(tree).returncode == 0
    after = written(tree)
    untouched = {name for name in before if name.startswith(("drawn/", "questions/"))} | {"README.md", "environment.json"}
    assert {name for name in before if after[name] == before[name]} == untouched
    assert read_array(tree / "results/plain/parameters/scores/scaled.npy")[0, 0, 0] == 0.75
    assert pending(tree) == {}
    write_array(array, np.array([[1.0], [3.0]]))
    os.utime(array, (0, 0))
    assert pending(tree)["parameters"] == {"plain"}


@pytest.mark.parametrize("stage", STAGES)
def test_editing_a_stage_reruns_it_and_what_follows(tree: Path, stage: str) -> None:
    with open(tree / "workflow" / "scripts" / "worked_attention" / "stages" / f"{stage}.py", "a", encoding="utf-8") as module:
        module.write("# edited\n")
    expected = {*STAGES[STAGES.index(stage) :], *AFTER, "questions"}  # whose pages show what the judge says, too
    expected |= {"figures"} if stage not in ("contexts", "outputs") else set()
    expected |= {"reference", "environment"} if stage == "parameters" else set()  # what torch says of itself is noted by a reference
    assert set(pending(tree)) == expected


def test_an_edited_stage_is_run(tree: Path) -> None:
    before, numbers = written(tree), results(tree)
    with open(tree / "workflow" / "scripts" / "worked_attention" / "stages" / "contexts.py", "a", encoding="utf-8") as module:
        module.write("# edited\n")
    assert run(tree).returncode == 0
    suites = {name: when for name, when in written(tree).items() if name.startswith(("drawn/", "plain/"))}
    rewritten = {name.split("/")[1] for name, when in suites.items() if when != before[name]}
    assert rewritten == {"contexts", "outputs", "truth", "comparison", "pages"}
    assert results(tree) == numbers
    assert "Nothing to be done" in run(tree).stderr


SCRIPTS = ("workflow", "scripts")
PACKAGE = (*SCRIPTS, "worked_attention")


IDLE_EDITS = [
    ((*PACKAGE, "cases", "words.py"), "did you mean", "perhaps you mean"),
    ((*PACKAGE, "cases", "violations.py"), "unknown key", "no such key"),
    ((*PACKAGE, "cases", "sizes.py"), "should be", "ought to be"),
    ((*PACKAGE, "schemas", "suite.schema.yaml"), "The cases by name", "All cases by name"),
    ((*PACKAGE, "references", "jax_nn.py"), '"""jax.nn', '"""The jax.nn'),
    (("config", "suites", "plain.yaml"), "figures: none", "figures: none  # which are plain"),
    (("Snakefile",), "min_version", "min_version"),
]


def test_what_changes_no_result_reruns_nothing(tree: Path) -> None:
    """Words of messages, an adapter whose library no suite here asks for, comments of a suite, a new time of every file, and hidden files,
    which are no suites: all at once."""
    for path, old, new in IDLE_EDITS:
        edit(tree.joinpath(*path), old, new)
    for folder in ("workflow", "config", "envs"):
        for path in (tree / folder).rglob("*"):
            path.touch()
    for name in ("._drawn.yaml", "._drawn.yml"):
        (tree / "config" / "suites" / name).write_bytes(b"\x00\x05\x16\x07")
    assert pending(tree) == {}


def test_an_edited_adapter_reruns_its_own_library_only(tree: Path) -> None:
    edit(tree.joinpath(*PACKAGE, "references", "torch_mha.py"), '"""torch.mha', '"""The torch.mha')
    alone = {"summary": {""}, "verdict": {""}, "environment": {""}}  # what torch says of itself is noted by the first of these jobs
    alone |= {"front_page": {""}, "reported_pages": {"plain", "drawn"}}
    assert pending(tree) == {"reference": {"plain", "drawn"}, "comparison": {"plain", "drawn"}, **alone}


def test_what_changes_last_bits_reruns_all_stages(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or environment.json would tell of settings that the numbers were not made with."""
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX512F")
    again = pending(tree)
    assert all(again[stage] == {"plain", "drawn"} for stage in STAGES) and again["environment"] == {""}


def test_how_long_an_array_must_be_follows_its_own_dtype(tmp_path: Path) -> None:
    options = "    dtype: float32\n    precision: {scores: float16}\n    sizes: {Lq: 24, d_model: 4}\n    parameters: {x: {grid: {}}}\n"
    (tmp_path / "s.yaml").write_text(f"cases:\n  narrow:\n{options}", "utf-8")
    case = load_suite(tmp_path / "s.yaml", {})["cases"]["narrow"]
    folder = tmp_path / "scores"
    for name in case["arrays"]["scores"]:
        write_array(folder / "narrow" / f"{name}.npy", compute(case)[name])
    (folder / "narrow" / "stage.json").write_text("{}\n", "utf-8")
    assert lacking(folder, [case]) is None
    last = folder / "narrow" / "masked.npy"
    last.write_bytes(last.read_bytes()[:-1])
    assert lacking(folder, [case]) == "narrow/masked.npy"


def test_git_counts_where_code_changed_and_nowhere_else(tree: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid"]
        subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)

    (tree / ".gitignore").write_text("results\n.snakemake\n__pycache__\n", encoding="utf-8")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    assert run(tree).returncode == 0
    (tree / "notes.txt").touch()
    (tree / "config" / "suites" / "new.yaml.txt").touch()
    assert pending(tree) == {}
    edit(tree / "config" / "suites" / "plain.yaml", "0.5", "0.75")
    assert "environment" not in pending(tree)
    edit(tree / "profiles" / "default" / "config.yaml", "# ", "# # ")
    assert "environment" in pending(tree)


def test_lost_arrays_are_made_anew(tree: Path) -> None:
    """Each kind of loss in a folder of its own, all at once."""
    before, drawn = results(tree), tree / "results" / "drawn"
    (drawn / "parameters/whole/x.npy").unlink()
    (drawn / "projections/whole/q.npy").write_bytes(b"")
    (drawn / "scores/whole/qk.npy").write_bytes((drawn / "scores/whole/qk.npy").read_bytes()[:100])
    (drawn / "weights/whole/stage.json").unlink()
    shutil.rmtree(drawn / "contexts")
    done = run(tree)
    assert done.returncode == 0, done.stderr
    for lost in ("parameters has lost whole/x.npy", "projections has lost whole/q.npy", "scores has lost whole/qk.npy"):
        assert f"results/drawn/{lost}, and is made anew" in done.stderr
    assert "results/drawn/weights has lost whole/stage.json, and is made anew" in done.stderr
    assert "contexts has lost" not in done.stderr
    assert results(tree) == before
    assert "Nothing to be done" in run(tree).stderr


def test_a_run_of_some_suites_leaves_the_summary_of_all(tree: Path) -> None:
    before = results(tree)
    done = run(tree, "--config", "suites=[plain]")
    assert done.returncode == 0, done.stderr
    after = results(tree)
    assert {name: after[name] for name in before} == before
    some = json.loads(after["some-suites/summary.json"])
    assert list(some["suites"]) == ["plain"]
    assert pending(tree) == {}
    done = run(tree, "--report", "report.html")
    assert done.returncode == 0, done.stderr
    done = run(tree, "--report", "some.html", "--config", "suites=[plain]")
    assert done.returncode == 0, done.stderr
    done = run(tree, "--config", "suites=[drawn,plain]")  # all there are: no other place
    assert "Nothing to be done" in done.stderr


def test_pages_lead_home_to_a_front_page_that_is_there(tree: Path) -> None:
    def home(suite: str) -> Path:
        (page,) = (tree / "results" / suite / "pages").glob("[sw]*.html")
        return page.parent / re.search(r'<p class="crumbs"><a href="([^"]*)">', page.read_text("utf-8"))[1]

    (tree / "results" / "index.html").unlink()  # as if all suites had never been run
    assert run(tree, "--config", "suites=[plain]").returncode == 0
    assert home("plain").resolve() == (tree / "results/some-suites/index.html").resolve() and home("plain").is_file()
    assert "Nothing to be done" in run(tree, "--config", "suites=[plain]").stderr
    assert run(tree).returncode == 0
    assert home("plain").resolve() == home("drawn").resolve() == (tree / "results/index.html").resolve()
    assert pending(tree) == {} and "Nothing to be done" in run(tree).stderr


def test_the_front_page_names_what_other_targets_made_as_long_as_it_is_there(tree: Path) -> None:
    front, made = tree / "results" / "index.html", tree / "results" / "power.csv"
    assert 'href="power.csv"' not in front.read_text("utf-8")
    made.write_text("case\n", "utf-8")
    assert set(pending(tree)) == {"front_page", "verdict"}
    assert run(tree).returncode == 0
    assert 'href="power.csv"' in front.read_text("utf-8") and pending(tree) == {}
    made.unlink()
    assert run(tree).returncode == 0
    assert 'href="power.csv"' not in front.read_text("utf-8")


def test_a_report_before_any_run_is_refused(project: Path) -> None:
    done = run(with_small_suites(project), "--report", "report.html")
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1].startswith("Error: there is nothing to report yet")


def test_a_removed_case_leaves_nothing_behind(tree: Path) -> None:
    assert any("removed" in name for name in results(tree))
    suite = tree / "config" / "suites" / "drawn.yaml"
    suite.write_text(re.sub(r"  removed:\n(    .*\n)+", "", DRAWN), encoding="utf-8")
    assert run(tree).returncode == 0
    left = results(tree)
    assert not [name for name in left if "removed" in name]
    assert not [name for name, data in left.items() if name.endswith((".json", ".html", ".txt")) and b"removed" in data]
    assert {name.split("/")[2] for name in left if name.startswith("drawn/weights/")} == {"whole", "last"}
