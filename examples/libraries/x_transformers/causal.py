"""Attend of x-transformers with its own causal mask, which lets the last query see the last key."""

from x_transformers.attend import Attend

ARRAYS = "torch"
CAN, AXES = ("keep", "scale", "widths"), "bhld"
OTHERS = ("window", "documents", "key_lengths")


def attention(case, arrays):
    """The contexts of all heads."""
    mask = case["mask"]
    given = any(name.startswith("mask_") for name in arrays)
    if mask.get("causal") != "bottom_right" or mask["prefix"] or given or any(other in mask for other in OTHERS):
        raise NotImplementedError("a causal mask alone, aligned to the last key")
    contexts, _ = Attend(causal=True, scale=case["scale_factor"])(arrays["query"], arrays["key"], arrays["value"])
    return contexts
