"""Stage weights: the softmax of each row of scores along the keys (Vaswani et al. 2017, equation 1), and its relatives."""

import numpy as np

from worked_attention.stages.precision import total


def softmax(scores: np.ndarray, sinks: np.ndarray | None = None, empty_row: str = "zero") -> np.ndarray:
    """exp(s_j) / (sum_j exp(s_j) + exp(sink)) along the last axis, shifted by the largest so that nothing overflows.

    scores: [..., H, Lq, Lk]; sinks: [H] logits that take weight and carry no value (a sink of 0 is "softmax plus one",
    Miller 2023), None for the plain softmax. A row of -inf has no softmax: `empty_row` says what it becomes, `zero`, `nan`,
    `uniform`, or `error`, which raises ValueError. With a sink such a row is 0 by the formula, unless the sink is -inf, too.
    """
    largest = scores.max(axis=-1, keepdims=True)
    sink = None if sinks is None else np.broadcast_to(sinks[:, None, None], largest.shape).astype(scores.dtype)
    if sink is not None:
        largest = np.maximum(largest, sink)
    empty = largest == -np.inf
    if empty.any() and empty_row == "error":
        raise ValueError(f"{int(empty.sum())} rows have no key left, and the case says empty_row: error")
    shift = np.where(empty, scores.dtype.type(0), largest)
    with np.errstate(invalid="ignore"):  # 0/0 in an empty row, and inf - inf; both are NaN
        e = np.exp(scores - shift)
        denominator = total(e) if sink is None else total(e) + np.exp(sink - shift)
        p = e / denominator
    if not empty.any() or empty_row == "nan":
        return p
    return np.where(empty, scores.dtype.type(1 / scores.shape[-1] if empty_row == "uniform" else 0), p)


def hardmax(scores: np.ndarray) -> np.ndarray:
    """1 at the first largest score of each row and 0 elsewhere; all 0 where every key is blocked."""
    chosen = np.arange(scores.shape[-1]) == scores.argmax(axis=-1)[..., None]
    return (chosen & (scores > -np.inf)).astype(scores.dtype)


def dropout(weights: np.ndarray, keep: np.ndarray, p: float) -> np.ndarray:
    """weights * keep / (1 - p): "inverted" dropout with a given mask, True = kept (Srivastava et al. 2014, section 10)."""
    return (weights * keep / (1 - p)).astype(weights.dtype)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`weights` [..., H, Lq, Lk] from what enters the softmax, and `dropped` after dropout, if there is one."""
    scores = arrays["masked"].astype(case["precision"]["softmax"])
    sinks = arrays.get("sinks")
    if case["softmax"] == "plus_one":
        sinks = np.zeros(case["heads"], scores.dtype)
    weights = hardmax(scores) if case["softmax"] == "hardmax" else softmax(scores, sinks, case["mask"]["empty_row"])
    made = {"weights": weights.astype(case["dtype"])}
    if "dropout_keep" in arrays:
        made["dropped"] = dropout(made["weights"], arrays["dropout_keep"], case["dropout"])
    return made
