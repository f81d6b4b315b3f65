"""equinox.nn.MultiheadAttention, from x to the output, with the weights of the case."""

import equinox as eqx
import jax

jax.config.update("jax_enable_x64", True)  # or all is float32
CAN, AXES = ("layer", "keep", "widths"), "bhld"
LAYERS = {"q": "query_proj", "k": "key_proj", "v": "value_proj", "o": "output_proj"}


def attention(case, arrays):
    """The output."""
    sizes, x_kv = case["dims"], arrays.get("x_kv", arrays["x"])
    d_model, d_kv = arrays["x"].shape[-1], x_kv.shape[-1]
    options = {"qk_size": sizes["d_k"], "vo_size": sizes["d_v"], "use_query_bias": "b_q" in arrays, "use_key_bias": "b_k" in arrays}
    options |= {"use_value_bias": "b_v" in arrays, "use_output_bias": "b_o" in arrays}
    layer = eqx.nn.MultiheadAttention(sizes["H"], d_model, d_kv, d_kv, sizes["d_out"], key=jax.random.key(0), **options)
    for short, name in LAYERS.items():
        layer = eqx.tree_at(lambda it, name=name: getattr(it, name).weight, layer, arrays[f"w_{short}"])
        if f"b_{short}" in arrays:
            layer = eqx.tree_at(lambda it, name=name: getattr(it, name).bias, layer, arrays[f"b_{short}"])
    if "keep" in arrays:
        return jax.vmap(layer)(arrays["x"], x_kv, x_kv, arrays["keep"])
    return jax.vmap(layer)(arrays["x"], x_kv, x_kv)
