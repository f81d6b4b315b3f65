"""The job of a rule: its log and how it ends, how far it is, and a stage of one suite, which all rules of stages are."""

import errno
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TextIO

from worked_attention.files.artifacts import Kept, read_case, read_suite, stage_folders, stream_stage, write_stage
from worked_attention.stages import rows
from worked_attention.stages.rows import blocks, cut, of_queries

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # what a user's disk says and no code can mend


@contextmanager
def logged(path: str) -> Iterator[None]:
    """What is said on stderr, the words of sys.exit, and the traceback if there is one, go to the rule's log, which the run ends with.

    A full disk is one line, there or, where the log is on that disk, on the stderr that was there before; so is a lack of memory.
    """
    before = sys.stderr
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as log, redirect_stderr(log):
            try:
                yield
            except SystemExit as error:
                if isinstance(error.code, str):
                    print(error.code, file=log)
                sys.exit(1 if error.code else 0)
            except Exception as error:
                if isinstance(error, OSError) and error.errno in UNWRITABLE:
                    sys.exit(_unwritable(error, log))
                if isinstance(error, MemoryError):
                    print(f"Error: memory is short: {error or 'no more can be had'}", file=log)
                else:
                    traceback.print_exc()
                sys.exit(1)
            finally:
                gc.freeze()  # the process ends here; to search all that torch or matplotlib made for garbage would take up to a second
    except OSError as error:
        sys.exit(_unwritable(error, before))


def _unwritable(error: OSError, to: TextIO) -> int:
    print(f"Error: results/ cannot be written: {error.strerror}", file=to)
    return 1


def run_stage(snakemake, compute: Callable[[dict, dict], dict]) -> None:
    """One stage of one suite: for every case read the arrays of the stages named as inputs, compute, write."""
    with logged(snakemake.log[0]):
        output = Path(snakemake.output[0])
        output.mkdir(parents=True, exist_ok=True)
        folders = stage_folders(snakemake.input)
        for case in read_suite(snakemake.input.parameters)[1]:
            try:
                if case["sample"] and of_queries(case["arrays"][output.name]):
                    stream_stage(output / case["name"], case, _parts(case, folders, compute, output.name))
                else:
                    write_stage(output / case["name"], output.name, case, compute(case, Kept(folders, case)))
            except ValueError as error:  # what the case itself forbids, or arrays that are not those of the stage
                sys.exit(f"{case['suite']}/{case['name']}: stage {output.name}: {error}")


def _parts(case: dict, folders: list[Path], compute: Callable[[dict, dict], dict], stage: str) -> Iterator[tuple[int, dict, dict]]:
    """A stage of a large case, some queries at a time, as `stream_stage` takes it."""
    for places in blocks(case, rows.COMPUTED):
        part = cut(case, places)
        yield places[0], part, compute(part, read_case(folders, case, places))
        progress(f"{case['suite']}/{case['name']}: {stage}, {places[-1] + 1:,} of {case['dims']['Lq']:,} queries")


def progress(words: str) -> None:
    """Say on a terminal how far a long job is, in place of what stands in its last line."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\033[K{words[: os.get_terminal_size(sys.stdout.fileno()).columns - 1]}")
        sys.stdout.flush()
