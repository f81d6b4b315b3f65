"""haiku.MultiHeadAttention, from x to the output, with the weights of the case."""

import haiku as hk
import jax

jax.config.update("jax_enable_x64", True)  # or all is float32
CAN = ("layer", "keep", "widths")
LAYERS = {"query": "q", "key": "k", "value": "v", "linear": "o"}


def attention(case, arrays):
    """The output."""
    sizes, biased = case["dims"], any(f"b_{name}" in arrays for name in "qkvo")

    def run(*given):
        options = {"value_size": sizes["d_v"], "model_size": sizes["d_out"], "with_bias": biased}
        return hk.MultiHeadAttention(sizes["H"], sizes["d_k"], w_init_scale=1.0, name="mha", **options)(*given)

    weights = {f"mha/{name}": {"w": arrays[f"w_{short}"].T} for name, short in LAYERS.items()}  # stored [in, out]
    if biased:
        for name, short in LAYERS.items():
            weights[f"mha/{name}"]["b"] = arrays.get(f"b_{short}", 0 * arrays[f"w_{short}"][:, 0])
    x_kv = arrays.get("x_kv", arrays["x"])
    return hk.transform(run).apply(weights, None, arrays["x"], x_kv, x_kv, arrays.get("keep"))
