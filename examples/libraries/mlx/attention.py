"""mlx.core.fast.scaled_dot_product_attention: one mask, boolean or added, and sinks."""

import mlx.core as mx

CAN, AXES = ("keep", "bias", "scale", "groups", "widths", "sinks"), "bhld"


def attention(case, arrays):
    """The contexts of all heads."""
    query, key, value = (mx.array(arrays[name]) for name in ("query", "key", "value"))
    mask = arrays.get("added" if "bias" in arrays else "keep")
    options = {"mask": None if mask is None else mx.array(mask), "sinks": mx.array(arrays["sinks"]) if "sinks" in arrays else None}
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=case["scale_factor"], **options)
