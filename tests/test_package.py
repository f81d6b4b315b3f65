"""The package: what a wheel holds, what importing it costs, and that it needs nothing of the workflow."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, build_wheel

import worked_attention

SCRIPTS = ROOT / "workflow" / "scripts"
PACKAGE = SCRIPTS / "worked_attention"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
HEAVY = ("torch", "matplotlib", "snakemake", "flint", "jax", "onnx", "pytest", "click", "jinja2", "babel")


def test_one_version():
    heading = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[1]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert worked_attention.__version__ == citation["version"] == heading
    assert PROJECT["project"]["license"] == citation["license"]


def test_every_room_is_packed():
    """A folder that the list leaves out would be missing from the wheel only, where no other test looks."""
    rooms = {path.parent.relative_to(SCRIPTS).as_posix().replace("/", ".") for path in PACKAGE.rglob("*.py")}
    data = {"worked_attention.schemas", "worked_attention.suites", "worked_attention.suites.arrays"}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == rooms | data


def test_a_wheel_holds_the_package_and_all_it_reads(tmp_path: Path):
    packed = set(zipfile.ZipFile(build_wheel(tmp_path)).namelist())
    ours = {path.relative_to(SCRIPTS) for ending in ("*.py", "*.yaml", "*.po") for path in PACKAGE.rglob(ending)}
    suites = {
        "worked_attention/suites" / path.relative_to(ROOT / "config" / "suites") for path in (ROOT / "config" / "suites").rglob("*.*")
    }
    wanted = {path.as_posix() for path in ours | suites}
    assert {name for name in packed if ".dist-info/" not in name} == wanted


def imported(python: str, module: str, env: dict[str, str]) -> tuple[float, set[str]]:
    """The processor seconds that importing `module` takes in a new process (the best of three), and all that is loaded then."""
    code = "import json, sys, time; t = time.process_time(); __import__(sys.argv[1]); "
    code += "print(json.dumps([time.process_time() - t, list(sys.modules)]))"
    runs = [json.loads(subprocess.run([python, "-c", code, module], env=env, capture_output=True, check=True).stdout) for _ in range(3)]
    return min(seconds for seconds, _ in runs), set(runs[0][1])


@pytest.mark.parametrize(("module", "most"), [("worked_attention", 0.1), ("worked_attention.referee.judge", 0.6)])
def test_importing_is_quick_and_loads_nothing_heavy(module: str, most: float):
    seconds, loaded = imported(sys.executable, module, {**os.environ, "PYTHONPATH": str(SCRIPTS)})
    assert module in loaded
    assert not loaded & set(HEAVY)
    assert seconds < most


@pytest.mark.slow
def test_installed_in_an_empty_environment(tmp_path: Path):
    """pip brings what the judge needs and no more; needs the network, or a cache that has it."""
    wheel = build_wheel(tmp_path)
    venv.create(tmp_path / "env")
    python = str(tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin") / "python")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", wheel], env=env, check=True)
    for module, most in (("worked_attention", 0.1), ("worked_attention.referee.judge", 0.6)):
        seconds, loaded = imported(python, module, env)
        assert seconds < most and not loaded & set(HEAVY)
    listed = json.loads(subprocess.run([*pip, "list", "--format=json"], env=env, capture_output=True, check=True).stdout)
    assert not {package["name"].lower() for package in listed} & {"torch", "matplotlib", "snakemake", "python-flint"}
