"""What the tests share: the modules of workflow/scripts, copies of the project to run Snakemake in, and what is built once for all."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With `-n`, the tests of a file stay together, for they share what it loads and makes; who is done takes of what others have left."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """once(name, make): a folder that `make` has filled, by whichever worker came first; for tests that only read."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder, whole = shared / name, shared / f"{name}.whole"
        with FileLock(shared / f"{name}.lock"):
            if not whole.exists():
                shutil.rmtree(folder, ignore_errors=True)  # what a worker before us left, whose `make` failed
                make(folder)
                whole.touch()
        return folder

    return made


def copy_project(to: Path) -> Path:
    """A copy, at `to`, of what a run needs, with nothing built."""
    for folder in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("Snakefile", "CITATION.cff", "results/README.md"):
        (to / file).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / file, to / file)
    return to


def with_suites(project: Path, *names: str) -> Path:
    """`project`, with those of its suites that have these names alone."""
    for suite in (project / "config" / "suites").glob("*.yaml"):
        if suite.stem not in names:
            suite.unlink()
    return project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a run needs, with nothing built."""
    return copy_project(tmp_path / "project")


@pytest.fixture(scope="session")
def first_run(once: Callable) -> tuple[Path, subprocess.CompletedProcess]:
    """A copy of the project in which the articles' suites were built once, and what that run said."""

    def make(folder: Path) -> None:
        copy = with_suites(copy_project(folder / "project"), "handworked", "tutorial")
        done = run(copy)
        (folder / "said.json").write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]), "utf-8")

    folder = once("built", make)
    return folder / "project", subprocess.CompletedProcess(*json.loads((folder / "said.json").read_text("utf-8")))


@pytest.fixture(scope="session")
def built(first_run: tuple[Path, subprocess.CompletedProcess]) -> Path:
    """A copy of the project in which the articles' suites were built once; for tests that only read."""
    copy, done = first_run
    assert done.returncode == 0, done.stderr
    return copy


def run(project: Path, *args: str, env: dict[str, str] | None = None, cores: int = 2) -> subprocess.CompletedProcess:
    """Run `snakemake --cores N ARGS` in `project`; the result holds returncode, stdout and stderr as text."""
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), *args]
    return subprocess.run(command, cwd=project, env={**os.environ, **(env or {})}, capture_output=True, encoding="utf-8", errors="replace")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` by relative path, but for Snakemake's own timestamps."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".snakemake_timestamp")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def build_wheel(folder: Path) -> str:
    """The path of a wheel of the package, built in `folder` from a copy of what it is built from."""
    copy = folder / "source"
    for name in ("workflow/scripts", "config/suites"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return str(wheel)
