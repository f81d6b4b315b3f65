"""Stage weights: the softmax of each row of scores along the keys (Vaswani et al. 2017, equation 1), and its relatives."""

from collections.abc import Callable

import numpy as np

from worked_attention.stages.precision import rounded, total, widened


def softmax(scores: np.ndarray, sinks: np.ndarray | None = None) -> np.ndarray:
    """exp(s_j) / (sum_j exp(s_j) + exp(sink)) along the last axis, shifted by the largest so that nothing overflows.

    scores: [..., H, Lq, Lk]; sinks: [H] logits that take weight and carry no value (a sink of 0 is "softmax plus one",
    Miller 2023), None for the plain softmax. A row of -inf, with no sink or a sink of -inf, has no softmax: it is NaN.
    """
    largest = scores.max(axis=-1, keepdims=True)
    sink = None if sinks is None else np.broadcast_to(sinks[:, None, None], largest.shape).astype(scores.dtype)
    if sink is not None:
        largest = np.maximum(largest, sink)
    with np.errstate(invalid="ignore"):  # inf - inf
        e = np.exp(scores - largest)
        return e / (total(e) if sink is None else total(e) + np.exp(sink - largest))


def hardmax(scores: np.ndarray) -> np.ndarray:
    """1 at the first largest score of each row and 0 elsewhere."""
    return (np.arange(scores.shape[-1]) == scores.argmax(axis=-1)[..., None]).astype(scores.dtype)


def dropout(weights: np.ndarray, keep: np.ndarray, p: float) -> np.ndarray:
    """weights * keep / (1 - p): "inverted" dropout with a given mask, True = kept (Srivastava et al. 2014, section 10)."""
    return rounded(widened(weights) * keep / (1 - p), weights.dtype)


def row_entropy(p: np.ndarray) -> np.ndarray:
    """-sum p ln p [...] of weights p [..., Lk]; 0 ln 0 is 0."""
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)


KINDS: dict[str, Callable[[dict, np.ndarray, np.ndarray | None, np.ndarray], np.ndarray]] = {  # from case, scores, sinks and blocked
    "plain": lambda case, scores, sinks, blocked: softmax(scores, sinks),
    "plus_one": lambda case, scores, sinks, blocked: softmax(scores, np.zeros(case["heads"], scores.dtype)),
    "hardmax": lambda case, scores, sinks, blocked: hardmax(scores),
    "none": lambda case, scores, sinks, blocked: np.where(blocked, 0, scores),
}
NO_EMPTY_ROW = ("plus_one", "none")  # a query that sees no key has weights of 0 by their formula
EMPTY_ROW = {"zero": lambda keys: 0.0, "nan": lambda keys: np.nan, "uniform": lambda keys: 1 / keys}  # each weight of an empty row


def blocked_cells(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """[..., H, Lq, Lk]: keys at -inf that are blocked or have a bias of -inf. A score that overflows is no blocked one."""
    none = arrays["masked"] == -np.inf
    if "qk" in arrays:  # scores that are given are blocked where they are -inf
        blocked = np.zeros(none.shape, bool)
        if "keep" in arrays:
            blocked |= ~arrays["keep"]
        if "bias" in arrays:
            blocked |= arrays["bias"] == -np.inf
        none &= blocked
    return none


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`weights` [..., H, Lq, Lk] from what enters the softmax, and `dropped` after dropout, if there is one.

    What a query without keys gets is as the case names it (`mask.empty_row`); `error` raises ValueError. With a sink, or with one more
    in the denominator, its weights are 0 by the formula, unless the sink is -inf, too; as they are without a softmax, where the scores
    themselves are the weights and a blocked key has 0.
    """
    scores, sinks = arrays["masked"].astype(case["precision"]["softmax"]), arrays.get("sinks")
    blocked = blocked_cells(arrays)
    weights = KINDS[case["softmax"]](case, scores, sinks, blocked)
    empty = blocked.all(axis=-1, keepdims=True)
    if case["softmax"] in NO_EMPTY_ROW:
        empty &= False
    elif sinks is not None:
        empty &= (sinks == -np.inf)[:, None, None]
    if empty.any():
        if case["mask"]["empty_row"] == "error":
            raise ValueError(f"{int(empty.sum())} rows have no key left, and the case says empty_row: error")
        weights = np.where(empty, EMPTY_ROW[case["mask"]["empty_row"]](scores.shape[-1]), weights)
    made = {"weights": rounded(weights, case["dtype"])}
    if "dropout_keep" in arrays:
        made["dropped"] = dropout(made["weights"], arrays["dropout_keep"], case["dropout"])
    return made
