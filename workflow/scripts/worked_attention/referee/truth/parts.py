"""Parts of a case: one sequence, or one head of it with some of its queries; in slices a case needs little memory."""

from typing import Self

import numpy as np

from worked_attention.referee.truth.balls import Balls, balls
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE

CELLS = 2**16  # scores of one part


def blocks(dims: dict[str, int]) -> list[slice]:
    """The queries of a case with these `dims`, some at a time."""
    step = max(1, CELLS // dims["Lk"])
    return [slice(start, min(start + step, dims["Lq"])) for start in range(0, dims["Lq"], step)]


def place(name: str, shape: tuple[int, ...], group: int, b: int | None = None, h: int | None = None, rows: slice | None = None) -> tuple:
    """Where array `name` of this `shape` has sequence `b`, query head `h` and the queries `rows` (None: all of them), as an index.

    Axes are told from the right, as NumPy does, and one of length 1 stands for all. `group` query heads share a key head.
    """
    axes = ["B" if axis == "..." else axis for axis in CATALOGUE[name].axes][-len(shape) :]
    wanted = {"B": b, "H": h, "H_kv": None if h is None else h // group, "Lq": rows}
    index = []
    for axis, length in zip(axes, shape, strict=True):
        chosen = wanted.get(axis)
        if chosen is None or (axis == "Lq" and length == 1):
            index.append(slice(None))
        else:
            index.append(chosen if axis == "Lq" else min(chosen, length - 1))
    return tuple(index)


class Part:
    """Arrays by name, cut to one sequence, or further to some queries and perhaps one head; floats become balls when they are asked for."""

    def __init__(self, case: dict, arrays: dict[str, np.ndarray], b: int, h: int | None, queries: range):
        self.case, self.arrays, self.b, self.h, self.queries = case, arrays, b, h, queries

    @classmethod
    def sequence(cls, case: dict, arrays: dict[str, np.ndarray], b: int) -> Self:
        """Sequence b of the whole `arrays`."""
        return cls(case, _cut(case, arrays, b=b), b, None, range(case["dims"]["Lq"]))

    def cut(self, rows: slice, h: int | None = None) -> Self:
        """Some queries of this sequence, and of what has heads that of query head h, or of all."""
        return Part(self.case, _cut(self.case, self.arrays, h=h, rows=rows), self.b, h, self.queries[rows])

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def __getitem__(self, name: str) -> Balls:
        """Array `name` as balls, or as booleans."""
        if name not in BOOLEAN and self.arrays[name].dtype != object:
            self.arrays[name] = balls(self.arrays[name])
        return self.arrays[name]

    def maybe(self, name: str) -> Balls | None:
        """Array `name`, or None if there is none."""
        if name not in self:
            return None
        return self[name]

    def first(self, *names: str) -> Balls:
        """The first of these arrays that is there."""
        return self[next(name for name in names if name in self)]

    def add(self, made: dict[str, np.ndarray]) -> None:
        """More arrays."""
        self.arrays |= made


def _cut(case: dict, arrays: dict[str, np.ndarray], **where: int | slice | None) -> dict[str, np.ndarray]:
    group = case["heads"] // case["kv_heads"]
    return {name: np.asarray(array[place(name, array.shape, group, **where)]) for name, array in arrays.items()}
