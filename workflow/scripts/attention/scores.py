"""Stage scores: how much each query asks of each key, before the softmax.

scale * Q K^T per head (Vaswani et al. 2017, equation 1).
"""

import numpy as np


def scores(q_heads: np.ndarray, k_heads: np.ndarray, scale: float) -> dict[str, np.ndarray]:
    """`qk` = Q K^T and `scaled` = scale * Q K^T, both [..., H, Lq, Lk].

    q_heads: [..., H, Lq, d_k]; k_heads: [..., H, Lk, d_k]; scale: what multiplies the products, 1/sqrt(d_k) in the paper.
    """
    qk = q_heads @ np.swapaxes(k_heads, -1, -2)
    return {"qk": qk, "scaled": qk * scale}


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`qk`, `scaled` and `masked`, or the scaled scores as given and `masked`."""
    made = {"scaled": arrays["scaled"]} if "scaled" in arrays else scores(arrays["q_heads"], arrays["k_heads"], case["scale_factor"])
    return {**made, "masked": made["scaled"]}
