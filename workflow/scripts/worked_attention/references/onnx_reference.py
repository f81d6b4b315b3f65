"""onnx.reference: the operator Attention as ONNX's own reference evaluator computes it, in every qk_matmul_output_mode.

With a softcap its mode 0 shows the scores after the softcap, where the operator's text says before; so that mode is left out.
"""

import numpy as np
from onnx.reference import ReferenceEvaluator

from worked_attention.references import onnx_operator


def supports(case: dict) -> str | None:
    """What the operator supports; its scale, the root of it and its softcap are float32, which a float64 case must not notice."""
    if reason := onnx_operator.supports(case):
        return reason
    if case["qk_norm"] and case["qk_norm"]["zero_vector"] == "nan" and "keep" in case["shapes"]:
        return "adds the mask, and so keeps a NaN that is blocked"
    scale, cap = case["scale_factor"], case["softcap"] or 0.0
    if case["dtype"] == "float64" and case["scale"] != "1/sqrt(d_k)" and float(np.sqrt(np.float32(scale))) ** 2 != scale:
        return "takes the root of the scale in float32"
    if case["dtype"] == "float64" and float(np.float32(cap)) != cap:
        return "takes the softcap as float32"
    return None


def convention(case: dict) -> str | None:
    """Which convention it follows where the case names another one."""
    return None if case["mask"]["empty_row"] == "zero" else "empty_row: zero"


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rotated and cached arrays, scaled (without softcap), capped, masked, weights and contexts."""
    modes = ["capped" if case["softcap"] else "scaled", "masked", "weights"]
    return onnx_operator.run(case, arrays, lambda model, feeds: ReferenceEvaluator(model).run(None, feeds), 25, modes)
