"""MPT's ALiBi in transformers: slopes times the distance from the last key."""

from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

OTHERS = ("bias_table", "t5_table", "mask_add", "mask_key_add")


def attention(case, arrays):
    """The bias."""
    alibi = case["alibi"]
    if not alibi or alibi["slopes"] != "interleaved" or any(name in arrays for name in OTHERS):
        raise NotImplementedError("a bias by ALiBi alone, with interleaved slopes")
    *_, heads, _, keys = shape = arrays["bias"].shape
    return {"bias": build_mpt_alibi_tensor(heads, keys).expand(shape)}
