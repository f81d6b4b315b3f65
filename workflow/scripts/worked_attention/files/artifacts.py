"""Reading and writing what passes between the stages: .npy arrays, strict JSON, one folder per case.

results/{suite}/{stage}/{case}/{array}.npy and stage.json. What only stands beside the stages, truth and references, has one .npz a suite,
with a member {case}/{array}.npy for each array: a file of its own for each costs more than to compute it.
"""

import errno
import gc
import json
import os
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import lru_cache
from io import BytesIO
from math import prod
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from worked_attention.stages import rows
from worked_attention.stages.catalogue import CATALOGUE, STAGES, axes, kept_in
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.rows import along, blocks, cut, looked_at, of_queries, stored

FORMAT = 1  # of the JSON files of results/ that have no number of their own; it rises when a key goes or changes its meaning
SHOWN = 4096  # stage.json holds the values of arrays with at most so many elements
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # what a user's disk says and no code can mend
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
    """Write `array` as .npy: C order, no pickles. To the folder of a stage, see `_within`."""
    _within(path, _npy(array))


def _within(path: Path, content: bytes | memoryview) -> None:
    """Write a file of a stage's folder. The folder is what the job makes: Snakemake deletes it where the job fails, and takes it for
    unfinished where the job was killed. So no file of it need appear at once, and to rename one costs as much as to write it."""
    with _created(f"{path}") as file:
        file.write(content)


def _npy(array: np.ndarray) -> memoryview:
    """The bytes of `array` as a .npy file; np.save asks a real file for its position several times, which costs more than a small array."""
    npy = BytesIO()
    np.save(npy, np.ascontiguousarray(array), allow_pickle=False)
    return npy.getbuffer()


@contextmanager
def packed(path: Path) -> Iterator[Callable]:
    """Give `put(case, name, array)`, and write all that was put to `path` as .npz; its bytes depend on what was put alone.

    Of a large array, pieces will do: `put(case, name, pieces, shape, dtype)`, whose numbers follow each other as in the array.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = f"{path}.part"
    with zipfile.ZipFile(temporary, "w") as archive:

        def put(case: str, name: str, pieces: np.ndarray | Iterable, shape: tuple[int, ...] = (), dtype: np.dtype | None = None) -> None:
            if isinstance(pieces, np.ndarray):
                pieces, shape, dtype = [pieces], pieces.shape, pieces.dtype
            member = zipfile.ZipInfo(f"{case}/{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3
            head = BytesIO()
            np.lib.format.write_array_header_1_0(head, _kind(shape, dtype))
            member.file_size = head.tell() + prod(shape) * dtype.itemsize
            with archive.open(member, "w") as file:  # without a copy, for an array may be as large as the memory allows
                file.write(head.getvalue())
                for piece in pieces:
                    file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)

        yield put
    os.replace(temporary, path)


def _kind(shape: tuple[int, ...], dtype: np.dtype) -> dict:
    """The header of a .npy file."""
    return {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}


class Packed:
    """What `packed` wrote, case by case: read the arrays of one as Packed(path)["case"], by name; {} for a case of which none were put."""

    def __init__(self, path: Path):
        self.path, self.archive = path, zipfile.ZipFile(path)
        self.members: dict[str, list[str]] = {}
        for name in self.archive.namelist():
            self.members.setdefault(name.split("/")[0], []).append(name)

    def __getitem__(self, case: str) -> dict[str, np.ndarray]:
        return {name.split("/")[1][:-4]: from_npy(self.archive.read(name)) for name in sorted(self.members.get(case, []))}

    def rows(self, case: str, queries: int, chosen: list[int]) -> dict[str, np.ndarray]:
        """The same arrays, those with so many `queries` of the `chosen` ones alone; no more of the file is read than these rows."""
        if len(chosen) == queries:
            return self[case]
        found = {}
        for member in sorted(self.members.get(case, [])):
            key, whole = member.split("/")[1][:-4], self._mapped(self.archive.getinfo(member).header_offset)
            found[key] = _taken(whole, key.split(".")[-1], queries, chosen)
        return found

    def _mapped(self, offset: int) -> np.ndarray:
        """The array of the member that begins at `offset` of the file, which holds it as it is, behind a head and a name."""
        with open(self.path, "rb") as file:
            file.seek(offset + 26)  # where the lengths of the name and of what follows it stand
            lengths = np.frombuffer(file.read(4), "<u2")
            file.seek(int(lengths.sum()), os.SEEK_CUR)
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            return np.memmap(self.path, dtype, "r", file.tell(), shape)


def write_json(path: Path, value: object) -> None:
    """Write `value` as strict JSON, nested things over lines and flat ones on one line; see `values` for NaN and infinity."""
    write_bytes(path, lambda file: file.write(_json_bytes(value)))


def read_json(path: Path) -> dict:
    """What `write_json` wrote."""
    return json.loads(Path(path).read_bytes())


def _json_bytes(value: object) -> bytes:
    return (_json(value, "\n") + "\n").encode()


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


def read_rows(folder: Path, case: dict, chosen: list[int]) -> dict[str, np.ndarray]:
    """The arrays of one stage of the `case` cut to its queries `chosen`, by name, from its folder {stage}/{case}; no more of a file is read
    than these rows. An array that is not there is left out."""
    found = {}
    for name in cut(case, chosen)["arrays"][folder.parent.name]:
        path = folder / f"{stored(case, name)}.npy"
        if path.exists():
            found[name] = _taken_from(path, case, name, chosen)
    return found


def _taken_from(path: Path, case: dict, name: str, chosen: list[int]) -> np.ndarray:
    """`_taken` of the .npy file of a stage."""
    return _taken(np.load(path, mmap_mode="r", allow_pickle=False), name, case["dims"]["Lq"], chosen)


def _taken(whole: np.memmap, name: str, queries: int, chosen: list[int]) -> np.ndarray:
    """The queries `chosen` of array `name`, of so many, or all of one that has not as many."""
    axis = along(name)
    rows = np.array(whole) if axis is None or whole.shape[axis] != queries else np.take(whole, chosen, axis=axis).view(np.ndarray)
    return rows.view(bfloat16) if rows.dtype.kind == "V" else rows


def read_looked_at(folder: Path, case: dict, name: str) -> np.ndarray:
    """Array `name` of the case, as far as it is looked at, from the folder of its stage."""
    path = folder / case["name"] / f"{name}.npy"
    if not case["sample"]:
        return read_array(path)
    return _taken_from(path, case, name, case["sample"])


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
        _within(folder / "stage.json", _json_bytes(said))


@contextmanager
def by_rows(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> Iterator[Callable[[int, np.ndarray], None]]:
    """Give `put(first, rows)`, which writes rows [..., n, columns] of an array [..., L, columns] to where the first of them belongs; the
    file appears whole, with the bytes that `write_array` would write, when all are put."""
    temporary = f"{path}.part"
    with _created(temporary) as file:
        np.lib.format.write_array_header_1_0(file, _kind(shape, dtype))
        start, row = file.tell(), shape[-1] * dtype.itemsize

        def put(first: int, rows: np.ndarray) -> None:
            for lead, part in enumerate(np.ascontiguousarray(rows).reshape(-1, *rows.shape[-2:])):
                file.seek(start + (lead * shape[-2] + first) * row)
                file.write(part.reshape(-1).view(np.uint8).data)

        yield put
    os.replace(temporary, path)


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


@contextmanager
def logged(path: str) -> Iterator[None]:
    """What is said on stderr, the words of sys.exit, and the traceback if there is one, go to the rule's log, which the run ends with.

    A full disk is one line, there or, where the log is on that disk, on the stderr that was there before.
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
