"""What an implementation is handed: the parameters of a case, and beside them, ready, what a kernel takes and what tables it needs.

So a kernel for `query`, `key` and `value` takes them as they are, whatever the case does before: projections, norms, rotations, a cache,
keys that the layer appends, every mask and every bias in one. They are ours; who writes those steps too starts from the parameters.
"""

from collections.abc import Callable

import numpy as np

from worked_attention.stages import masks, positions, projections, scores
from worked_attention.stages.catalogue import TABLES
from worked_attention.stages.precision import bfloat16, rounded, widened

Arrays = dict[str, np.ndarray]


def query_key_value(case: dict, arrays: Arrays) -> Arrays:
    """`query` [..., H, Lq, d_k], `key` [..., H_kv, Lk, d_k], `value` [..., H_kv, Lk, d_v] as they enter the attention, where there are; of
    a rotary case also what is rotated, to become `q_rot` and `k_rot`: `query_unrotated`, `key_unrotated` [..., H_kv, L, d_k]."""
    made = arrays | projections.stage(case, arrays)
    found = {word: projections.latest(made, word[0]) for word in ("query", "key", "value") if f"{word[0]}_heads" in made}
    if case["rotary"]:
        found |= {f"{word}_unrotated": projections.unrotated(made, word[0]) for word in ("query", "key")}
    return found


def keep_and_bias(case: dict, arrays: Arrays) -> Arrays:
    """`keep` (boolean, True = attend) and `bias`, [..., H, Lq, Lk], where the case has masks, and where it adds something to its scores;
    `added`, both in one, -inf where a key is blocked, for who can only add."""
    shape = case["shapes"]["masked"]
    found = {"keep": masks.combined(case, arrays), "bias": scores.bias(case, arrays)}
    found = {name: np.broadcast_to(array, shape) for name, array in found.items() if array is not None}
    if found:
        added = np.where(found.get("keep", True), widened(found.get("bias", np.zeros(shape))), -np.inf)
        found["added"] = rounded(added, case["dtype"])
    return found


def rotations(case: dict, arrays: Arrays) -> Arrays:
    """Of a rotary case, float64: `inv_freq` [dims/2], angles per position; `query_cos`, `query_sin`, `key_cos`, `key_sin` [L, dims/2]."""
    return positions.tables(case["query_positions"], case["key_positions"], case["rotary"]) if case["rotary"] else {}


def distances(case: dict, arrays: Arrays) -> Arrays:
    """`slopes` [H], float64, of a case with ALiBi; `buckets` [Lq, Lc], integers, of one with a T5 table."""
    made = {}
    if case["alibi"]:
        made["slopes"] = positions.alibi_slopes(case["heads"], case["alibi"]["slopes"])
    if "t5_table" in arrays:
        made["buckets"] = positions.relative_buckets(
            case["query_positions"], case["context_positions"], len(arrays["t5_table"]), case["t5"]
        )
    return made


GROUPS: tuple[Callable[[dict, Arrays], Arrays], ...] = (query_key_value, keep_and_bias, rotations, distances)
READY = ("query", "key", "value", "keep", "bias", "added", "query_unrotated", "key_unrotated", *TABLES)


def handed(case: dict, parameters: Arrays) -> Arrays:
    """The `parameters` of a resolved case by name, and what is ready of READY; bfloat16 as float32, which more programs know."""
    with np.errstate(all="ignore"):
        arrays = parameters | {name: array for group in GROUPS for name, array in group(case, parameters).items()}
    return {name: array.astype(np.float32) if array.dtype == bfloat16 else array for name, array in arrays.items()}
