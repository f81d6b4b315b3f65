"""Stage weights: the softmax of each row of scores along the keys (Vaswani et al. 2017, equation 1)."""

import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    """exp(s_j) / sum_j exp(s_j) along the last axis, shifted by the row's maximum so that nothing overflows.

    scores: [..., Lk]. Returns the same shape and dtype; every row sums to 1.
    """
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`weights` [..., H, Lq, Lk] from what enters the softmax."""
    return {"weights": softmax(arrays["masked"])}
