"""The arrays of a suite in one .npz, with a member {case}/{array}.npy for each.

Truth and references, which only stand beside the stages, are kept so: a file of its own for each array costs more than to compute it.
"""

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from math import prod
from pathlib import Path

import numpy as np

from worked_attention.files.formats import from_npy, npy_header, read_rows_of


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
            np.lib.format.write_array_header_1_0(head, npy_header(shape, dtype))
            member.file_size = head.tell() + prod(shape) * dtype.itemsize
            with archive.open(member, "w") as file:  # without a copy, for an array may be as large as the memory allows
                file.write(head.getvalue())
                for piece in pieces:
                    file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)

        yield put
    os.replace(temporary, path)


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
            key = member.split("/")[1][:-4]
            found[key] = read_rows_of(
                self.path, key.split(".")[-1], queries, chosen, self._start(self.archive.getinfo(member).header_offset)
            )
        return found

    def _start(self, offset: int) -> int:
        """Where the bytes of the member begin whose header stands at `offset`; the file holds them as they are, behind a name."""
        with open(self.path, "rb") as file:
            file.seek(offset + 26)  # the lengths of the name and of what follows it
            return offset + 30 + int(np.frombuffer(file.read(4), "<u2").sum())
