"""Stage projections: queries, keys and values, whole and split into heads.

Q = X W_Q^T + b_Q, and likewise K and V (Vaswani et al. 2017, section 3.2.2); head h takes its own d columns.
"""

import numpy as np


def project(x: np.ndarray, w: np.ndarray | None = None, b: np.ndarray | None = None) -> np.ndarray:
    """X W^T + b; a factor that is None is left out.

    x: [..., L, d_in]; w: [d_out, d_in]; b: [d_out]. Returns [..., L, d_out] in the dtype of x.
    """
    y = x if w is None else x @ w.T
    return y if b is None else y + b


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[..., L, H*d] to [..., H, L, d]: head h takes the columns h*d to (h+1)*d."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`q`, `k`, `v` and `q_heads`, `k_heads`, `v_heads`, as far as the case has them."""
    made = {}
    for name in ("q", "k", "v"):
        if name in case["arrays"]["projections"]:
            made[name] = arrays[name] if name in arrays else project(arrays["x"], arrays.get(f"w_{name}"), arrays.get(f"b_{name}"))
            made[f"{name}_heads"] = split_heads(made[name], case["heads"])
    return made
