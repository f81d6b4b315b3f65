"""What passes between the stages: results/{suite}/{stage}/{case}/{array}.npy, and a stage.json that explains the arrays."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from worked_attention.files.formats import (
    FORMAT,
    by_rows,
    json_bytes,
    read_array,
    read_json,
    read_rows_of,
    values,
    write_array,
    write_within,
)
from worked_attention.stages import rows
from worked_attention.stages.catalogue import CATALOGUE, STAGES, axes, kept_in
from worked_attention.stages.rows import along, blocks, cut, looked_at, stored

SHOWN = 4096  # stage.json holds the values of arrays with at most so many elements


def objection(case: dict, stage: str, arrays: dict[str, np.ndarray]) -> str | None:
    """Why these are not the `arrays` of a stage of the case, in a few words: others than the catalogue says, or of another dtype."""
    said, made = set(case["arrays"][stage]), set(arrays)
    wrong = [f"{name} is missing" for name in sorted(said - made)] + [f"{name} is not of this case" for name in sorted(made - said)]
    for name in said & made:
        kind, expected = arrays[name].dtype.name, kept_in(name, stage, case["dtype"], case["precision"]["scores"])
        wrong += [f"{name} is {kind}, should be {expected}"] * (kind != expected)
    return ", ".join(sorted(wrong)) or None


def describe(case: dict, name: str, array: np.ndarray) -> dict:
    """What files say of an array of the case beside its numbers: {shape, dtype, axes, formula, made_from, aliases}."""
    entry = CATALOGUE[name]
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "axes": list(axes(name, case["dims"])[-array.ndim :]),
        "formula": entry.formula,
        "made_from": [source for source in entry.made_from if source in case["shapes"]],
        "aliases": entry.aliases,
    }


def write_stage(folder: Path, stage: str, case: dict, arrays: dict[str, np.ndarray]) -> None:
    """Write one case's `arrays` of a stage to `folder`, with a stage.json that explains them. Raises ValueError if they are not its own."""
    if wrong := objection(case, stage, arrays):
        raise ValueError(wrong)
    for name, array in arrays.items():
        write_array(folder / f"{name}.npy", array)
    _explain(folder, stage, case, arrays)


def _explain(folder: Path, stage: str, case: dict, arrays: dict[str, np.ndarray]) -> None:
    """Write the stage.json of a case; nothing if it has no `arrays` of the stage."""
    described = {
        name: describe(case, name, array) | ({"values": values(array)} if array.size <= SHOWN else {}) for name, array in arrays.items()
    }
    if arrays:
        said = {"format": FORMAT, "suite": case["suite"], "case": case["name"], "stage": stage, "arrays": described}
        write_within(folder / "stage.json", json_bytes(said))


def stream_stage(folder: Path, case: dict, parts: Iterator[tuple[int, dict, dict[str, np.ndarray]]]) -> None:
    """As `write_stage`, from `parts` of the case with their arrays, (number of the first query, case, arrays), one after the other.

    Arrays of the stage have queries as their last axis but one, or are the same in all parts (`of_queries`).
    """
    stage, stand_in = folder.parent.name, {}
    with ExitStack() as open_files:
        put = {}
        for first, part, arrays in parts:
            if wrong := objection(part, stage, arrays):
                raise ValueError(wrong)
            for name, array in arrays.items():
                if not along(name):
                    if name not in stand_in:
                        write_array(folder / f"{name}.npy", array)
                        stand_in[name] = array
                    continue
                if name not in put:
                    shape = tuple(case["shapes"][name])
                    put[name] = open_files.enter_context(by_rows(folder / f"{name}.npy", shape, array.dtype))
                    stand_in[name] = np.broadcast_to(np.empty((), array.dtype), shape)
                put[name](first, array)
    small = {name: read_array(folder / f"{name}.npy") for name in put if stand_in[name].size <= SHOWN}  # their values are told
    _explain(folder, stage, case, stand_in | small)


def read_rows(folder: Path, case: dict, chosen: list[int]) -> dict[str, np.ndarray]:
    """The arrays of one stage of the `case` cut to its queries `chosen`, by name, from its folder {stage}/{case}; no more of a file is read
    than these rows. An array that is not there is left out."""
    found = {}
    for name in cut(case, chosen)["arrays"][folder.parent.name]:
        path = folder / f"{stored(case, name)}.npy"
        if path.exists():
            found[name] = read_rows_of(path, name, case["dims"]["Lq"], chosen)
    return found


def read_looked_at(folder: Path, case: dict, name: str) -> np.ndarray:
    """Array `name` of the case, as far as it is looked at, from the folder of its stage."""
    path = folder / case["name"] / f"{name}.npy"
    if not case["sample"]:
        return read_array(path)
    return read_rows_of(path, name, case["dims"]["Lq"], case["sample"])


def read_suite(parameters: str) -> tuple[dict, list[dict]]:
    """The suite's own facts and its resolved cases, in the suite's order, from its parameters folder."""
    suite = read_json(Path(parameters) / "suite.json")
    return suite, [read_json(Path(parameters) / name / "case.json") for name in suite["cases"]]


def read_cases(inputs) -> Iterator[tuple[dict, dict[str, np.ndarray]]]:
    """Each resolved case of a suite and its arrays of all stages that are named among the `inputs` of a rule (snakemake.input); a case of
    which a sample of queries is looked at is cut to these, and so are its arrays."""
    for case in read_suite(inputs.parameters)[1]:
        yield looked_at(case), read_case(stage_folders(inputs), case, case["sample"])


def stage_folders(inputs) -> list[Path]:
    """The folders of stages among the `inputs` of a rule."""
    return [Path(folder) for name, folder in inputs.items() if name in STAGES and folder]


def read_case(folders: list[Path], case: dict, chosen: list[int] | None = None) -> dict[str, np.ndarray]:
    """The arrays of the case from `folders` of stages, by name; of its queries `chosen` alone, if there are some."""
    if not chosen:
        return dict(Kept(folders, case))
    arrays: dict[str, np.ndarray] = {}
    for folder in folders:
        place = folder / case["name"]
        arrays |= read_rows(place, case, chosen)
        if lost := [name for name in cut(case, chosen)["arrays"][folder.name] if name not in arrays]:
            sys.exit(_lost(place, stored(case, lost[0])))
    return arrays


class Kept(Mapping):
    """The arrays of the case from `folders` of stages, by name; each is read when it is first asked for, and a stage asks for few."""

    def __init__(self, folders: list[Path], case: dict):
        self._at = {name: folder / case["name"] for folder in folders for name in case["arrays"][folder.name]}
        self._read: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            place = self._at[name]
            try:
                self._read[name] = read_array(place / f"{name}.npy")
            except FileNotFoundError:
                sys.exit(_lost(place, name))
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)


def _lost(place: Path, name: str) -> str:
    return f"Error: {place.as_posix()} has lost {name}.npy; `snakemake --cores 1` makes it anew"


def read_parts(folders: list[Path], case: dict) -> Iterator[tuple[list[int], dict, dict[str, np.ndarray]]]:
    """What is looked at of a case in parts that need little memory, (places of the queries in it, case, arrays from `folders`); of a
    case that is not large there is one part, all of it."""
    looked = looked_at(case)
    parts = blocks(looked, rows.COMPARED)
    numbers = case["sample"] or range(case["dims"]["Lq"])
    for places in parts:
        alone = len(parts) == 1
        yield (
            places,
            looked if alone else cut(looked, places),
            read_case(folders, case, case["sample"] if alone else [numbers[place] for place in places]),
        )
