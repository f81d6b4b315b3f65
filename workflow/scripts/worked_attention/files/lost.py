"""Whether the folder of a stage holds all that its cases say it must."""

import os
from collections.abc import Iterable
from math import prod
from pathlib import Path

from worked_attention.stages.catalogue import BOOLEAN
from worked_attention.stages.dtypes import DTYPES


def lacking(folder: Path, cases: Iterable[dict]) -> str | None:
    """The first file that `folder`, named as its stage, lacks or holds cut short, from there; None if all are there.

    cases: the resolved cases of the suite.
    """
    for case in cases:
        arrays = case["arrays"][folder.name]
        least = {f"{name}.npy": _bytes(case, name) for name in arrays} | ({"stage.json": 0} if arrays else {})
        try:
            with os.scandir(folder / case["name"]) as files:
                sizes = {file.name: file.stat().st_size for file in files}
        except FileNotFoundError:
            sizes = {}
        for name, size in (least | ({"case.json": 0} if folder.name == "parameters" else {})).items():
            if sizes.get(name, 0) <= size:
                return f"{case['name']}/{name}"
    return None


def _bytes(case: dict, array: str) -> int:
    """How many bytes an array of the case takes; its file is longer by a header."""
    return prod(case["shapes"][array]) * (1 if array in BOOLEAN else DTYPES[case["dtype"]].bytes)
