"""keras.layers.MultiHeadAttention, asked for its weights too: it computes in another way then."""

from layer import AXES, built  # noqa: F401

CAN = ("layer", "keep", "widths")


def attention(case, arrays):
    """The output and the weights."""
    options = {"attention_mask": arrays.get("keep"), "return_attention_scores": True}
    output, weights = built(case, arrays)(arrays["x"], arrays.get("x_kv", arrays["x"]), **options)
    return {"output": output, "weights": weights}
