"""torch.flash: torch.nn.functional.scaled_dot_product_attention with the flash backend."""

import numpy as np
from torch.nn.attention import SDPBackend

from worked_attention.references import torch_sdpa
from worked_attention.references.torch_sdpa import convention  # noqa: F401  the same
from worked_attention.references.torch_tools import finish, numpy, tensor


def supports(case: dict) -> str | None:
    """What the math backend supports, with values as wide as keys."""
    if reason := torch_sdpa.supports(case):
        return reason
    return None if case["dims"]["d_v"] == case["dims"]["d_k"] else "needs d_v = d_k"


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """contexts, concat and output; the function keeps scores and weights to itself."""
    p = {name: tensor(array) for name, array in arrays.items()}
    contexts = torch_sdpa.attend(case, p, SDPBackend.FLASH_ATTENTION)
    return {name: numpy(x) for name, x in finish(contexts, p).items()}
