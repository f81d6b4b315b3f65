"""What the references share that compute attention from queries, keys and values by one operator.

The operator begins at queries, keys and values per head. What makes those (projections, norms) is not its business and is ours.
"""

import numpy as np

from worked_attention.references.can import ATTENDING, SOFTCAP, refusal
from worked_attention.stages.dtypes import usual_precision
from worked_attention.stages.masks import causal, combined, window
from worked_attention.stages.rows import every
from worked_attention.stages.scores import bias

CAN = ATTENDING | SOFTCAP


def supports(case: dict, can: frozenset[str] = CAN) -> str | None:
    """Cases of what it `can` do, with the plain softmax and the usual precision of sums."""
    if reason := refusal(case, can):
        return reason
    if case["softmax"] != "plain":
        return "has the plain softmax only"
    if case["precision"]["accumulate"] != usual_precision(case["dtype"])["accumulate"]:
        return "chooses the precision of sums itself"
    if case["spelled"]:
        return "adds its masks, so that NaN or infinity behind a mask comes through"
    return None


def says(case: dict, option: str, shift: int) -> bool:
    """Whether an operator's own `option` (causal or window), its diagonal `shift` keys to the right, says just what the case means.

    The hint and the case's mask of that option are compared key by key, also those that the layer appends.
    """
    mask, dims = case["mask"], case["dims"]
    if option not in mask:
        return False
    queries, keys = dims["Lq"], dims["Lk"]
    alone = mask | {key: None for key in mask if key not in (option, "diagonal", "prefix")}
    alone = {key: value for key, value in alone.items() if value is not None}
    meant = combined({**case, "mask": alone | ({"key_lengths": mask["key_lengths"]} if mask["diagonal"] == "own" else {})}, {})
    ends = queries + shift
    hints = {
        "causal": lambda: causal(every(queries), keys, "bottom_right", ends=ends),
        "window": lambda: window(every(queries), keys, "bottom_right", mask["window"]["left"], mask["window"]["right"], ends=ends),
    }
    return bool((meant == hints[option]()).all())


def keep_and_bias(case: dict, arrays: dict[str, np.ndarray], native: set[str]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Boolean mask (True = attend) and additive terms, each [B, H, Lq, Lk] or None; without the options that the operator has itself."""
    rest = {option: value for option, value in case["mask"].items() if option not in native}
    shape = (case["dims"].get("B", 1), case["heads"], case["dims"]["Lq"], case["dims"]["Lk"])
    narrow = {**case, "precision": case["precision"] | {"scores": case["dtype"]}}  # a bias comes in the dtype of queries and keys
    found = combined({**case, "mask": rest}, arrays), bias(narrow, arrays)
    return tuple(None if array is None else np.broadcast_to(array, shape) for array in found)


def batched(case: dict, array: np.ndarray) -> np.ndarray:
    """`array` with a batch axis, also where the case has none."""
    return array if "B" in case["dims"] else array[None]


def narrowed(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays as an implementation without float64 takes them."""
    wide = np.float64 if case["dtype"] == "float64" else None
    return {name: array.astype(np.float32) if array.dtype == wide else array for name, array in arrays.items()}
