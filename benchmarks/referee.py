"""What the referee costs: bounds against the stages that they certify, truth at a real size, and the judge from a cold start.

    python benchmarks/referee.py        # some minutes; prints a Markdown table

Bounds and stages are computed in turns in one process; medians are compared. Memory of truth is the most that a process of its own takes,
Python included. The judge runs as a user starts it, on a hundred cases that `generate.py` makes, submitted as folders of arrays.
"""

import multiprocessing
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from cost import ROOT, fresh
from generate import suite
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.cases.resolve import resolve  # noqa: E402
from worked_attention.cases.suites import UNLIMITED, load_suite  # noqa: E402
from worked_attention.referee.bounds.contracts import roundoffs  # noqa: E402
from worked_attention.referee.bounds.whole import bounds, centres  # noqa: E402
from worked_attention.referee.truth.whole import truth  # noqa: E402
from worked_attention.stages import parameters  # noqa: E402
from worked_attention.stages.whole import compute  # noqa: E402

ROUNDS = 9
LIMITS = UNLIMITED | {"max_array_mb": 256}


def took(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def real_size(tokens: int, **options: object) -> dict:
    """A case of 8 heads and d = 64, from queries, keys and values."""
    drawn = {name: {"normal": {"seed": i}} for i, name in enumerate(("q_heads", "k_heads", "v_heads"))}
    raw = {"heads": 8, "sizes": {"Lq": tokens, "Lk": tokens, "d_k": 64}, "parameters": drawn, **options}
    return resolve(raw, "benchmark", "case", Path(), LIMITS, lambda where, message: sys.exit(message))


def memory(case: dict) -> tuple[float, float]:
    """(mebibytes, seconds of CPU) of a fresh process that computes the truth of a case."""
    truth(case, parameters.stage(case, Path()))
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


def apart(case: dict) -> tuple[float, float]:
    """`memory` of a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(memory, case).result()


def judging(folder: Path) -> float:
    """Seconds for `snakemake judge` on a submission of a hundred right cases."""
    project = fresh(ROOT, folder / "project")
    shutil.rmtree(project / "config" / "suites")
    (project / "config" / "suites").mkdir()
    path = project / "config" / "suites" / "many.yaml"
    path.write_text(suite(100), "utf-8")
    for name, case in load_suite(path, LIMITS)["cases"].items():
        arrays = compute(case)
        for array in ("qk", "weights", "contexts", "output"):
            target = folder / "mine" / "many" / name / f"{array}.npy"
            target.parent.mkdir(parents=True, exist_ok=True)
            np.save(target, arrays[array])
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "judge", "--config", f"submission={folder / 'mine'}"]
    return took(lambda: subprocess.run(command, cwd=project, check=True, capture_output=True))


def main() -> None:
    case = real_size(128)
    arrays = compute(case)
    exact = centres(case, arrays)
    with threadpool_limits(1):  # as Snakemake has it in each job
        times = [(took(lambda: compute(case)), took(lambda: bounds(case, exact, *roundoffs(case)))) for _ in range(ROUNDS)]
    ratio = statistics.median(b for _, b in times) / statistics.median(a for a, _ in times)
    truths = statistics.median(took(lambda: truth(case, arrays)) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        cold = judging(Path(folder))
    print("| what | measured | goal |\n|---|---|---|")
    print(f"| bounds against the stages they certify (8 heads, 128 tokens, d = 64) | {ratio:.1f}x | at most 3x |")
    print(f"| truth of every stage at that size | {truths:.1f} s | about 1 s |")
    for words, options in (("without a mask", {}), ("causal, float32", {"dtype": "float32", "mask": {"causal": "top_left"}})):
        size, seconds = apart(real_size(1024, **options))
        print(f"| memory of truth at 8 heads, 1,024 tokens, {words} ({seconds:.0f} s of CPU) | {size:.0f} MiB | at most 512 MB |")
    print(f"| judging 100 cases from a cold start | {cold:.1f} s | at most 10 s |")


if __name__ == "__main__":
    main()
