"""Arithmetic in a named precision: operands are widened, and the result is rounded once to the dtype that is kept."""

import numpy as np
from ml_dtypes import bfloat16 as _bfloat16

from worked_attention.stages.dtypes import DTYPES, HALF

bfloat16 = np.dtype(_bfloat16)  # importing ml_dtypes is also what teaches NumPy the name "bfloat16"
HALVES = {np.dtype(name) for name in HALF}


def widened(x: np.ndarray) -> np.ndarray:
    """x as it is computed with: float16 and bfloat16 as float32, all else as it is."""
    return x.astype(np.float32) if x.dtype in HALVES else x


def rounded(x: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
    """x rounded once to the dtype that is kept; what is too large for it becomes infinite, as the format has it."""
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def overflowing(x: np.ndarray, beyond: float) -> np.ndarray:
    """x, and infinity in place of what is larger than `beyond`."""
    return np.where(np.abs(x) > beyond, np.copysign(x.dtype.type(np.inf), x), x)


def matmul(a: np.ndarray, b: np.ndarray, accumulate: str) -> np.ndarray:
    """a b, summed in `accumulate` and not yet rounded to the dtype that is kept.

    a: [..., n, d]; b: [..., d, m]. float16 and bfloat16 sums are rounded after each term, in the order of d.
    """
    a, b = rounded(a, accumulate), rounded(b, accumulate)
    if not DTYPES[accumulate].half:
        return a @ b
    total = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1]), accumulate)
    with np.errstate(over="ignore"):
        for t in range(a.shape[-1]):
            total = (total + (a[..., :, t, None] * b[..., None, t, :]).astype(accumulate)).astype(accumulate)
    return total


def total(x: np.ndarray) -> np.ndarray:
    """Sum of x along its last axis, which stays with length 1; float16 and bfloat16 are rounded after each term."""
    if not DTYPES[x.dtype.name].half:
        return x.sum(axis=-1, keepdims=True)
    return matmul(x, np.ones((x.shape[-1], 1), x.dtype), x.dtype.name)
