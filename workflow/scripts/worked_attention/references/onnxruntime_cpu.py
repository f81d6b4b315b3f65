"""onnxruntime.cpu: the operator Attention as ONNX Runtime's own kernel computes it on the CPU, in every qk_matmul_output_mode.

Opset 24, for which there is a kernel; later ones are unfolded into other operators. A float64 case is computed in float32. Where
the kernel masks by itself (causal), its mode 2 shows the most negative finite number in place of -inf; so that is left out.
"""

import numpy as np
import onnxruntime

from worked_attention.references import fused, onnx_operator
from worked_attention.references.can import refusal
from worked_attention.references.onnx_reference import convention  # noqa: F401  the same

CAN = fused.CAN - {"qk_norm.zero_vector"}
OPSET = 24
QUIET = 4  # fatal errors only


def supports(case: dict) -> str | None:
    """What the operator supports, but bfloat16, and rows of NaN, which its kernel changes."""
    if reason := refusal(case, CAN):
        return reason
    return "has no bfloat16 kernel" if case["dtype"] == "bfloat16" else onnx_operator.supports(case)


def evaluate(model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of an ONNX model, on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = QUIET, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rotated and cached arrays, scaled, capped, masked (but where it masks by itself), weights and contexts."""
    arrays = fused.narrowed(case, arrays)
    modes = ["scaled", *(["capped"] if case["softcap"] else []), *([] if onnx_operator.native(case, OPSET) else ["masked"]), "weights"]
    return onnx_operator.run(case, arrays, evaluate, OPSET, modes)
