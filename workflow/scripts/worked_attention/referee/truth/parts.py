"""Parts of a case: one sequence, some of its queries, one head of these, and so on; in slices a case needs little memory."""

from functools import cache
from typing import Self

import numpy as np

from worked_attention.referee.truth.balls import Balls, balls
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE

AXES = {"b": ("B",), "h": ("H", "H_kv"), "rows": ("Lq",)}  # what a cut is made through


def blocks(rows: int, step: int) -> list[slice]:
    """`rows` rows, `step` at a time."""
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def place(axes: tuple[str, ...], shape: tuple[int, ...], group: int, where: dict[str, int | slice]) -> tuple[int | slice, ...]:
    """The index of a part in an array of this `shape`, whose `axes` are told from the right; an axis of length 1 stands for all.

    where: sequence `b`, query head `h`, queries `rows`, as far as there is a cut through them. `group` query heads share a key head.
    """
    at = {"B": where.get("b"), "H": where.get("h"), "H_kv": where["h"] // group if "h" in where else None, "Lq": where.get("rows")}
    index: list[int | slice] = []
    for axis, length in zip(axes[len(axes) - len(shape) :], shape, strict=True):
        cut = at.get(axis)
        if cut is None or (axis == "Lq" and length == 1):
            index.append(slice(None))
        else:
            index.append(cut if axis == "Lq" else min(cut, length - 1))
    return tuple(index)


@cache
def axes(name: str, gone: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The axes of array `name`, the batch among them, without those that are `gone`."""
    return tuple(axis for axis in ("B" if axis == "..." else axis for axis in CATALOGUE[name].axes) if axis not in gone)


class Part:
    """Arrays by name, cut down; floats become balls when they are asked for.

    b, h: which sequence and query head, as far as there was a cut. queries: the numbers of the queries. gone: axes that were cut away.
    """

    def __init__(self, case: dict, arrays: dict[str, np.ndarray]):
        self.case, self.arrays, self.b, self.h = case, dict(arrays), None, None
        self.queries, self.gone = range(case["dims"]["Lq"]), ()

    def cut(self, **where: int | slice) -> Self:
        """One sequence (`b`), one query head with its keys (`h`), or some of the queries (`rows`, counted within the part)."""
        group = self.case["heads"] // self.case["kv_heads"]
        cut = {name: np.asarray(array[place(axes(name, self.gone), array.shape, group, where)]) for name, array in self.arrays.items()}
        part = Part(self.case, cut)
        part.b, part.h = where.get("b", self.b), where.get("h", self.h)
        part.queries = self.queries[where.get("rows", slice(None))]
        part.gone = (*self.gone, *(axis for key in where if key != "rows" for axis in AXES[key]))
        return part

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
