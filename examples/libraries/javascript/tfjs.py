"""Attention as one writes it with TensorFlow.js, in tfjs.mjs: it has no operator for it."""

from node import Program

CAN, AXES = ("keep", "bias", "scale", "widths"), "bhld"
attend = Program("tfjs.mjs")


def attention(case, arrays):
    """The contexts of all heads."""
    names = ("query", "key", "value", "added")
    return attend(scale=case["scale_factor"], **{name: arrays[name] for name in names if name in arrays})
