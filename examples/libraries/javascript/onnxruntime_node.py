"""ONNX's operator Attention in onnxruntime-node: one mask, boolean or added, a scale, a softcap and grouped heads."""

import base64

from node import Program
from onnx import TensorProto, helper

CAN, AXES = ("keep", "bias", "scale", "groups", "widths", "softcap"), "bhld"
NAMES = ("query", "key", "value", "added")
run = Program("onnxruntime_node.mjs")


def model(given, scale, softcap):
    """The operator alone, for arrays of these shapes."""
    node = helper.make_node("Attention", [*given], ["contexts"], scale=float(scale), softcap=float(softcap or 0))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in given.items()]
    output = helper.make_tensor_value_info("contexts", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "attention", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString()


def attention(case, arrays):
    """The contexts of all heads."""
    if case["scale_factor"] <= 0:
        raise NotImplementedError("a scale above 0")
    given = {name: arrays[name] for name in NAMES if name in arrays}
    operator = model(given, case["scale_factor"], case["softcap"])
    return run(model=base64.b64encode(operator).decode(), **given)
