"""What the references share that compute attention from queries, keys and values by one operator.

The operator begins at queries, keys and values per head. What makes those (projections, norms) is not its business and is ours.
"""

import numpy as np

from worked_attention.stages.dtypes import usual_precision
from worked_attention.stages.masks import combined
from worked_attention.stages.scores import bias


def supports(case: dict) -> str | None:
    """Cases that have queries, keys and values, and no term in the softmax but scores."""
    if case["begins_at"] == "scaled":
        return "takes q, k and v, not scores"
    if case["softmax"] != "plain" or "sinks" in case["shapes"]:
        return "has the plain softmax only"
    if case["dropout"] is not None:
        return "has no dropout"
    if case["mask"]["fill"] != "-inf":
        return "chooses what fills blocked scores itself"
    if case["precision"]["accumulate"] != usual_precision(case["dtype"])["accumulate"]:
        return "chooses the precision of sums itself"
    if case["spelled"]:
        return "adds its masks, so that NaN or infinity behind a mask comes through"
    return None


def aligned(case: dict, option: str, shift: int) -> bool:
    """Whether `option` (causal or window) has a diagonal that lies `shift` keys to the right of the first one."""
    mask, dims = case["mask"], case["dims"]
    align = mask.get("causal") or mask.get("window", {}).get("align", "top_left")
    return option in mask and "prefix" not in mask and shift == (dims["Lc"] - dims["Lq"] if align == "bottom_right" else 0)


def keep_and_bias(case: dict, arrays: dict[str, np.ndarray], native: set[str]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Boolean mask (True = attend) and additive terms, each [B, H, Lq, Lk] or None; without the options that the operator has itself."""
    rest = {option: value for option, value in case["mask"].items() if option not in native}
    shape = (case["dims"].get("B", 1), case["heads"], case["dims"]["Lq"], case["dims"]["Lk"])
    found = combined({**case, "mask": rest}, arrays), bias(case, arrays)
    return tuple(None if array is None else np.broadcast_to(array, shape) for array in found)


def batched(case: dict, array: np.ndarray) -> np.ndarray:
    """`array` with a batch axis, also where the case has none."""
    return array if "B" in case["dims"] else array[None]


def narrowed(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays as an implementation without float64 takes them."""
    wide = np.float64 if case["dtype"] == "float64" else None
    return {name: array.astype(np.float32) if array.dtype == wide else array for name, array in arrays.items()}
