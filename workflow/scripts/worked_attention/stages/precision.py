"""Arithmetic in a named precision: operands widened, the result rounded once to the dtype that is kept."""

import numpy as np
from ml_dtypes import bfloat16 as _bfloat16

from worked_attention.stages.dtypes import DTYPES

bfloat16 = np.dtype(_bfloat16)  # importing ml_dtypes is also what teaches NumPy the name "bfloat16"


def matmul(a: np.ndarray, b: np.ndarray, accumulate: str) -> np.ndarray:
    """a b, summed in `accumulate`, in the dtype of a.

    a: [..., n, d]; b: [..., d, m]. float16 and bfloat16 sums are rounded after each term, in the order of d.
    """
    wide = np.dtype(accumulate)
    if not DTYPES[accumulate].half:
        return (a.astype(wide, copy=False) @ b.astype(wide, copy=False)).astype(a.dtype, copy=False)
    a, b = a.astype(wide), b.astype(wide)
    total = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1]), wide)
    for t in range(a.shape[-1]):
        total = (total + (a[..., :, t, None] * b[..., None, t, :]).astype(wide)).astype(wide)
    return total


def total(x: np.ndarray) -> np.ndarray:
    """Sum of x along its last axis, which stays with length 1; float16 and bfloat16 are rounded after each term."""
    if not DTYPES[x.dtype.name].half:
        return x.sum(axis=-1, keepdims=True)
    return matmul(x, np.ones((x.shape[-1], 1), x.dtype), x.dtype.name)
