"""Stage contexts: the values, averaged with the weights, and the heads laid side by side.

weights V per head, then Concat(head_1, ..., head_H) (Vaswani et al. 2017, section 3.2.2).
"""

import numpy as np

from worked_attention.stages.precision import matmul, rounded
from worked_attention.stages.projections import latest
from worked_attention.stages.scores import repeat_heads


def merge_heads(x: np.ndarray) -> np.ndarray:
    """[..., H, L, d] to [..., L, H*d]: the heads of one token side by side."""
    x = np.swapaxes(x, -2, -3)
    return x.reshape(*x.shape[:-2], -1)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`contexts` [..., H, Lq, d_v] and `concat` [..., Lq, H*d_v]; nothing if the case has no values."""
    if not case["arrays"]["contexts"]:
        return {}
    values = repeat_heads(latest(arrays, "v"), case["heads"])
    weights = arrays["dropped"] if "dropped" in arrays else arrays["weights"]
    contexts = rounded(matmul(weights, values, case["precision"]["accumulate"]), case["dtype"])
    return {"contexts": contexts, "concat": merge_heads(contexts)}
