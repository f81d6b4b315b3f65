"""The profile for Slurm, on a Slurm of one node that the test starts here: accounting is off, as Slurm's own default is, or on."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import slurm
from conftest import contents, copy_project, run

pytest.importorskip("snakemake_executor_plugin_slurm", reason="the executor is optional; pip install -r envs/requirements-slurm.txt")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here (apt-get install slurm-wlm munge): {slurm.missing()}"),
]

ACCOUNTING = pytest.mark.skipif(
    bool(slurm.missing(*slurm.ACCOUNTING)),
    reason=f"no accounting here (apt-get install slurmdbd mariadb-server): {slurm.missing(*slurm.ACCOUNTING)}",
)
CASE = "references: none\nfigures: none\ncases:\n  one:\n    parameters: {scaled: [[[0.5, 1.0]]], v: [[1.0], [2.0]]}\n"
SUITES = {"right": CASE, "held": CASE, "wrong": f"{CASE}    mask: {{keep: [[0, 0]], empty_row: error}}\n"}
TARGETS = ["results/right/contexts", "results/held/weights", "results/wrong/weights"]
WAITS = "import time; time.sleep(600 * (snakemake.wildcards.suite == 'held'))\n"


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
    assert found and Path(found[1]) == held and re.search(rf"(JOB|STEP) {held.stem}\b.* CANCELLED", found[2])
    for noise in ("Traceback", "stopped from outside", "At least one job"):
        assert noise not in said
    assert contents(project / "results/right") == contents(local / "results/right") != {}
    assert not (project / "results/wrong/weights").exists() and not (project / "results/held/weights").exists()
