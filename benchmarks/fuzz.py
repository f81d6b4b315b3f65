"""What `worked-attention fuzz` finds: every fault of a blockwise kernel, and nothing in kernels that are right.

    python benchmarks/fuzz.py float32 bfloat16   # minutes; how long it takes until each fault is found and shrunk, and to how many blocks
    python benchmarks/fuzz.py alarms             # 2,000 cases of the right kernel and of torch's own

The goal is 60 s for each fault and two blocks at most, in float32 and in bfloat16, and no alarm.
"""

import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests")]

from blockwise import FAULTS, asked  # noqa: E402

from worked_attention.fuzzing.kernel import Kernel  # noqa: E402
from worked_attention.fuzzing.search import Found, fuzz, line  # noqa: E402

ALLOWED = ("undecided", "unsupported")
CASES, BLOCK, SEED = 300, 8, 0


def faults(dtypes: list[str]) -> bool:
    """Find each fault in each of the dtypes; whether all goals are met."""
    met = True
    for dtype in dtypes:
        for fault in FAULTS:
            began = time.process_time()
            found = fuzz(asked(BLOCK, fault), {}, CASES, SEED, BLOCK, ALLOWED, (dtype,))
            seconds = time.process_time() - began
            sizes = [failure.case.raw["sizes"] for failure in found.failures]
            blocks = max((-(-max(size["Lq"], size["Lk"]) // BLOCK) for size in sizes), default=0)
            good = 0 < blocks <= 2 and seconds < 60
            met = met and good
            said = "; ".join(line(word, value) for word, value in found.failures[0].case.raw.items()) if found.failures else "not found"
            print(f"{'' if good else '!! '}{dtype} {fault}: {seconds:.0f} s, {len(sizes)} shown, {blocks} blocks: {said}", flush=True)
    return met


def alarms() -> bool:
    """Whether nothing is found in 2,000 cases of kernels that are right."""
    quiet = True

    def told(name: str, found: Found) -> None:
        nonlocal quiet
        quiet = quiet and not found.failures
        print(name, found.counts, *(failure.case.raw for failure in found.failures), sep="\n  ", flush=True)

    told("blockwise", fuzz(asked(BLOCK), {}, 2000, SEED, BLOCK, ALLOWED))
    with Kernel(ROOT / "examples" / "attention_kernel.py") as kernel:
        told("torch", fuzz(kernel, kernel.conventions, 2000, SEED, BLOCK, ALLOWED))
    return quiet


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(not (alarms() if sys.argv[1:] == ["alarms"] else faults(sys.argv[1:])))
