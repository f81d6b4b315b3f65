"""Rule truth: the exact numbers of every stage of one suite, and how far our own are from them; of a large case, some rows at a time."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from worked_attention.files.artifacts import read_case, read_parts, read_suite, stage_folders
from worked_attention.files.formats import FORMAT, write_json
from worked_attention.files.jobs import logged, progress
from worked_attention.files.packed import packed
from worked_attention.referee.bounds.rounding import Boundless
from worked_attention.referee.compare import together, verdict_on
from worked_attention.referee.exactness import held_against
from worked_attention.referee.truth.balls import Settled
from worked_attention.referee.truth.whole import truth
from worked_attention.stages.rows import COMPARED, is_large, looked_at


def checks(case: dict, certified: dict[str, Settled]) -> Iterator[tuple[str, dict]]:
    """(name, `against_exact`) of the arrays of a case, of large ones some rows at a time."""
    for places, part, ours in read_parts(stage_folders(snakemake.input), case):
        progress(f"{case['suite']}/{case['name']}: held against the exact numbers, from query {places[0]:,}")
        yield from held_against(certified, places, part, ours)
        del part, ours  # before the next ones are read


def judged(case: dict, put: Callable) -> dict:
    """The verdict of the exact numbers on a case; they are `put`. What this takes in memory is free again before the next case."""
    looked, given = looked_at(case), read_case([Path(snakemake.input.parameters)], case, case["sample"])
    with TemporaryDirectory(dir=snakemake.output[0]) if is_large(looked) else nullcontext() as scratch:
        certified = truth(looked, given, Path(scratch) if scratch else None)
        found: dict[str, list[dict]] = {}
        for name, result in checks(case, certified):
            found.setdefault(name, []).append(result)
        for name, settled in certified.items():
            put(case["name"], name, settled.pieces(COMPARED), (*settled.middle.shape, 2), np.dtype(np.float64))
    return verdict_on({name: together(found[name]) for name in certified})


with logged(snakemake.log[0]):
    output, verdicts = Path(snakemake.output[0]), {}
    with packed(output / "truth.npz") as put:
        for case in read_suite(snakemake.input.parameters)[1]:
            try:
                verdicts[case["name"]] = judged(case, put)
            except (Boundless, NotImplementedError) as error:  # an array that nothing stands beside
                sys.exit(f"{case['suite']}/{case['name']}: {error}")
    write_json(output / "truth.json", {"format": FORMAT, "cases": verdicts})
