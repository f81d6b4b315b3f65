"""What many cases cost: time per case, memory, files and the front page, at 100, 1,000 and 10,000 small cases in suites of at most 500.

    python benchmarks/large.py                 # an hour or so; prints a Markdown table
    python benchmarks/large.py 100 1000        # these numbers of cases alone

The time that is compared is that of processors, user and system, of a whole run with one core, so that others on the machine do not count;
what a run of as many suites with one case each takes is taken off, for it does not depend on the number of cases. What a clock says of all
stands beside it. Memory is the most that any process of the run takes.
"""

import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cost import ROOT, fresh, snakemake, written
from generate import suite

COUNTS = (100, 1_000, 10_000)
SUITE = 500  # cases of a suite at most
HEADINGS = (
    "cases",
    "CPU of one more case",
    "CPU of all, per case",
    "by the clock",
    "largest process",
    "files per case and of its page",
    "front page",
)


def project(folder: Path, cases: int, most: int = SUITE) -> Path:
    """A fresh project with so many cases, in suites of at most `most`."""
    suites = fresh(ROOT, folder) / "config" / "suites"
    shutil.rmtree(suites)
    suites.mkdir()
    for first in range(0, cases, most):
        (suites / f"many_{first // most:02}.yaml").write_text(suite(min(most, cases - first)), encoding="utf-8")
    return folder


def ran(folder: Path) -> tuple[float, float, float]:
    """(seconds of processors, seconds of a clock, mebibytes of the largest process) of a run in this project."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *snakemake(1)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(done.stdout.decode("utf-8", "replace"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss / 1024


def apart(folder: Path) -> tuple[float, float, float]:
    """`ran` from a process of its own, whose children are those of this run alone."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(ran, folder).result()


def slope(per_case: dict[int, float]) -> float:
    """What a case costs at the most cases, as a ratio to what it costs at the fewest; at most 1 if cost grows no faster than cases."""
    return per_case[max(per_case)] / per_case[min(per_case)]


def main(counts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as place:
        per_case: dict[int, float] = {}
        print(f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|")
        for count in counts:
            suites = -(-count // SUITE)
            start, *_ = apart(project(Path(place, f"start of {count}"), suites, most=1))
            folder = project(Path(place, str(count)), count)
            seconds, passed, mebibytes = apart(folder)
            per_case[count] = (seconds - start) / (count - suites)
            page = (folder / "results" / "index.html").stat().st_size / 1e6
            pages = sum(1 for _ in (folder / "results").glob("*/pages/*.*"))
            files = f"{(written(folder) - pages) / count:.1f} + {pages / count:.1f}"
            times = f"{per_case[count] * 1000:.1f} ms | {seconds / count * 1000:.1f} ms | {passed / count * 1000:.1f} ms"
            print(f"| {count:,} | {times} | {mebibytes:.0f} MiB | {files} | {page:.1f} MB |", flush=True)
            shutil.rmtree(folder)
        print(f"\nOne more case at {max(counts):,} costs {slope(per_case):.2f} times what it costs at {min(counts):,} (goal: at most 1).")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or list(COUNTS))
