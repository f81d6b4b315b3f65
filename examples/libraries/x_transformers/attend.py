"""Attend of x-transformers: one boolean mask, a bias that is added, a softclamp and sinks."""

import torch
from x_transformers.attend import Attend

ARRAYS = "torch"
CAN, AXES = ("keep", "bias", "scale", "groups", "widths", "softcap", "sinks"), "bhld"


def attention(case, arrays):
    """The contexts of all heads."""
    cap, sinks = case["softcap"], "sinks" in arrays
    attend = Attend(heads=case["heads"], scale=case["scale_factor"], softclamp_logits=bool(cap), head_learned_sink=sinks)
    attend.logit_softclamp_value = cap
    if sinks:
        attend.head_attn_sink = torch.nn.Parameter(arrays["sinks"])
    repeats = case["heads"] // case["kv_heads"]  # how Attend repeats heads of keys itself, grouped.py asks
    key, value = (arrays[name].repeat_interleave(repeats, dim=1) for name in ("key", "value"))
    contexts, _ = attend(arrays["query"], key, value, mask=arrays.get("keep"), attn_bias=arrays.get("bias"))
    return contexts
