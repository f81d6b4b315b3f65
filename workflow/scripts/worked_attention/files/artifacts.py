"""Reading and writing what passes between the stages: .npy arrays, strict JSON, one folder per case.

results/{suite}/{stage}/{case}/{array}.npy and stage.json. What only stands beside the stages, truth and references, has one .npz a suite,
with a member {case}/{array}.npy for each array: a file of its own for each costs more than to compute it.
"""

import gc
import json
import os
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from worked_attention.stages.catalogue import CATALOGUE, STAGES, axes, kept_in
from worked_attention.stages.precision import bfloat16

FORMAT = 1  # of the JSON files of results/ that have no number of their own; it rises when a key goes or changes its meaning
SHOWN = 4096  # stage.json holds the values of arrays with at most so many elements
ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def write_bytes(path: Path, write: Callable) -> None:
    """Let `write(file)` fill `path`, which appears whole or not at all."""
    temporary = f"{path}.part"
    with _created(temporary) as file:
        write(file)
    os.replace(temporary, path)


def _created(path: str) -> BinaryIO:
    """A new file, open for writing; its folder is made where it is missing, which to ask each time costs as much as a small file."""
    try:
        return open(path, "wb")
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb")


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 in every locale."""
    write_bytes(path, lambda file: file.write(text.encode("utf-8")))


def write_array(path: Path, array: np.ndarray) -> None:
    """Write `array` as .npy: C order, no pickles."""
    npy = _npy(array)
    write_bytes(path, lambda file: file.write(npy))


def _npy(array: np.ndarray) -> memoryview:
    """The bytes of `array` as a .npy file; np.save asks a real file for its position several times, which costs more than a small array."""
    npy = BytesIO()
    np.save(npy, np.ascontiguousarray(array), allow_pickle=False)
    return npy.getbuffer()


@contextmanager
def packed(path: Path) -> Iterator[Callable[[str, str, np.ndarray], None]]:
    """Give `put(case, name, array)`, and write all that was put to `path` as .npz; its bytes depend on what was put alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = f"{path}.part"
    with zipfile.ZipFile(temporary, "w") as archive:

        def put(case: str, name: str, array: np.ndarray) -> None:
            member = zipfile.ZipInfo(f"{case}/{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3
            array, head = np.ascontiguousarray(array), BytesIO()
            np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
            member.file_size = head.tell() + array.nbytes
            with archive.open(member, "w") as file:  # without a copy, for an array may be as large as the memory allows
                file.write(head.getvalue())
                file.write(array.reshape(-1).view(np.uint8).data)

        yield put
    os.replace(temporary, path)


class Packed:
    """What `packed` wrote, case by case: read the arrays of one as Packed(path)["case"], by name; {} for a case of which none were put."""

    def __init__(self, path: Path):
        self.archive = zipfile.ZipFile(path)
        self.members: dict[str, list[str]] = {}
        for name in self.archive.namelist():
            self.members.setdefault(name.split("/")[0], []).append(name)

    def __getitem__(self, case: str) -> dict[str, np.ndarray]:
        return {name.split("/")[1][:-4]: from_npy(self.archive.read(name)) for name in sorted(self.members.get(case, []))}


def write_json(path: Path, value: object) -> None:
    """Write `value` as strict JSON, nested things over lines and flat ones on one line; see `values` for NaN and infinity."""
    write_text(path, _json(value, "\n") + "\n")


def read_json(path: Path) -> dict:
    """What `write_json` wrote."""
    return json.loads(Path(path).read_bytes())


def _json(value: object, newline: str) -> str:
    inner = newline + "  "
    if isinstance(value, dict) and value and any(isinstance(item, dict | list) for item in value.values()):
        rows = [f"{ENCODE(key)}: {_json(item, inner)}" for key, item in value.items()]
        return "{" + inner + ("," + inner).join(rows) + newline + "}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[" + inner + ("," + inner).join(_json(item, inner) for item in value) + newline + "]"
    return ENCODE(value)


def values(array: np.ndarray) -> list:
    """`array` as nested lists for JSON: floats round-trip exactly, others are "NaN", "Infinity" and "-Infinity"."""
    if array.dtype == bfloat16:
        array = array.astype(np.float32)
    if array.dtype.kind == "b" or np.isfinite(array).all():
        return array.tolist()
    names = {np.inf: "Infinity", -np.inf: "-Infinity"}
    flat = np.array([v if np.isfinite(v) else names.get(v, "NaN") for v in array.ravel().tolist()], dtype=object)
    return flat.reshape(array.shape).tolist()


def read_array(path: Path) -> np.ndarray:
    """What `write_array` wrote; .npy has no name for bfloat16 and stores it as two bytes without meaning."""
    return from_npy(path.read_bytes())


def from_npy(npy: bytes) -> np.ndarray:
    """The array in the bytes of a .npy file. Raises ValueError, and whatever NumPy does, if `write_array` does not write such."""
    start = 10 + int.from_bytes(npy[8:10], "little")  # the header's length stands in bytes 8 and 9, the header follows
    shape, dtype = _header(npy[:start])
    return np.frombuffer(npy, bfloat16 if dtype.kind == "V" else dtype, offset=start).reshape(shape).copy()


@lru_cache
def _header(head: bytes) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype from the head of a .npy file; remembered, for to parse it costs more than to read a small array."""
    file = BytesIO(head)
    np.lib.format.read_magic(file)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran or dtype.hasobject:
        raise ValueError("holds Python objects" if dtype.hasobject else "is in Fortran's order")
    return shape, dtype


def read_arrays(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of one case's folder by name, in alphabetical order; none if there is no such folder."""
    if not folder.is_dir():
        return {}
    names = sorted(name for name in os.listdir(folder) if name.endswith(".npy"))
    return {name[:-4]: read_array(folder / name) for name in names}


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
    described = {}
    for name, array in arrays.items():
        write_array(folder / f"{name}.npy", array)
        described[name] = describe(case, name, array) | ({"values": values(array)} if array.size <= SHOWN else {})
    if arrays:
        write_json(
            folder / "stage.json", {"format": FORMAT, "suite": case["suite"], "case": case["name"], "stage": stage, "arrays": described}
        )


def read_suite(parameters: str) -> tuple[dict, list[dict]]:
    """The suite's own facts and its resolved cases, in the suite's order, from its parameters folder."""
    suite = read_json(Path(parameters) / "suite.json")
    return suite, [read_json(Path(parameters) / name / "case.json") for name in suite["cases"]]


def read_cases(inputs) -> Iterator[tuple[dict, dict[str, np.ndarray]]]:
    """Each resolved case of a suite and its arrays of all stages that are named among the `inputs` of a rule (snakemake.input)."""
    folders = [Path(folder) for name, folder in inputs.items() if name in STAGES and folder]
    for case in read_suite(inputs.parameters)[1]:
        arrays: dict[str, np.ndarray] = {}
        for folder in folders:
            arrays |= read_arrays(folder / case["name"])
            if lost := [name for name in case["arrays"][folder.name] if name not in arrays]:
                sys.exit(f"Error: {folder.as_posix()}/{case['name']} has lost {lost[0]}.npy; `snakemake --cores 1` makes it anew")
        yield case, arrays


@contextmanager
def logged(path: str) -> Iterator[None]:
    """What is said on stderr, the words of sys.exit, and the traceback if there is one, go to the rule's log, which the run ends with."""
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as log, redirect_stderr(log):
        try:
            yield
        except SystemExit as error:
            if isinstance(error.code, str):
                print(error.code, file=log)
            sys.exit(1 if error.code else 0)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        finally:
            gc.freeze()  # the process ends here; to search all that torch or matplotlib made for garbage would take up to a second


def run_stage(snakemake, compute: Callable[[dict, dict], dict]) -> None:
    """One stage of one suite: for every case read the arrays of the stages named as inputs, compute, write."""
    with logged(snakemake.log[0]):
        output = Path(snakemake.output[0])
        output.mkdir(parents=True, exist_ok=True)
        for case, arrays in read_cases(snakemake.input):
            try:
                write_stage(output / case["name"], output.name, case, compute(case, arrays))
            except ValueError as error:  # what the case itself forbids, or arrays that are not those of the stage
                sys.exit(f"{case['suite']}/{case['name']}: stage {output.name}: {error}")
