"""torch.mha: torch.nn.MultiheadAttention with every parameter overwritten, in eval mode, in both batch layouts."""

import numpy as np
import torch

from worked_attention.references import torch_sdpa, torch_tools
from worked_attention.references.can import APPENDED, BIASES, FORM, INPUTS, MASKS, PLACES
from worked_attention.references.torch_tools import DTYPES, inputs, numpy, packed, tensor

CAN = (FORM | INPUTS | PLACES | APPENDED | MASKS | BIASES) - {"scale"}


def supports(case: dict) -> str | None:
    """Cases that begin at x, with one width E = d_model = H*d_k = H*d_v = d_out, and nothing but masks and biases on the scores."""
    dims = case["dims"]
    if case["begins_at"] != "x":
        return "begins at x; this case begins later"
    if "w_q" not in case["shapes"]:
        return "always projects; this case has no w_q, w_k, w_v"
    if not dims["H"] * dims["d_k"] == dims["H"] * dims["d_v"] == dims["d_model"] == dims["d_out"]:
        return "needs H*d_k = H*d_v = d_model = d_out"
    if "w_o" not in case["shapes"] and "keep" in case["shapes"] and case["mask"]["empty_row"] == "nan" and dims["H"] > 1:
        return "always projects its output; the identity in its place spreads the NaN of one head over all"
    return torch_sdpa.supports(case, CAN)  # the same softmax, masks and precision


def convention(case: dict) -> str | None:
    """Which convention it follows where the case names another one."""
    return None if case["mask"]["empty_row"] == "nan" else "empty_row: nan"


def module(case: dict, p: dict[str, torch.Tensor]) -> torch.nn.MultiheadAttention:
    """The layer with the case's parameters; without w_o it gets the identity."""
    dims, x = case["dims"], p["x"]
    width, separate = dims["d_model"], not dims["d_model"] == dims["d_kv"] == dims["d_vv"]
    mha = torch.nn.MultiheadAttention(
        width,
        case["heads"],
        add_bias_kv="bias_k" in p,
        add_zero_attn=case["extra_key"] == "zero",
        kdim=dims["d_kv"] if separate else None,
        vdim=dims["d_vv"] if separate else None,
        dtype=x.dtype,
    ).eval()
    weight, bias = packed(p)
    state = {f"{n}_proj_weight": p[f"w_{n}"] for n in "qkv"} if separate else {"in_proj_weight": torch.cat(weight)}
    state |= {f"bias_{n}": p[f"bias_{n}"].view(1, 1, -1) for n in "kv" if f"bias_{n}" in p}
    state["in_proj_bias"] = torch.cat(bias)
    state["out_proj.weight"] = p.get("w_o", torch.eye(width, dtype=x.dtype))
    state["out_proj.bias"] = p.get("b_o", torch.zeros(width, dtype=x.dtype))
    mha.load_state_dict(state)
    return mha


def mask(case: dict, p: dict[str, torch.Tensor], batch: int) -> torch.Tensor | None:
    """attn_mask [B*H, Lq, Lc]: True = blocked (the inverse of ours), or added with -inf if there is a bias."""
    cached = case["dims"]["Lc"]
    keep, added = torch_tools.keep(case, p), torch_tools.bias(case, p, DTYPES[case["dtype"]])
    if keep is None and added is None:
        return None
    whole = ~keep if added is None else added if keep is None else added.masked_fill(~keep, -torch.inf)
    shape = (batch, case["heads"], case["dims"]["Lq"], cached)
    return whole[..., :cached].expand(shape).flatten(0, 1)


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """weights per head and output, batch first and sequence first."""
    p = {name: tensor(array) for name, array in arrays.items()}
    batched = "B" in case["dims"]
    triple = [x if batched else x[None] for x in inputs(case, p)]
    mha, attn_mask = module(case, p), mask(case, p, len(triple[0]))
    made = {}
    with torch.no_grad():
        for layout in ("", "sequence_first."):
            mha.batch_first = not layout
            given = [x.transpose(0, 1) for x in triple] if layout else triple
            output, weights = mha(*given, attn_mask=attn_mask, need_weights=True, average_attn_weights=False)
            made |= {f"{layout}weights": weights, f"{layout}output": output.transpose(0, 1) if layout else output}
    return {name: numpy(x if batched else x[0]) for name, x in made.items()}
