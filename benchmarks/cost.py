"""What a run costs, as ratios to one Python process that imports NumPy and torch and computes one case (one_case.py).

    python benchmarks/cost.py            # some minutes; prints a Markdown table and a line about the machine

Works in a temporary folder. What is compared is run in turns, A B C A B C …, so that a slow minute of the machine slows all of it; the
medians are compared. A first turn, which does not count, warms up file caches and bytecode. Every clean run has a fresh folder, for
some file systems are slow to create files just after many were deleted.
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
from importlib.metadata import version
from pathlib import Path

from generate import suite

ROOT = Path(__file__).parent.parent
ROUNDS = 5
CASES = 1000
COMPARISON = "results/many/comparison"
Command = tuple[Path, list[str]]  # where to run Python, and with which arguments


def fresh(source: Path, to: Path) -> Path:
    """A copy, at `to`, of what a run needs, with nothing built."""
    for folder in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(source / folder, to / folder)
    for file in ("Snakefile", "CITATION.cff"):
        shutil.copy2(source / file, to)
    return to


def seconds(command: Command) -> float:
    """How long a Python command takes; an error shows what it said."""
    folder, args = command
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(done.stdout.decode("utf-8", "replace"))
    return time.perf_counter() - start


def medians(turns: dict[str, Callable[[Path], Command]], folder: Path, rounds: int) -> dict[str, float]:
    """Median seconds by name, over so many rounds in turns; each turn makes its command from the path of a new folder."""
    took: dict[str, list[float]] = {name: [] for name in turns}
    for i in range(rounds + 1):
        for name, prepare in turns.items():
            took[name].append(seconds(prepare(folder / f"{name}_{i}")))
    return {name: statistics.median(values[1:]) for name, values in took.items()}


def written(project: Path) -> int:
    """How many files a run has made."""
    return sum(path.is_file() for path in (project / "results").rglob("*"))


def snakemake(cores: int, *args: str) -> list[str]:
    return ["-m", "snakemake", "--cores", str(cores), *args]


def measure(folder: Path) -> list[tuple[str, float, str, str]]:
    """Rows of the table: what, seconds, ratio, goal."""
    handworked = ("--config", "suites=[handworked]")
    built, empty = fresh(ROOT, folder / "built"), folder / "empty"
    seconds((built, snakemake(1, *handworked)))
    empty.mkdir()
    (empty / "Snakefile").touch()

    def cases(count: int, *targets: str) -> Callable[[Path], Command]:
        def prepare(to: Path) -> Command:
            suites = fresh(built, to) / "config" / "suites"
            shutil.rmtree(suites)
            suites.mkdir()
            (suites / "many.yaml").write_text(suite(count), encoding="utf-8")
            return to, snakemake(1, *targets)

        return prepare

    def each(one: str, many: str) -> float:
        """Seconds that one more case takes."""
        return (t[many] - t[one]) / (CASES - 1)

    def edited(to: Path) -> Command:
        shutil.copytree(built, to)
        suite = to / "config" / "suites" / "handworked.yaml"
        text = suite.read_text("utf-8")
        suite.write_text(text.replace("- [0.2, -0.4, 1.0, 0.5]", "- [0.3, -0.4, 1.0, 0.5]", 1), encoding="utf-8")
        return to, snakemake(2, *handworked)

    one_case = [str(ROOT / "benchmarks" / "one_case.py"), str(ROOT / "config" / "suites" / "handworked.yaml")]
    turns: dict[str, Callable[[Path], Command]] = {
        "process": lambda to: (folder, one_case),
        "clean_1": lambda to: (fresh(built, to), snakemake(1, *handworked)),
        "empty": lambda to: (empty, snakemake(1)),
        "no_op": lambda to: (built, snakemake(1, *handworked)),
        "clean_2": lambda to: (fresh(built, to), snakemake(2, *handworked)),
        "edited": edited,
    }
    slow = {
        "one": cases(1),
        "many": cases(CASES),
        "one_without_page": cases(1, COMPARISON),
        "many_without_pages": cases(CASES, COMPARISON),
        "all": lambda to: (fresh(built, to), snakemake(2)),
        "all_1": lambda to: (fresh(built, to), snakemake(1)),
    }
    t = medians(turns, folder, ROUNDS) | medians(slow, folder, ROUNDS // 2)
    case = each("one_without_page", "many_without_pages")
    page = each("one", "many") - case
    files = round((written(folder / "many_1") - written(folder / "one_1")) / (CASES - 1))
    return [
        ("one process: imports NumPy and torch, computes one case", t["process"], "1", ""),
        ("clean `handworked`, `--cores 1`", t["clean_1"], f"{t['clean_1'] / t['process']:.2f}×", "≤ 4×"),
        ("clean `handworked`, `--cores 2`", t["clean_2"], f"{t['clean_2'] / t['process']:.2f}×", "≤ 4×"),
        ("from editing a case of `handworked` to the verdict, `--cores 2`", t["edited"], f"{t['edited'] / t['process']:.2f}×", "≤ 3×"),
        ("Snakemake on an empty Snakefile", t["empty"], "1", ""),
        ("nothing to be done", t["no_op"], f"{t['no_op'] / t['empty']:.2f}×", "≤ 1.5×"),
        ("clean run of all suites, `--cores 2`", t["all"], f"{t['all'] / t['process']:.1f}×", "≤ 50 s, and 15 s for the pages"),
        ("clean run of all suites, `--cores 1`", t["all_1"], f"{t['all_1'] / t['process']:.1f}×", "≤ 85 s, and 30 s for the pages"),
        (f"one more case, out of {CASES:,}, without its page", case, f"{case / t['process']:.4f}×", "≤ 0.01×"),
        (f"its page; {files} files in all", page, f"{page / t['process']:.4f}×", "≤ 30 files"),
    ]


def machine() -> str:
    """Processor, cores, system and versions in a line."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text("utf-8").splitlines() if cpu.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    versions = [f"{package} {version(package)}" for package in ("snakemake", "numpy", "torch")]
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {', '.join(versions)}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        before = os.getloadavg()[0]
        rows = measure(Path(folder))
        load = f"load average {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    print("| what | time | ratio | goal |\n|---|---|---|---|")
    for what, time_taken, ratio, goal in rows:
        print(f"| {what} | {f'{time_taken:.2f} s' if time_taken > 0.1 else f'{time_taken * 1000:.1f} ms'} | {ratio} | {goal} |")
    print(f"\nMedians of {ROUNDS} turns (all suites and the thousand cases: {ROUNDS // 2}); {machine()}; {load}.")
