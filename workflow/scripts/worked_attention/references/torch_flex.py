"""torch.flex: torch.nn.attention.flex_attention, run eagerly; softcap, biases and masks are its score_mod."""

import numpy as np
import torch
from torch.nn.attention import flex_attention

from worked_attention.references import torch_sdpa, torch_tools
from worked_attention.references.can import ATTENDING, SOFTCAP
from worked_attention.references.torch_tools import finish, numpy, tensor

CAN = ATTENDING | SOFTCAP
flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # run score_mod as it is, as torch's own warning advises for eager runs


def supports(case: dict) -> str | None:
    """What fused attention supports, and softcap."""
    return torch_sdpa.supports(case, CAN)


def convention(case: dict) -> str | None:
    """Which convention it follows where the case names another one."""
    return None if case["mask"]["empty_row"] == "zero" else "empty_row: zero"


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """contexts, concat and output."""
    p = {name: tensor(array) for name, array in arrays.items()}
    made = torch_tools.heads(case, p)
    q, k, v = (made[name] if "B" in case["dims"] else made[name][None] for name in "QKV")
    shape = (len(q), case["heads"], q.shape[-2], k.shape[-2])
    keep, added, cap = torch_tools.keep(case, p), torch_tools.bias(case, p, q.dtype), case["softcap"]
    keep = None if keep is None else keep.expand(shape)
    added = None if added is None else added.expand(shape)

    def score_mod(score, b, h, i, j):
        if cap:
            score = torch.tanh(score / cap) * cap
        if added is not None:
            score = score + added[b, h, i, j]
        return score if keep is None else torch.where(keep[b, h, i, j], score, -torch.inf)

    grouped = case["heads"] != case["kv_heads"]
    contexts = flex_attention.flex_attention(q, k, v, score_mod, scale=case["scale_factor"], enable_gqa=grouped)
    return {name: numpy(x) for name, x in finish(contexts if "B" in case["dims"] else contexts[0], p).items()}
