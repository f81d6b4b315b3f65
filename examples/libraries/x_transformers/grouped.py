"""Attend of x-transformers with fewer heads of keys and values than of queries, which it repeats itself."""

from x_transformers.attend import Attend

ARRAYS = "torch"
CAN, AXES = ("keep", "bias", "scale", "groups", "widths"), "bhld"


def attention(case, arrays):
    """The contexts of all heads."""
    if case["heads"] == case["kv_heads"]:
        raise NotImplementedError("grouped heads")
    attend = Attend(scale=case["scale_factor"])
    contexts, _ = attend(arrays["query"], arrays["key"], arrays["value"], mask=arrays.get("keep"), attn_bias=arrays.get("bias"))
    return contexts
