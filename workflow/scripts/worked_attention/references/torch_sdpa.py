"""torch.sdpa: torch.nn.functional.scaled_dot_product_attention with the math backend."""

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from worked_attention.references import torch_tools
from worked_attention.references.can import ATTENDING, refusal
from worked_attention.references.torch_tools import DTYPES, finish, numpy, tensor
from worked_attention.stages.dtypes import usual_precision

CAN = ATTENDING - {"qk_norm.zero_vector"}  # its softmax makes zeros of a row of NaN, and so hides it


def supports(case: dict, can: frozenset[str] = CAN) -> str | None:
    """Cases of what it `can` do, with the plain softmax and the usual precision."""
    if reason := refusal(case, can):
        return reason
    if case["softmax"] != "plain":
        return "has the plain softmax only"
    if case["precision"] | {"scores": case["dtype"]} != usual_precision(case["dtype"]):
        return "chooses the precision of sums and softmax itself"  # what it does with scores shows only where they overflow
    if case["spelled"]:
        return "adds its masks, so that NaN or infinity behind a mask comes through"
    return None


def convention(case: dict) -> str | None:
    """Which convention it follows where the case names another one."""
    return None if case["mask"]["empty_row"] == "zero" else "empty_row: zero"


def attend(case: dict, p: dict[str, torch.Tensor], backend: SDPBackend) -> torch.Tensor:
    """contexts [..., H, Lq, d_v] by one call; the mask is one combined tensor, never a hint beside it."""
    made = torch_tools.heads(case, p)
    keep, added = torch_tools.keep(case, p), torch_tools.bias(case, p, DTYPES[case["dtype"]])
    mask = keep if added is None else added if keep is None else added.masked_fill(~keep, -torch.inf)
    if mask is not None and mask.dim() == 3:
        mask = mask[None]  # [H, Lq, Lk], which the flash backend takes with a batch only
    grouped = case["heads"] != case["kv_heads"]
    q, k, v = (made[name] if "B" in case["dims"] else made[name][None] for name in "QKV")
    with sdpa_kernel(backend):
        contexts = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=case["scale_factor"], enable_gqa=grouped)
    return contexts if "B" in case["dims"] else contexts[0]


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """contexts, concat and output; the function keeps scores and weights to itself."""
    p = {name: tensor(array) for name, array in arrays.items()}
    return {name: numpy(x) for name, x in finish(attend(case, p, SDPBackend.MATH), p).items()}
