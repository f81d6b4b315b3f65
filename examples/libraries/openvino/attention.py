"""OpenVINO's ScaledDotProductAttention, compiled for the CPU: one mask, boolean or added, and a scale."""

import numpy as np
import openvino as ov
import openvino.opset13 as ops

PRECISION = {"INFERENCE_PRECISION_HINT": "f32"}  # or CPUs that know bfloat16 compute in that
CAN, AXES = ("keep", "bias", "scale", "widths"), "bhld"


def attention(case, arrays):
    """The contexts of all heads."""
    given = [arrays[name] for name in ("query", "key", "value")]
    if "keep" in arrays or "bias" in arrays:
        given.append(arrays["added" if "bias" in arrays else "keep"])
    parameters = [ops.parameter(array.shape, array.dtype.type) for array in given]
    mask = parameters[3] if len(parameters) > 3 else np.array(0, given[0].dtype)  # 0 is none
    node = ops.scaled_dot_product_attention(*parameters[:3], mask, np.array(case["scale_factor"], given[0].dtype))
    return ov.compile_model(ov.Model([node], parameters), "CPU", PRECISION)(given)[0]
