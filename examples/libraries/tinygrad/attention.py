"""tinygrad's Tensor.scaled_dot_product_attention: one mask, boolean or added."""

import os

os.environ.setdefault("DEV", "PYTHON")  # slow, but its other devices need a compiler

from tinygrad import Tensor  # noqa: E402

CAN, AXES = ("keep", "bias", "groups", "widths"), "bhld"


def attention(case, arrays):
    """The contexts of all heads."""
    if case["dims"]["Lq"] * case["dims"]["Lk"] > 1000:
        raise NotImplementedError("small cases, for the device is slow")
    query, key, value = (Tensor(arrays[name]) for name in ("query", "key", "value"))
    mask = arrays.get("added" if "bias" in arrays else "keep")
    grouped = case["heads"] != case["kv_heads"]
    return query.scaled_dot_product_attention(key, value, mask if mask is None else Tensor(mask), enable_gqa=grouped).numpy()
