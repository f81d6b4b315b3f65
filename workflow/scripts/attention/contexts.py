"""Stage contexts: the values, averaged with the weights, and the heads laid side by side.

weights V per head, then Concat(head_1, ..., head_H) (Vaswani et al. 2017, section 3.2.2).
"""

import numpy as np


def merge_heads(x: np.ndarray) -> np.ndarray:
    """[..., H, L, d] to [..., L, H*d]: the heads of one token side by side."""
    x = np.swapaxes(x, -2, -3)
    return x.reshape(*x.shape[:-2], -1)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`contexts` [..., H, Lq, d_v] and `concat` [..., Lq, H*d_v]; nothing if the case has no values."""
    if "v_heads" not in arrays:
        return {}
    contexts = arrays["weights"] @ arrays["v_heads"]
    return {"contexts": contexts, "concat": merge_heads(contexts)}
