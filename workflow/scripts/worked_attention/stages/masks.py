"""Which keys a query may see: every mask as booleans, True = attend, combined with "and"; and what takes the place of the others.

Queries and keys are counted from 0, the queries of a part as in the whole case; `rows` says which they are (see stages/rows.py).
`diagonal` is how far query i sees in a causal mask: keys j <= i + diagonal.
"""

from collections.abc import Callable

import numpy as np

from worked_attention.stages.dtypes import DTYPES, Dtype

Ends = int | np.ndarray  # how many keys count for the diagonal: one number, or [B, 1, 1, 1] where each sequence has its own


ALIGN = {  # the diagonal of so many queries and `ends`: from the first query and key, or so that the last query sees the last key
    "top_left": lambda queries, ends: 0,
    "bottom_right": lambda queries, ends: ends - queries,
}


def causal(rows: dict, keys: int, align: str, prefix: int = 0, ends: Ends | None = None) -> np.ndarray:
    """keep [Lq, Lk] (or [B, 1, Lq, Lk]): keys up to the diagonal, and the first `prefix` keys for every query (prefix LM)."""
    i, j = np.array(rows["numbers"])[:, None], np.arange(keys)
    return (j <= i + ALIGN[align](rows["of"], keys if ends is None else ends)) | (j < prefix)


def window(rows: dict, keys: int, align: str, left: int | None, right: int | None, ends: Ends | None = None) -> np.ndarray:
    """keep [Lq, Lk] (or [B, 1, Lq, Lk]): at most `left` keys to the left of the diagonal and `right` to the right; None is no limit."""
    i, j = np.array(rows["numbers"])[:, None], np.arange(keys)
    distance = j - i - ALIGN[align](rows["of"], keys if ends is None else ends)
    far = keys + rows["of"]
    return (distance >= (-far if left is None else -left)) & (distance <= (far if right is None else right))


def documents(query_documents: list[int], key_documents: list[int]) -> np.ndarray:
    """keep [Lq, Lk]: a query sees the keys of its own document (block-diagonal if documents lie one after the other)."""
    return np.equal.outer(query_documents, key_documents)


def by_sequence(lengths: list[int], dims: dict[str, int]) -> np.ndarray:
    """`lengths` as [B, 1, 1, 1], to be held against [Lq, Lk]; [1, 1] in a case without a batch."""
    return np.array(lengths).reshape((-1, 1, 1, 1) if "B" in dims else (1, 1))


DIAGONAL = {  # from which key `bottom_right` is counted: the last one of all, or each sequence's own last one
    "padded": lambda mask, dims: dims["Lc"],
    "own": lambda mask, dims: by_sequence(mask["key_lengths"], dims),
}


def combined(case: dict, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """keep, broadcastable to [..., H, Lq, Lk]: all masks of the case together; None if it has none.

    Keys that the layer itself appends (`bias_k`, a zero key) are seen by every query.
    """
    keeps = list(each_mask(case, arrays).values())
    if not keeps:
        return None
    keep = np.logical_and.reduce(np.broadcast_arrays(*keeps))
    return append_keys(keep, case["dims"]["Lk"] - case["dims"]["Lc"], True)


def each_mask(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """keep of each boolean mask of the case by its name, broadcastable to [..., H, Lq, Lc]."""
    mask, dims = case["mask"], case["dims"]
    rows, keys = case["rows"], dims["Lc"]
    ends = DIAGONAL[mask["diagonal"]](mask, dims)
    keeps = {}
    if "causal" in mask:
        keeps["causal"] = causal(rows, keys, mask["causal"], mask["prefix"], ends)
    if "window" in mask:
        keeps["window"] = window(rows, keys, mask["window"]["align"], mask["window"]["left"], mask["window"]["right"], ends)
    if "documents" in mask:
        keeps["documents"] = documents(mask["documents"]["queries"], mask["documents"]["keys"])
    if "key_lengths" in mask:
        keeps["key_lengths"] = np.arange(keys) < by_sequence(mask["key_lengths"], dims)
    if "mask_keep" in arrays:
        keeps["mask_keep"] = arrays["mask_keep"]
    if "mask_block" in arrays:
        keeps["mask_block"] = ~arrays["mask_block"]
    if "mask_key_keep" in arrays:
        keeps["mask_key_keep"] = arrays["mask_key_keep"][..., None, None, :]
    if "mask_key_block" in arrays:
        keeps["mask_key_block"] = ~arrays["mask_key_block"][..., None, None, :]
    return keeps


def append_keys(array: np.ndarray, extra: int, value: float | bool) -> np.ndarray:
    """`array` [..., Lk] with `extra` more keys of `value`."""
    if not extra:
        return array
    return np.concatenate([array, np.full((*array.shape[:-1], extra), value, array.dtype)], axis=-1)


FILLS: dict[str, Callable[[Dtype], float]] = {"-inf": lambda dtype: -np.inf, "finfo_min": lambda dtype: -dtype.largest}


def fill_value(fill: str | float, dtype: np.dtype) -> float:
    """What a blocked score becomes: -inf, the dtype's most negative finite number, or a number."""
    return FILLS[fill](DTYPES[np.dtype(dtype).name]) if isinstance(fill, str) else fill
