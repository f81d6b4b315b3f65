"""torch.manual: linear, matmul and softmax of torch, one after the other, from the packed parameters."""

import numpy as np
import torch

from references.torch_tools import finish, project, split, tensors


def supports(case: dict) -> str | None:
    """Every case."""
    return None


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every array of the case."""
    p = tensors(arrays)
    made = project(p)
    made |= {f"{name}_heads": split(x, case["heads"]) for name, x in made.items()}
    if "scaled" in p:
        made["scaled"] = p["scaled"]
    else:
        made["qk"] = made["q_heads"] @ made["k_heads"].mT
        made["scaled"] = made["qk"] * case["scale_factor"]
    made["masked"] = made["scaled"]
    made["weights"] = torch.softmax(made["masked"], dim=-1)
    if "v_heads" in made:
        made |= finish(made["weights"] @ made["v_heads"], p)
    return {name: tensor.numpy() for name, tensor in made.items()}
