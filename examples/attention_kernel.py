"""A kernel for queries, keys and values, here torch's own: whatever a case does before is ready, and so are its mask and its bias."""

import torch

ARRAYS = "torch"  # tensors, of bfloat16 in such a case
CAN = ("keep", "bias", "scale", "groups", "widths")  # a case that needs more is not asked


def attention(case, arrays):
    """The contexts of all heads."""
    attend = torch.nn.functional.scaled_dot_product_attention
    mask = arrays.get("added" if "bias" in arrays else "keep")
    grouped = case["heads"] != case["kv_heads"]
    return attend(arrays["query"], arrays["key"], arrays["value"], mask, scale=case["scale_factor"], enable_gqa=grouped)
