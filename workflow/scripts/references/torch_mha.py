"""torch.mha: torch.nn.MultiheadAttention with every packed parameter overwritten, in eval mode, in both batch layouts."""

import numpy as np
import torch

from references.torch_tools import packed, tensors


def supports(case: dict) -> str | None:
    """Cases that begin at x with one square width for queries, keys, values and output, and the default scale."""
    dims = case["dims"]
    if case["begins_at"] != "x":
        return "begins at x; this case begins later"
    if "w_q" not in case["shapes"]:
        return "always projects; this case has no w_q, w_k, w_v"
    if not dims["H"] * dims["d_k"] == dims["H"] * dims["d_v"] == dims["d_model"] == dims["d_out"]:
        return "needs H*d_k = H*d_v = d_model = d_out"
    if case["scale"] != "1/sqrt(d_k)":
        return "always scales by 1/sqrt(d_k)"
    return None


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """weights per head and output, batch first and sequence first; without w_o the module gets the identity."""
    p = tensors(arrays)
    width, x = case["dims"]["d_model"], p["x"]
    batch = x if x.dim() == 3 else x[None]
    mha = torch.nn.MultiheadAttention(width, case["heads"], batch_first=True, dtype=x.dtype).eval()
    weight, bias = packed(p)
    identity = torch.eye(width, dtype=x.dtype)
    zeros = torch.zeros(width, dtype=x.dtype)
    mha.load_state_dict(
        {
            "in_proj_weight": weight,
            "in_proj_bias": bias,
            "out_proj.weight": p.get("w_o", identity),
            "out_proj.bias": p.get("b_o", zeros),
        }
    )
    made = {}
    with torch.no_grad():
        for layout in ("", "sequence_first."):
            mha.batch_first = not layout
            inputs = batch.transpose(0, 1) if layout else batch
            output, weights = mha(inputs, inputs, inputs, need_weights=True, average_attn_weights=False)
            output = output.transpose(0, 1) if layout else output
            made |= {f"{layout}weights": weights, f"{layout}output": output}
    return {name: (tensor if x.dim() == 3 else tensor[0]).numpy() for name, tensor in made.items()}
