"""AlibiPositionalBias of x-transformers, where nothing else is added to the scores."""

from x_transformers.x_transformers import AlibiPositionalBias

OTHERS = ("bias_table", "t5_table", "mask_add", "mask_key_add")


def attention(case, arrays):
    """The bias."""
    alibi = case["alibi"]
    if not alibi or alibi["slopes"] != "interleaved" or alibi["form"] != "distance" or any(name in arrays for name in OTHERS):
        raise NotImplementedError("a bias by ALiBi alone of the form distance, with interleaved slopes")
    return {"bias": AlibiPositionalBias(case["heads"])(*arrays["bias"].shape[-2:]).expand(arrays["bias"].shape)}
