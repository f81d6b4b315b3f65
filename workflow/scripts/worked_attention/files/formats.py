"""The formats of all files: .npy arrays, strict JSON, text."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from worked_attention.stages.precision import bfloat16
from worked_attention.stages.rows import along

FORMAT = 1  # of the JSON files of results/ that have no number of their own; it rises when a key goes or changes its meaning
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
    """Write `array` as .npy: C order, no pickles. To the folder of a stage, see `write_within`."""
    write_within(path, _npy(array))


def write_within(path: Path, content: bytes | memoryview) -> None:
    """Write a file of a stage's folder. The folder is what the job makes: Snakemake deletes it where the job fails, and takes it for
    unfinished where the job was killed. So no file of it need appear at once, and to rename one costs as much as to write it."""
    with _created(f"{path}") as file:
        file.write(content)


def _npy(array: np.ndarray) -> memoryview:
    """The bytes of `array` as a .npy file; np.save asks a real file for its position several times, which costs more than a small array."""
    npy = BytesIO()
    np.save(npy, np.ascontiguousarray(array), allow_pickle=False)
    return npy.getbuffer()


def npy_header(shape: tuple[int, ...], dtype: np.dtype) -> dict:
    """The header of a .npy file."""
    return {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}


@contextmanager
def by_rows(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> Iterator[Callable[[int, np.ndarray], None]]:
    """Give `put(first, rows)`, which writes rows [..., n, columns] of an array [..., L, columns] to where the first of them belongs; the
    file appears whole, with the bytes that `write_array` would write, when all are put."""
    temporary = f"{path}.part"
    with _created(temporary) as file:
        np.lib.format.write_array_header_1_0(file, npy_header(shape, dtype))
        start, row = file.tell(), shape[-1] * dtype.itemsize

        def put(first: int, rows: np.ndarray) -> None:
            for lead, part in enumerate(np.ascontiguousarray(rows).reshape(-1, *rows.shape[-2:])):
                file.seek(start + (lead * shape[-2] + first) * row)
                file.write(part.reshape(-1).view(np.uint8).data)

        yield put
    os.replace(temporary, path)


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
    if any(length < 0 for length in shape):  # which NumPy would make of the size what it likes
        raise ValueError(f"has the shape {list(shape)}")
    return shape, dtype


def read_rows_of(path: Path, name: str, queries: int, chosen: list[int], at: int = 0) -> np.ndarray:
    """The queries `chosen` of array `name`, of so many, from the .npy that begins at byte `at` of a file, or all of an array that has not
    as many; no more of the file is read."""
    with open(path, "rb") as file:
        file.seek(at)
        head = file.read(10)
        shape, dtype = _header(head + file.read(int.from_bytes(head[8:10], "little")))
        whole = np.memmap(file, bfloat16 if dtype.kind == "V" else dtype, "r", file.tell(), shape).view(np.ndarray)
    axis = along(name)
    return whole.copy() if axis is None or whole.shape[axis] != queries else whole.take(chosen, axis=axis)


def write_json(path: Path, value: object) -> None:
    """Write `value` as strict JSON, nested things over lines and flat ones on one line; see `values` for NaN and infinity."""
    write_bytes(path, lambda file: file.write(json_bytes(value)))


def read_json(path: Path) -> dict:
    """What `write_json` wrote."""
    return json.loads(Path(path).read_bytes())


def json_bytes(value: object) -> bytes:
    """The bytes that `write_json` writes."""
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
