"""What a run costs, as ratios to one Python process that imports NumPy and torch and computes one case (one_case.py).

    python benchmarks/cost.py            # about five minutes; prints a Markdown table and a line about the machine

Works in a temporary copy. What is compared is run in turns, A B C A B C …, so that a slow minute of the machine slows all of it; the
medians are compared. One turn before the first warms up file caches and bytecode.
"""

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from generate import suite

ROOT = Path(__file__).parent.parent
ROUNDS = 5
CASES = 1000


def copy_project(to: Path) -> Path:
    """What a run needs, with nothing built."""
    for folder in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "Snakefile", to)
    return to


def run(folder: Path, *command: str) -> None:
    """Run a Python command in `folder`, quietly; an error shows what it said."""
    done = subprocess.run([sys.executable, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(done.stdout.decode("utf-8", "replace"))


def clean(folder: Path) -> None:
    """Remove everything that was built."""
    for name in ("results", ".snakemake"):
        shutil.rmtree(folder / name, ignore_errors=True)


def medians(turns: dict[str, tuple[Callable[[], None], Callable[[], None]]], rounds: int) -> dict[str, float]:
    """Median seconds of each entry (prepare, measured) over so many rounds in turns, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds + 1):
        for name, (prepare, measured) in turns.items():
            prepare()
            start = time.perf_counter()
            measured()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def machine() -> str:
    """Processor, cores, system and versions in a line."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text("utf-8").splitlines() if cpu.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    versions = [f"{package} {_version(package)}" for package in ("snakemake", "numpy", "torch")]
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {', '.join(versions)}"


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def measure(folder: Path) -> list[tuple[str, float, str, str]]:
    """Rows of the table: what, seconds, ratio, goal."""
    project, empty = copy_project(folder / "project"), folder / "empty"
    empty.mkdir()
    (empty / "Snakefile").touch()
    suites = project / "config" / "suites"
    original = suites / "handworked.yaml"
    many = copy_project(folder / "many")
    shutil.rmtree(many / "config" / "suites")
    (many / "config" / "suites").mkdir()

    def generate(cases: int) -> None:
        clean(many)
        (many / "config" / "suites" / "many.yaml").write_text(suite(cases), encoding="utf-8")

    def snakemake(where: Path, cores: int, *args: str) -> Callable[[], None]:
        return lambda: run(where, "-m", "snakemake", "--cores", str(cores), *args)

    def nothing() -> None:
        pass

    handworked = ("--config", "suites=[handworked]")
    t = medians(
        {
            "process": (nothing, lambda: run(folder, str(ROOT / "benchmarks" / "one_case.py"), str(original))),
            "clean 1": (lambda: clean(project), snakemake(project, 1, *handworked)),
            "empty": (nothing, snakemake(empty, 1)),
            "no-op": (nothing, snakemake(project, 1, *handworked)),
            "clean 2": (lambda: clean(project), snakemake(project, 2, *handworked)),
        },
        ROUNDS,
    )
    t |= medians(
        {
            "one": (lambda: generate(1), snakemake(many, 1)),
            "many": (lambda: generate(CASES), snakemake(many, 1)),
        },
        ROUNDS // 2,
    )
    case = (t["many"] - t["one"]) / (CASES - 1)
    return [
        ("the process that computes one case", t["process"], "1", ""),
        ("clean `handworked`, `--cores 1`", t["clean 1"], f"{t['clean 1'] / t['process']:.2f}×", "≤ 4×"),
        ("clean `handworked`, `--cores 2`", t["clean 2"], f"{t['clean 2'] / t['process']:.2f}×", "≤ 4×"),
        ("Snakemake on an empty Snakefile", t["empty"], "1", ""),
        ("nothing to be done", t["no-op"], f"{t['no-op'] / t['empty']:.2f}×", "≤ 1.5×"),
        (f"one more case, out of {CASES}", case, f"{case / t['process']:.4f}×", "≤ 0.01× and ≤ 10 ms"),
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder))
    print("| what | time | ratio | goal |\n|---|---|---|---|")
    for what, seconds, ratio, goal in rows:
        print(f"| {what} | {f'{seconds:.2f} s' if seconds > 0.1 else f'{seconds * 1000:.1f} ms'} | {ratio} | {goal} |")
    print(f"\nMedians of {ROUNDS} turns (the thousand cases: {ROUNDS // 2}); {machine()}.")
