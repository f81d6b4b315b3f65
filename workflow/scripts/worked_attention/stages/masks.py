"""Which keys a query may see: every mask as booleans, True = attend, combined with "and"; and what takes the place of the others.

Queries and keys are counted from 0. `diagonal` is how far query i sees in a causal mask: keys j <= i + diagonal.
"""

import numpy as np


def diagonal(align: str, queries: int, keys: int) -> int:
    """0 for `top_left`; keys - queries for `bottom_right`, where the last query sees the last key."""
    return {"top_left": 0, "bottom_right": keys - queries}[align]


def causal(queries: int, keys: int, align: str, prefix: int = 0) -> np.ndarray:
    """keep [Lq, Lk]: keys up to the diagonal, and the first `prefix` keys for every query (prefix LM)."""
    i, j = np.ogrid[:queries, :keys]
    return (j <= i + diagonal(align, queries, keys)) | (j < prefix)


def window(queries: int, keys: int, align: str, left: int | None = None, right: int | None = None) -> np.ndarray:
    """keep [Lq, Lk]: at most `left` keys to the left of the diagonal and `right` to the right of it; None is no limit."""
    i, j = np.ogrid[:queries, :keys]
    distance = j - i - diagonal(align, queries, keys)
    return (distance >= (-keys - queries if left is None else -left)) & (distance <= (keys + queries if right is None else right))


def documents(query_documents: list[int], key_documents: list[int]) -> np.ndarray:
    """keep [Lq, Lk]: a query sees the keys of its own document (block-diagonal if documents lie one after the other)."""
    return np.equal.outer(query_documents, key_documents)


def key_lengths(lengths: list[int], keys: int) -> np.ndarray:
    """keep [B, 1, 1, Lk]: the first `lengths[b]` keys of sequence b."""
    return np.arange(keys) < np.array(lengths)[:, None, None, None]


def combined(case: dict, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """keep, broadcastable to [..., H, Lq, Lk]: all masks of the case together; None if it has none.

    Keys that the layer itself appends (`bias_k`, a zero key) are seen by every query.
    """
    mask, dims = case["mask"], case["dims"]
    queries, keys = dims["Lq"], dims["Lc"]
    align = mask.get("causal") or mask.get("window", {}).get("align", "top_left")
    keeps = []
    if "causal" in mask:
        keeps.append(causal(queries, keys, align, mask.get("prefix", 0)))
    if "window" in mask:
        keeps.append(window(queries, keys, align, mask["window"].get("left"), mask["window"].get("right")))
    if "documents" in mask:
        keeps.append(documents(mask["documents"]["queries"], mask["documents"]["keys"]))
    if "key_lengths" in mask:
        keep = key_lengths(mask["key_lengths"], keys)
        keeps.append(keep if "B" in dims else keep[0])
    if "mask_keep" in arrays:
        keeps.append(arrays["mask_keep"])
    if "mask_block" in arrays:
        keeps.append(~arrays["mask_block"])
    if "mask_key_keep" in arrays:
        keeps.append(arrays["mask_key_keep"][..., None, None, :])
    if "mask_key_block" in arrays:
        keeps.append(~arrays["mask_key_block"][..., None, None, :])
    if not keeps:
        return None
    keep = np.logical_and.reduce(np.broadcast_arrays(*keeps))
    return append_keys(keep, dims["Lk"] - keys, True)


def append_keys(array: np.ndarray, extra: int, value: float | bool) -> np.ndarray:
    """`array` [..., Lk] with `extra` more keys of `value`."""
    if not extra:
        return array
    return np.concatenate([array, np.full((*array.shape[:-1], extra), value, array.dtype)], axis=-1)


def fill_value(fill: str | float, dtype: np.dtype) -> float:
    """What a blocked score becomes: -inf, the dtype's most negative finite number, or a number."""
    from ml_dtypes import finfo

    return {"-inf": -np.inf, "finfo_min": float(finfo(dtype).min)}.get(fill, fill)
