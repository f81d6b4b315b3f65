"""BLOOM's ALiBi in transformers: slopes times the index of the key."""

import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

OTHERS = ("bias_table", "t5_table", "mask_add", "mask_key_add")


def attention(case, arrays):
    """The bias."""
    alibi = case["alibi"]
    if not alibi or alibi["slopes"] != "interleaved" or alibi["form"] != "key_index" or any(name in arrays for name in OTHERS):
        raise NotImplementedError("a bias by ALiBi alone of the form key_index, with interleaved slopes")
    *_, heads, _, keys = shape = arrays["bias"].shape
    return {"bias": build_alibi_tensor(torch.ones(1, keys), heads, torch.float32).expand(shape)}
