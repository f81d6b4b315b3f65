"""Somebody's attention, which knows nothing of its judge: blockwise over the keys, with a running maximum and sum."""

import numpy as np


def attend(query, key, value, keep=None, scale=1.0, block=2):
    """softmax(scale * query key^T) value over the keys that `keep` lets through; query [..., Lq, d], keep [..., Lq, Lk]."""
    largest = np.full((*query.shape[:-1], 1), -np.inf)
    total = np.zeros_like(largest)
    mean = np.zeros((*query.shape[:-1], value.shape[-1]))
    for start in range(0, key.shape[-2], block):
        part = slice(start, start + block)
        scores = scale * query @ np.swapaxes(key[..., part, :], -1, -2)
        if keep is not None:
            scores = np.where(keep[..., part], scores, -np.inf)
        maximum = np.maximum(largest, scores.max(axis=-1, keepdims=True))
        shift = np.where(np.isfinite(maximum), maximum, 0.0)
        weights, carried = np.exp(scores - shift), np.exp(largest - shift)
        total = carried * total + weights.sum(axis=-1, keepdims=True)
        mean = carried * mean + weights @ value[..., part, :]
        largest = maximum
    return mean / np.where(total > 0, total, 1.0)  # zero where a query sees no key
