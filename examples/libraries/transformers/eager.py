"""The eager attention functions of transformers: Llama's, Gemma 2's with a softcap, and that of GPT-OSS with sinks."""

from types import SimpleNamespace

import torch
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

ARRAYS = "torch"
CAN, AXES = ("keep", "bias", "scale", "groups", "widths", "softcap", "sinks"), "bhld"


def attention(case, arrays):
    """The contexts of all heads."""
    if "sinks" in arrays and case["softcap"]:
        raise NotImplementedError("sinks or a softcap")
    options = {"scaling": case["scale_factor"]} | ({"softcap": case["softcap"]} if case["softcap"] else {})
    model = modeling_gemma2 if case["softcap"] else modeling_gpt_oss if "sinks" in arrays else modeling_llama
    layer = SimpleNamespace(num_key_value_groups=case["heads"] // case["kv_heads"], training=False, sinks=arrays.get("sinks"))
    query, mask = arrays["query"], arrays.get("added")
    if mask is not None:
        mask = mask.clamp(min=torch.finfo(query.dtype).min)  # as its models make their masks
    contexts, _ = model.eager_attention_forward(layer, query, arrays["key"], arrays["value"], mask, **options)
    return contexts.transpose(1, 2)
