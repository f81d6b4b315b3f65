"""Some of the queries of a case: those that are looked at where a case is too large for all, and the case of these alone.

A query's numbers depend on no other query, so a case cut down to some of its queries, with all of its keys, is a case like any other: its
arrays are rows of those of the whole. What computes, bounds, certifies or compares a case need not know that it is a part. `rows` of a case
says which queries of the whole its own are, for masks count from there: {of: queries of the whole, numbers: of its own, from 0}.
"""

from collections.abc import Iterable
from hashlib import sha256
from math import prod

from worked_attention.stages.catalogue import CATALOGUE, existing, shape

COMPUTED, COMPARED = 2**21, 2**19  # numbers of an array of scores that a stage makes, and that are held against others, at a time
BLOCKS = (64, 128)  # lengths of the blocks in which kernels take queries
KEYS = {"Ln", "Lc", "Lk"}  # axes of keys
DRAWN = 8  # rows of a sample that are drawn
WHY = (
    "the first two and the last two, the middle one, those on both sides of the first and of the last edge of blocks of 64 and of 128, and "
    "eight drawn from a hash of their number"
)
ALL_OF = {"x_kv": "x", "x_kv_pos": "x_pos"}  # keys and values of a part come from all of what its queries come from some rows of


def every(queries: int) -> dict:
    """`rows` of a whole case with so many queries."""
    return {"of": queries, "numbers": list(range(queries))}


def sample(queries: int) -> list[int]:
    """The numbers of the queries, out of so many, that are looked at in place of all; see WHY."""
    found = {0, 1, queries // 2, queries - 2, queries - 1}
    for length in BLOCKS:
        last = (queries - 1) // length * length
        found |= {length - 1, length, last - 1, last}
    found |= {int.from_bytes(sha256(f"row {i} of {queries}".encode()).digest()) % queries for i in range(DRAWN)}
    return sorted(number for number in found if 0 <= number < queries)


def is_large(case: dict) -> bool:
    """Whether the case has more scores than are held against others at a time; its exact ones are kept in files."""
    return prod(case["shapes"]["masked"]) > COMPARED


def along(name: str) -> int | None:
    """The axis of the queries in array `name`, counted from the last (-1); None if it has none."""
    axes = CATALOGUE[name].axes
    return axes.index("Lq") - len(axes) if "Lq" in axes else None


def of_queries(names: Iterable[str]) -> bool:
    """Whether a stage with these arrays can be computed some queries at a time: none of them has keys and no queries."""
    return all(along(name) or not KEYS.intersection(CATALOGUE[name].axes) for name in names)


def cut(case: dict, chosen: list[int]) -> dict:
    """The resolved case of the queries `chosen` (their places in the case), with all its keys."""

    def some(listed: list) -> list:
        return [listed[place] for place in chosen]

    given = list(case["arrays"]["parameters"])
    shared = "x" in given and not {"x_k", "x_kv"} & set(given)  # x is what the keys come from, too
    parameters = case["parameters"] | ({"x_kv": case["parameters"].get("x")} if shared else {})
    dims = case["dims"] | {"Lq": len(chosen)}
    arrays = existing({*case["uses"], *given, *(["x_kv"] if shared else [])})
    shapes = {name: _shape(case, name, dims) for names in arrays.values() for name in names}
    documents = case["mask"].get("documents")
    return case | {
        "parameters": parameters,
        "dims": dims,
        "arrays": arrays,
        "shapes": shapes,
        "rows": {"of": case["rows"]["of"], "numbers": some(case["rows"]["numbers"])},
        "sample": None,
        "tokens": some(case["tokens"]),
        "query_positions": some(case["query_positions"]),
        "mask": case["mask"] | ({"documents": documents | {"queries": some(documents["queries"])}} if documents else {}),
    }


def _shape(case: dict, name: str, dims: dict[str, int]) -> list[int]:
    """Shape of array `name` in a part of the case with these `dims`; a mask of one row stands for all queries, there as well."""
    if name not in case["shapes"]:
        return list(shape(name, dims))
    known, axis = list(case["shapes"][name]), along(name)
    if axis is not None and known[axis] != 1:
        known[axis] = dims["Lq"]
    return known


def stored(case: dict, name: str) -> str:
    """Under which name the whole case has array `name` of a part."""
    return name if name in case["shapes"] else ALL_OF[name]


def partial(case: dict) -> bool:
    """Whether this is a part of a case, and not all of it."""
    return len(case["rows"]["numbers"]) < case["rows"]["of"]


def whole_dims(case: dict) -> dict[str, int]:
    """The sizes of the whole case that this one is, or is a part of."""
    return case["dims"] | {"Lq": case["rows"]["of"]}


def looked_at(case: dict) -> dict:
    """The case as it is looked at: all of it, or cut to its sample."""
    return cut(case, case["sample"]) if case["sample"] else case


def blocks(case: dict, most: int) -> list[list[int]]:
    """The places of all queries of a case, in blocks of about equal length with at most so many scores each; of a case with gradients, in
    which queries depend on each other, all are one block."""
    *lead, queries, keys = case["shapes"]["masked"]
    scores = keys
    for length in lead:
        scores *= length
    count = 1 if case["backward"] else min(queries, -(-queries * scores // most))
    edges = [i * queries // count for i in range(count + 1)]
    return [list(range(first, end)) for first, end in zip(edges, edges[1:], strict=False)]
