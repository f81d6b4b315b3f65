"""Whether the folder of a stage holds all that its cases say it must."""

import os
from collections.abc import Iterable
from math import prod
from pathlib import Path

from worked_attention.stages.catalogue import kept_in
from worked_attention.stages.dtypes import DTYPES

HEADER = 128  # bytes of a .npy file before its numbers, at least


def lacking(folder: Path, cases: Iterable[dict]) -> str | None:
    """The first file that `folder`, named as its stage, lacks or holds cut short, from there; None if all are there.

    cases: the resolved cases of the suite.
    """
    stage, place = folder.name, str(folder)
    for case in cases:
        arrays = case["arrays"][stage]
        least = {f"{name}.npy": HEADER + _bytes(case, stage, name) for name in arrays} | ({"stage.json": 1} if arrays else {})
        for name, size in (least | ({"case.json": 1} if stage == "parameters" else {})).items():
            try:
                found = os.stat(f"{place}/{case['name']}/{name}").st_size
            except (FileNotFoundError, NotADirectoryError):
                found = 0
            if found < size:
                return f"{case['name']}/{name}"
    return None


def _bytes(case: dict, stage: str, array: str) -> int:
    """How many bytes an array of a stage of the case takes; its file is longer by a header."""
    kept = kept_in(array, stage, case["dtype"], case["precision"]["scores"])
    return prod(case["shapes"][array]) * (1 if kept == "bool" else DTYPES[kept].bytes)
