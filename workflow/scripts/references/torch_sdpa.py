"""torch.sdpa: torch.nn.functional.scaled_dot_product_attention with the math backend."""

import numpy as np
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from references.torch_tools import finish, project, split, tensors


def supports(case: dict) -> str | None:
    """Every case that has queries, keys and values."""
    return "takes q, k and v, not scores" if case["begins_at"] == "scaled" else None


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """contexts, concat and output; the function keeps scores and weights to itself."""
    p = tensors(arrays)
    q, k, v = (split(x, case["heads"]) for x in project(p).values())
    with sdpa_kernel(SDPBackend.MATH):
        contexts = scaled_dot_product_attention(q, k, v, scale=case["scale_factor"])
    return {name: tensor.numpy() for name, tensor in finish(contexts, p).items()}
