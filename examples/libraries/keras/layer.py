"""keras.layers.MultiHeadAttention, from x to the output, with the weights of the case."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax  # noqa: E402
import keras  # noqa: E402

jax.config.update("jax_enable_x64", True)  # or all is float32
CAN, AXES = ("layer", "keep"), "bhld"  # with values of another width it raises TypeError, unless it is asked for its weights


def built(case, arrays):
    """The layer with the weights of the case: kernels [in, heads, width], the last one [heads, width, out], each with its bias."""
    sizes, x = case["dims"], arrays["x"]
    options = {"value_dim": sizes["d_v"], "output_shape": sizes["d_out"], "dtype": x.dtype.name}
    layer = keras.layers.MultiHeadAttention(sizes["H"], sizes["d_k"], **options)
    layer.build(x.shape, arrays.get("x_kv", x).shape)
    weights = []
    for name in "qkvo":
        kernel = arrays[f"w_{name}"].T
        weights += [kernel, arrays.get(f"b_{name}", 0 * kernel[0])]
    layer.set_weights([weight.reshape(own.shape) for weight, own in zip(weights, layer.weights, strict=True)])
    return layer


def attention(case, arrays):
    """The output."""
    return built(case, arrays)(arrays["x"], arrays.get("x_kv", arrays["x"]), attention_mask=arrays.get("keep"))
