"""Whether a run on this Slurm would learn how its jobs ended; one that would not waits for ever.

The executor asks squeue, which forgets a job MinJobAge seconds after its end, or accounting, which keeps it. Its pauses grow to 180
seconds. Where MinJobAge is below 120 it turns to accounting by itself, and does not look whether there is any.
"""

import re
import subprocess

PAUSE = 180  # seconds between two questions of the executor (2.8.0), at most


def configured() -> str:
    """What Slurm says of its configuration; nothing if it does not answer."""
    try:
        return subprocess.run(["scontrol", "show", "config"], capture_output=True, encoding="utf-8", errors="replace", timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def refusal(configuration: str) -> str:
    """Why a run would wait for ever on the Slurm that says this of itself, and what to set; nothing if it would not."""
    age = re.search(r"^MinJobAge += (\d+) sec", configuration, re.MULTILINE)
    accounts = re.search(r"^AccountingStorageType += accounting_storage/slurmdbd", configuration, re.MULTILINE)
    if not age or accounts or int(age[1]) >= PAUSE:
        return ""
    return (
        f"Error: Slurm keeps no accounts here and MinJobAge is {age[1]} seconds: a run would not learn how its jobs end, and wait for "
        f"ever; slurm.conf needs MinJobAge={PAUSE} or more (300 is Slurm's default), or accounting (slurmdbd)"
    )
