"""environment.json: all that the design lists, nothing that tells whose machine it is, and written anew when it changes."""

import getpass
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, run, with_suites

from worked_attention.files.environment import VARIABLES, describe, git_state, installed, libraries, variables, without_paths
from worked_attention.files.formats import write_json

LOCK = ROOT / "envs" / "requirements.txt"
NO_GIT = {"commit": None, "code_dirty": None}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """environment.json as it is written here."""
    path = tmp_path_factory.mktemp("facts") / "environment.json"
    write_json(path, describe(NO_GIT, LOCK, libraries()))
    return json.loads(path.read_bytes(), parse_constant=pytest.fail)


def test_what_it_holds(facts: dict) -> None:
    assert facts["python"]["version"] == platform.python_version()
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["system"]["name"] == platform.system()
    assert facts["cpu"]["logical"] >= 1
    assert facts["numpy"]["libraries"]["blas"]["name"]
    assert set(facts["numpy"]["simd"]) >= {"baseline", "found"}
    assert any(pool["user_api"] == "blas" and pool["num_threads"] >= 1 for pool in facts["thread_pools"])
    assert facts["torch"]["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert any("PyTorch built with" in line for line in facts["torch"]["config"])
    assert any("get_num_threads" in line for line in facts["torch"]["parallel"])
    assert set(facts["variables"]) == set(VARIABLES)
    assert facts["modes"]["torch_deterministic_algorithms"] is False
    assert facts["modes"]["numpy_flushes_denormals"] is False
    assert facts["git"] == NO_GIT
    assert facts["lock"] == {"file": "requirements.txt", "sha256": hashlib.sha256(LOCK.read_bytes()).hexdigest()}


def test_every_pinned_package_is_there(facts: dict) -> None:
    pinned = [line.partition("==")[0].lower() for line in LOCK.read_text("utf-8").splitlines() if "==" in line]
    assert len(pinned) > 5
    assert set(pinned) <= {name.lower().replace("_", "-") for name in facts["packages"]}


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="only Linux tells")
def test_processor(facts: dict) -> None:
    assert facts["cpu"]["flags"] == sorted(facts["cpu"]["flags"]) != []


def test_no_names_and_no_paths(facts: dict) -> None:
    text = json.dumps(facts, ensure_ascii=False)
    assert not re.search(r"(?<!\w)[/\\]{1,2}\w+[/\\]|-[IL]/|[A-Za-z]:\\\\", text)
    for secret in (str(Path.home()), str(ROOT), sys.prefix):
        assert secret not in text or secret == "/"
    for name in (getpass.getuser(), platform.node()):
        assert not name or not re.search(rf"\b{re.escape(name)}\b", text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/usr/lib/libblas.so.3", "libblas.so.3"),
        ("CXX=/usr/bin/c++, FLAGS=-I/usr/include -O2", "CXX=c++, FLAGS=-Iinclude -O2"),
        (r"c:\lib\blas.dll", "blas.dll"),
        ("ATen/Parallel: 2024.2-Product, 3 / 4", "ATen/Parallel: 2024.2-Product, 3 / 4"),
        ({"a": ["/x/y", 1, None]}, {"a": ["y", 1, None]}),
    ],
)
def test_without_paths(text, left) -> None:
    assert without_paths(text) == left


def test_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b-2.0.dist-info", "a-1.0.dist-info", "a"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path), str(tmp_path / "none"), ""])
    monkeypatch.chdir(tmp_path)
    assert installed() == [f"python-{platform.python_version()}", "a-1.0.dist-info", "b-2.0.dist-info"]


def test_of_a_package_that_is_there_twice_the_imported_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("first", "1.0"), ("second", "2.0")):
        metadata = tmp_path / folder / f"twice-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: twice\nVersion: {version}\n", "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    assert describe({}, ROOT / "envs/requirements.txt", {})["packages"]["twice"] == "1.0"


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert variables() == []
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert variables() == ["MKL_CBWR=COMPATIBLE"]


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*args: str) -> str:
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True, encoding="utf-8").stdout.strip()

    assert git_state(tmp_path) == NO_GIT
    git("init")
    assert git_state(tmp_path) == {"commit": None, "code_dirty": False}
    (tmp_path / "file").write_text("1", "utf-8")
    assert git_state(tmp_path) == {"commit": None, "code_dirty": False}  # nothing that git knows
    git("add", "file")
    assert git_state(tmp_path) == {"commit": None, "code_dirty": True}
    git("commit", "-m", "first")
    assert git_state(tmp_path) == {"commit": git("rev-parse", "HEAD"), "code_dirty": False}
    (tmp_path / "file").write_text("2", "utf-8")
    assert git_state(tmp_path)["code_dirty"] is True
    git("commit", "-a", "-m", "second")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "suite").write_text("1", "utf-8")
    git("add", "config")
    assert git_state(tmp_path)["code_dirty"] is False
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow" / "numpy.py").write_text("1", "utf-8")  # what jobs would import
    assert git_state(tmp_path)["code_dirty"] is True
    inner = tmp_path / "inner"
    inner.mkdir()
    assert git_state(inner) == NO_GIT  # somebody else's checkout around the project is not the project's
    monkeypatch.setenv("PATH", str(inner))
    assert git_state(tmp_path) == NO_GIT


def test_rule_reruns_when_a_variable_changes(project: Path) -> None:
    suites = with_suites(project) / "config" / "suites"
    (suites / "small.yaml").write_text("references: [torch.sdpa]\nfigures: none\ncases: {only: {parameters: {x: [[1]]}}}\n", "utf-8")
    target, path = "results/environment.json", project / "results" / "environment.json"
    made = run(project, target)
    assert made.returncode == 0, made.stderr
    before = path.read_bytes()
    assert "Nothing to be done" in run(project, target).stderr
    made = run(project, target, env={"MKL_CBWR": "COMPATIBLE"})
    assert made.returncode == 0, made.stderr
    assert json.loads(path.read_bytes())["variables"]["MKL_CBWR"] == "COMPATIBLE"
    run(project, target)
    assert path.read_bytes() == before
