"""The profile for Slurm, on a Slurm of one node that the test starts here: accounting is off, as Slurm's own default is, or on."""

import os
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import slurm
from conftest import contents, copy_project, run

from worked_attention.slurm import refusal
from worked_attention.terminal import cause

LACKING = slurm.missing() or ("" if find_spec("snakemake_executor_plugin_slurm") else "pip install -r envs/requirements-slurm.txt")
SLURM = pytest.mark.skipif(bool(LACKING), reason=f"no Slurm here (apt-get install slurm-wlm munge): {LACKING}")
ACCOUNTING = pytest.mark.skipif(
    bool(slurm.missing(*slurm.ACCOUNTING)),
    reason=f"no accounting here (apt-get install slurmdbd mariadb-server-core): {slurm.missing(*slurm.ACCOUNTING)}",
)
CASE = "references: none\nfigures: none\ncases:\n  one:\n    parameters: {scaled: [[[0.5, 1.0]]], v: [[1.0], [2.0]]}\n"
SUITES = {"right": CASE, "held": CASE, "wrong": f"{CASE}    mask: {{keep: [[0, 0]], empty_row: error}}\n"}
TARGETS = ["results/right/contexts", "results/held/weights", "results/wrong/weights"]
WAITS = "import time; time.sleep(600 * (snakemake.wildcards.suite == 'held'))\n"


@pytest.mark.slow
@SLURM
@pytest.mark.parametrize("accounting", [False, pytest.param(True, marks=ACCOUNTING)])
def test_a_suite_that_is_right_one_that_fails_and_one_that_is_cancelled(tmp_path: Path, accounting: bool) -> None:
    """Each ends, also where sacct says nothing: with the bytes of a local run, with the words of the case, with those of Slurm."""
    project = copy_project(tmp_path / "project")
    for suite in (project / "config" / "suites").glob("*.yaml"):
        suite.unlink()
    for name, text in SUITES.items():
        (project / "config" / "suites" / f"{name}.yaml").write_text(text, "utf-8")
    script = project / "workflow" / "scripts" / "weights.py"
    script.write_text(WAITS + script.read_text("utf-8"), "utf-8")
    local = Path(shutil.copytree(project, tmp_path / "local"))
    assert run(local, TARGETS[0], cores=1).returncode == 0

    with slurm.cluster(tmp_path / "slurm", accounting) as env:
        assert subprocess.run(["sacct"], env={**os.environ, **env}, capture_output=True).returncode == (0 if accounting else 1)
        command = [sys.executable, "-m", "snakemake", "--profile", "profiles/slurm", "--keep-going", *TARGETS]
        command += ["--slurm-init-seconds-before-status-checks", "3"]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8"}
        with subprocess.Popen(command, cwd=project, env={**os.environ, **env}, **piped) as process:
            deadline = time.monotonic() + 600
            while not (project / "results/held/scores").exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
            logs = (project / ".snakemake" / "slurm_logs").rglob("*.log")
            (held,) = [log for log in logs if "suite=held" in log.read_text("utf-8").split("Building DAG")[0]]
            slurm.asked(env, "scancel", held.stem)
            said, _ = process.communicate(timeout=600)

    assert process.returncode == 1, said
    assert "weights.log:\nwrong/one: stage weights: 1 rows have no key left, and the case says empty_row: error\n" in said
    found = re.search(r"^Error: the cluster ended its job for \w+ of held and 3 others; (.+) says: (.+)$", said, re.MULTILINE)
    assert found, said
    assert Path(found[1]) == held and re.search(rf"(JOB|STEP) {held.stem}\b.* CANCELLED", found[2])
    for noise in ("Traceback", "stopped from outside", "At least one job"):
        assert noise not in said
    assert contents(project / "results/right") == contents(local / "results/right") != {}
    assert not (project / "results/wrong/weights").exists() and not (project / "results/held/weights").exists()


@pytest.mark.parametrize(
    "told",
    [
        "slurmstepd: error: *** JOB 1 ON vm CANCELLED AT 2026-12-01T15:26:32 ***",
        "slurmstepd-vm: error: *** JOB 1 ON vm CANCELLED AT 2026-12-01T15:26:32 ***",  # 22.05
        "[2026-12-01T15:26:32.016] error: *** JOB 1 ON vm CANCELLED AT 2026-12-01T15:26:32 DUE to SIGNAL Terminated ***",  # 26.05
    ],
)
def test_why_slurm_ended_a_job(tmp_path: Path, told: str) -> None:
    """The first error of Slurm's own, and not what Snakemake or srun say of it."""
    log = tmp_path / "1.log"
    rest = "[Tue Dec  1 15:26:32 2026]\nError in rule scores:\n    message: None\nsrun: got SIGCONT\n"
    log.write_text(f"{rest}{told}\nsrun: error: Timed out waiting for job step to complete\n", "utf-8")
    assert cause(log) == f"{log} says: {told}"
    log.write_text(rest, "utf-8")
    assert cause(log) == cause(tmp_path / "none").replace("none", "1.log") == f"{log} does not say why"


NONE, NULL, DATABASE = "accounting_storage/none", "(null)", "accounting_storage/slurmdbd"  # (null) is what Slurm says from 23.11 on


@pytest.mark.parametrize(
    "accounts, age, told",
    [(NONE, 10, True), (NULL, 179, True), (NONE, 0, True), (NONE, 180, False), (NULL, 300, False), (DATABASE, 10, False)],
)
def test_a_slurm_that_forgets_how_jobs_ended_is_refused(accounts: str, age: int, told: bool) -> None:
    """As it says of itself; 0 is for ever, but the executor takes it for too short."""
    said = refusal(f"AccountingStorageType   = {accounts}\nMaxJobCount             = 10000\nMinJobAge               = {age} sec\n")
    assert bool(said) == told and "\n" not in said
    assert f"MinJobAge is {age} seconds" in said or not told
    assert refusal("slurm_load_ctl_conf error: Unable to contact slurm controller") == ""  # sbatch says so itself


@pytest.mark.slow
@SLURM
def test_that_refusal_is_one_line_before_any_job(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    with slurm.cluster(tmp_path / "slurm", accounting=False, settings="MinJobAge=10\n") as env:
        done = run(project, "--profile", "profiles/slurm", "results/handworked/weights", cores=1, env=env)
    assert done.returncode == 1
    said = re.search("^Error: .*", done.stderr, re.MULTILINE)
    assert said and "MinJobAge is 10 seconds" in said[0] and done.stderr.rstrip().endswith(said[0])
    assert "Traceback" not in done.stderr and not (project / "results/handworked").exists()
