"""What the torch references share: parameters as tensors, projections by torch.nn.functional.linear, heads split by torch."""

import numpy as np
import torch
from torch.nn.functional import linear


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Every array as a tensor of the same dtype."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def packed(p: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """w_q, w_k, w_v and their biases stacked as torch's in_proj_weight [3E, E] and in_proj_bias [3E]; a missing bias is zeros."""
    bias = [p[f"b_{n}"] if f"b_{n}" in p else p[f"w_{n}"].new_zeros(len(p[f"w_{n}"])) for n in "qkv"]
    return torch.cat([p["w_q"], p["w_k"], p["w_v"]]), torch.cat(bias)


def project(p: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """q, k and v: as given, or x through the packed weights, or x itself."""
    if "x" not in p:
        return {name: p[name] for name in "qkv" if name in p}
    if "w_q" not in p:
        return dict.fromkeys("qkv", p["x"])
    weight, bias = packed(p)
    sizes = [len(p[f"w_{n}"]) for n in "qkv"]
    return dict(zip("qkv", linear(p["x"], weight, bias).split(sizes, dim=-1), strict=True))


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[..., L, H*d] to [..., H, L, d]."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def finish(contexts: torch.Tensor, p: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """concat and output from the contexts [..., H, Lq, d_v]."""
    concat = contexts.transpose(-2, -3).flatten(-2)
    return {"contexts": contexts, "concat": concat, "output": linear(concat, p["w_o"], p.get("b_o")) if "w_o" in p else concat}
