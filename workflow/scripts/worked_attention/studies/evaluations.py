"""Honest evaluations of plain attention: the same formulas with sums taken in different orders, so that they round differently."""

from collections.abc import Callable

import numpy as np

from worked_attention.stages.precision import rounded, widened
from worked_attention.stages.projections import split_heads
from worked_attention.stages.whole import from_parameters

BLOCK = 16  # terms of a block
Sum = Callable[[np.ndarray], np.ndarray]  # [n, ...] to [...]


def sequential(terms: np.ndarray) -> np.ndarray:
    """((t_1 + t_2) + t_3) + ..., along the first axis."""
    return np.add.accumulate(terms)[-1]


def pairwise(terms: np.ndarray) -> np.ndarray:
    """(t_1 + t_2) + (t_3 + t_4) + ..., and the sums again by two."""
    while len(terms) > 1:
        odd = terms[len(terms) // 2 * 2 :]
        terms = np.concatenate([terms[: len(terms) - len(odd) : 2] + terms[1::2], odd])
    return terms[0]


def blocked(terms: np.ndarray) -> np.ndarray:
    """Each block of 16 terms one after the other, then the sums of the blocks."""
    return sequential(np.stack([sequential(terms[i : i + BLOCK]) for i in range(0, len(terms), BLOCK)]))


SUMS: dict[str, Sum] = {"sequential": sequential, "pairwise": pairwise, "blocked": blocked}


def matmul(a: np.ndarray, b: np.ndarray, case: dict, add: Sum) -> np.ndarray:
    """a [..., n, d] times b [..., d, m] in the case's arithmetic of sums, not yet rounded to its dtype."""
    a, b = (rounded(x, case["precision"]["accumulate"]) for x in (a, b))
    return add(np.moveaxis(a, -1, 0)[..., None] * np.moveaxis(b, -2, 0)[..., None, :])


def evaluate(case: dict, given: dict[str, np.ndarray], add: Sum) -> dict[str, np.ndarray]:
    """The arrays q, k, v, masked, weights, contexts and output of a case that fits the study `rounding`, by name, in its dtype.

    given: its parameters x, w_q, w_k, w_v and w_o. add: how sums are taken.
    """
    dtype, heads = case["dtype"], case["heads"]
    made = {name: rounded(matmul(given["x"], given[f"w_{name}"].T, case, add), dtype) for name in "qkv"}
    q, k, v = (split_heads(made[name], heads) for name in "qkv")
    qk = rounded(matmul(q, np.swapaxes(k, -1, -2), case, add), dtype)
    made["masked"] = rounded(widened(qk) * case["scale_factor"], dtype)
    scores = made["masked"].astype(case["precision"]["softmax"])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    made["weights"] = rounded(e / add(np.moveaxis(e, -1, 0))[..., None], dtype)
    made["contexts"] = rounded(matmul(made["weights"], v, case, add), dtype)
    concat = np.swapaxes(made["contexts"], -2, -3).reshape(*given["x"].shape[:-1], -1)
    made["output"] = rounded(matmul(concat, given["w_o"].T, case, add), dtype)
    return made


def evaluations(case: dict, given: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """By name, the arrays of every evaluation of a case: ours, and one for each order of sums. given: the parameters."""
    return {"ours": from_parameters(case, given)} | {name: evaluate(case, given, add) for name, add in SUMS.items()}
