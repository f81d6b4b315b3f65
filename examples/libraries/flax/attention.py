"""flax.linen.dot_product_attention: a boolean mask, and a bias that is added."""

import flax.linen as nn
import jax

jax.config.update("jax_enable_x64", True)  # or all is float32
CAN, AXES = ("keep", "bias", "widths"), "blhd"


def attention(case, arrays):
    """The contexts of all heads."""
    bias, mask = arrays.get("bias"), arrays.get("keep")
    return nn.dot_product_attention(arrays["query"], arrays["key"], arrays["value"], bias, mask)
