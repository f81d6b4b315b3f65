"""T5's buckets of distances in transformers, and the bias that the table of the case has for them."""

import numpy as np
import torch
from transformers.models.t5.modeling_t5 import T5Attention

OTHERS = ("bias_table", "mask_add", "mask_key_add")


def attention(case, arrays):
    """The bias."""
    if "t5_table" not in arrays or case["alibi"] or any(name in arrays for name in OTHERS):
        raise NotImplementedError("a bias by T5's buckets alone")
    distances = torch.tensor(np.subtract.outer(case["context_positions"], case["query_positions"]).T)
    table, both = arrays["t5_table"], case["t5"]["direction"] == "both"
    buckets = T5Attention._relative_position_bucket(distances, both, len(table), case["t5"]["longest"])
    return {"bias": np.broadcast_to(np.moveaxis(table[buckets.numpy()], -1, 0), arrays["bias"].shape)}
