"""Which keys a query may see: for each query the set of its keys, mask by mask, and what takes the place of the other scores.

A query has a key of its own: the one with its number, or, counted from the end, the one that stands as far from the last key as the
query from the last query. Causal masks and windows go from there.
"""

from collections.abc import Iterable

import numpy as np
from flint import arb

from worked_attention.referee.truth.balls import CLOSED
from worked_attention.referee.truth.parts import Part
from worked_attention.referee.truth.positions import largest, rounded

OWN = {"top_left": lambda i, queries, keys: i, "bottom_right": lambda i, queries, keys: keys - (queries - i)}
LAST = {"padded": lambda case, b: case["dims"]["Lc"], "own": lambda case, b: case["mask"]["key_lengths"][b]}  # how many keys count for that


def seen(case: dict, part: Part) -> np.ndarray | None:
    """True where a query of the part may see a key, bool [n, Lk]; None if the case has no mask. Keys that the layer appends are seen."""
    rules = [rule for name, rule in RULES.items() if name in case["mask"] or f"mask_{name}" in part]
    if not rules:
        return None
    keys, all_keys = case["dims"]["Lc"], case["dims"]["Lk"]
    keep = np.zeros((len(part.queries), all_keys), dtype=bool)
    for row, i in enumerate(part.queries):
        allowed = set(range(keys)).intersection(*(rule(case, part, row, i) for rule in rules))
        keep[row, [*allowed, *range(keys, all_keys)]] = True
    return keep


# Rules: each takes the case, the part, the row of the query in the part and its number, and returns the keys that the query may see


def _own(case: dict, part: Part, align: str, i: int) -> int:
    rows = case["rows"]  # which may be a part of the queries; masks count all
    return OWN[align](rows["numbers"][i], rows["of"], LAST[case["mask"]["diagonal"]](case, part.b))


def _causal(case: dict, part: Part, row: int, i: int) -> Iterable[int]:
    """Keys up to the query's own, and the prefix."""
    return {*range(_own(case, part, case["mask"]["causal"], i) + 1), *range(case["mask"]["prefix"])}


def _window(case: dict, part: Part, row: int, i: int) -> Iterable[int]:
    """So many keys to the left of the query's own and to the right of it, and that one."""
    window = case["mask"]["window"]
    own = _own(case, part, window["align"], i)
    first = 0 if window["left"] is None else own - window["left"]
    last = case["dims"]["Lc"] if window["right"] is None else own + window["right"]
    return range(first, last + 1)


def _documents(case: dict, part: Part, row: int, i: int) -> Iterable[int]:
    """Keys of the query's own document."""
    documents = case["mask"]["documents"]
    return [j for j, document in enumerate(documents["keys"]) if document == documents["queries"][i]]


def _key_lengths(case: dict, part: Part, row: int, i: int) -> Iterable[int]:
    """The real keys, which come first."""
    return range(case["mask"]["key_lengths"][part.b])


def _cells(name: str, seen: bool):
    """The keys for which the mask `name`, [n, Lc] with 1 standing for all, says `seen`."""

    def rule(case: dict, part: Part, row: int, i: int) -> Iterable[int]:
        cells = np.broadcast_to(part[name], (len(part.queries), case["dims"]["Lc"]))
        return [j for j, cell in enumerate(cells[row].tolist()) if cell is seen]

    return rule


RULES = {
    "causal": _causal,
    "window": _window,
    "documents": _documents,
    "key_lengths": _key_lengths,
    "keep": _cells("mask_keep", True),
    "block": _cells("mask_block", False),
    "key_keep": _cells("mask_key_keep", True),
    "key_block": _cells("mask_key_block", False),
}


def fill(case: dict) -> arb:
    """What the score of a key becomes that is not seen, in the dtype of scores: -inf, its most negative number, or a number."""
    dtype, asked = case["precision"]["scores"], case["mask"]["fill"]
    named = {"-inf": CLOSED, "finfo_min": arb(-largest(dtype))}
    return named[asked] if isinstance(asked, str) else rounded(arb(asked), dtype)
