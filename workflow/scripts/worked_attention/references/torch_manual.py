"""torch.manual: linear, matmul and softmax of torch, one after the other, and autograd for the gradients."""

import numpy as np
import torch

from worked_attention.references import torch_tools
from worked_attention.references.can import EVERYTHING, refusal
from worked_attention.references.torch_tools import DTYPES, finish, numpy, tensor

CAN = EVERYTHING


def supports(case: dict) -> str | None:
    """Every case but those whose sums are to be rounded term by term, or made in less than the case's dtype."""
    if reason := refusal(case, CAN):
        return reason
    if case["softmax"] not in SOFTMAX:
        return f"has no softmax {case['softmax']}"
    if case["dtype"] == "float64" and case["precision"]["accumulate"] != "float64":
        return "sums float64 in float64"
    return None if case["precision"]["accumulate"] in ("float64", "float32") else "sums in float32 or float64"


def convention(case: dict) -> str | None:
    """It follows the conventions of every case."""
    return None


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every array of the case."""
    p = {name: tensor(array) for name, array in arrays.items()}
    if case["backward"]:
        p = {name: x.requires_grad_() if x.is_floating_point() and name != "upstream" else x for name, x in p.items()}
    made = torch_tools.heads(case, p)
    wide, scores_in = DTYPES[case["precision"]["accumulate"]], DTYPES[case["precision"]["scores"]]

    def kept(x: torch.Tensor) -> torch.Tensor:
        x = x.to(scores_in)
        return torch.where(x.abs() > case["overflow"]["certain"], torch.copysign(torch.full_like(x, torch.inf), x), x)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.to(wide) @ b.to(wide)

    if "scaled" in p:
        made["scaled"] = p["scaled"].to(scores_in)
    else:
        groups = case["heads"] // case["kv_heads"]
        made["qk"] = kept(product(made["Q"], made["K"].repeat_interleave(groups, dim=-3).mT))
        made["scaled"] = kept(made["qk"] * case["scale_factor"])
    scores = made["scaled"]
    if case["softcap"]:
        scores = made["capped"] = torch.tanh(scores / case["softcap"]) * case["softcap"]
    made |= torch_tools.tables(case) | torch_tools.distances(case, p, scores_in)
    if (added := torch_tools.bias(case, p, scores_in)) is not None:
        made["bias"] = added.expand_as(scores)
        scores = kept(scores + made["bias"])
    keep = torch_tools.keep(case, p)
    if keep is not None:
        made["keep"] = keep.expand_as(scores)
        fill = case["mask"]["fill"]
        fill = {"-inf": -torch.inf, "finfo_min": torch.finfo(scores.dtype).min}[fill] if isinstance(fill, str) else fill
        fill = torch.tensor(fill, dtype=torch.float64).to(scores.dtype)
        scores = torch.where(keep, scores, fill)
    made["masked"] = scores
    made["weights"] = weights(case, made, p)
    used = made["weights"]
    if "dropout_keep" in p:
        used = made["dropped"] = made["weights"] * p["dropout_keep"] / (1 - case["dropout"])
    if "V" in made:
        values = made["V"].repeat_interleave(case["heads"] // case["kv_heads"], dim=-3)
        made |= finish(product(used, values).to(DTYPES[case["dtype"]]), p)
    if case["backward"]:
        made |= gradients(case, p, made)
    return {name: numpy(x) for name, x in made.items() if len(name) > 1 or name in "qkv"}


def normalised(case: dict, scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """torch's softmax over the keys and, if there is one, a column for the sink, which is cut off afterwards."""
    column = [] if sinks is None else [sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)]
    return torch.softmax(torch.cat([scores, *column], dim=-1), dim=-1)[..., : scores.shape[-1]]


SOFTMAX = {
    "plain": lambda case, scores, sinks, shut: normalised(case, scores, sinks),
    "plus_one": lambda case, scores, sinks, shut: normalised(case, scores, scores.new_zeros(case["heads"])),
    "hardmax": lambda case, scores, sinks, shut: torch.nn.functional.one_hot(scores.argmax(dim=-1), scores.shape[-1]).to(scores.dtype),
    "none": lambda case, scores, sinks, shut: scores.masked_fill(shut, 0),
}


EMPTY_ROW = {"zero": lambda keys: 0.0, "nan": lambda keys: torch.nan, "uniform": lambda keys: 1 / keys, "error": lambda keys: torch.nan}


def weights(case: dict, made: dict[str, torch.Tensor], p: dict[str, torch.Tensor]) -> torch.Tensor:
    """Weights from `masked` scores; a row whose keys are all shut out, and that no sink takes, is as `mask.empty_row` says."""
    scores, sinks = made["masked"].to(DTYPES[case["precision"]["softmax"]]), p.get("sinks")
    shut = scores == -torch.inf
    if "qk" in made:  # a score that overflows is not shut out
        open_ = made.get("keep", torch.ones_like(shut)) & (made.get("bias", torch.zeros_like(scores)) > -torch.inf)
        shut = shut & ~open_
    empty = shut.all(dim=-1, keepdim=True)
    if case["softmax"] in ("plus_one", "none"):
        empty = torch.zeros_like(empty)
    elif sinks is not None:
        empty = empty & (sinks == -torch.inf)[:, None, None]
    found = SOFTMAX[case["softmax"]](case, scores.masked_fill(empty, 0), sinks, shut)
    return torch.where(empty, EMPTY_ROW[case["mask"]["empty_row"]](scores.shape[-1]), found).to(DTYPES[case["dtype"]])


def gradients(case: dict, p: dict[str, torch.Tensor], made: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """autograd's gradient for every array that the case has one for, in the dtype of the case."""
    upstream = p.get("upstream", torch.ones_like(made["output"]))
    names = [name[2:] for name in case["arrays"]["backward"]]
    sources = {name: made.get(name, p.get(name)) for name in names}
    found = torch.autograd.grad(made["output"], list(sources.values()), upstream, allow_unused=True)
    return {f"d_{name}": g.to(DTYPES[case["dtype"]]) for name, g in zip(sources, found, strict=True) if g is not None}
