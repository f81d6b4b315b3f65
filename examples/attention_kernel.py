"""A kernel for queries, keys and values, here torch's own: whatever a case does before is ready, and so are its mask and its bias."""

import torch

ARRAYS = "torch"  # tensors, of bfloat16 in such a case
BEYOND = ("softcap", "dropout")


def attention(case, arrays):
    """The contexts of all heads."""
    plain = case["softmax"] == "plain" and case["mask"]["fill"] == "-inf" and not any(case[option] for option in BEYOND)
    if not plain or not {"query", "value"} <= set(arrays) or "sinks" in arrays:
        raise NotImplementedError("a plain softmax of queries and keys, and an average of values")
    keep, bias = arrays.get("keep"), arrays.get("bias")
    mask = keep if bias is None else bias if keep is None else bias.masked_fill(~keep, -torch.inf)
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(arrays["query"].dtype)
    grouped = case["heads"] != case["kv_heads"]
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(arrays["query"], arrays["key"], arrays["value"], mask, scale=case["scale_factor"], enable_gqa=grouped)
