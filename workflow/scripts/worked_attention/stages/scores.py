"""Stage scores: how much each query asks of each key, before the softmax.

In this order: Q K^T, times the scale (Vaswani et al. 2017, equation 1), softcap, plus biases, mask.
"""

import numpy as np

from worked_attention.stages.masks import append_keys, combined, fill_value
from worked_attention.stages.positions import alibi, alibi_slopes, relative_buckets, t5_bias
from worked_attention.stages.precision import matmul, overflowing, rounded, widened
from worked_attention.stages.projections import latest


def repeat_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[..., H_kv, L, d] to [..., H, L, d]: each key or value head serves a block of H/H_kv query heads (Ainslie et al. 2023)."""
    return np.repeat(x, heads // x.shape[-3], axis=-3)


def products(q: np.ndarray, k: np.ndarray, accumulate: str = "float64") -> np.ndarray:
    """Q K^T [..., H, Lq, Lk], unscaled, from q [..., H, Lq, d_k] and k [..., H_kv, Lk, d_k], summed in `accumulate`, not yet rounded."""
    return matmul(q, np.swapaxes(repeat_heads(k, q.shape[-3]), -1, -2), accumulate)


def softcap(scores: np.ndarray, cap: float) -> np.ndarray:
    """cap * tanh(scores / cap): scores kept within (-cap, cap) (Gemma 2, 2024, section 2)."""
    x = widened(scores)
    return rounded(cap * np.tanh(x / cap), scores.dtype)


def bias(case: dict, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """All additive terms together, broadcastable to [..., H, Lq, Lk]: bias table, ALiBi, T5, float masks; None if there are none."""
    query_positions, key_positions = np.array(case["query_positions"]), np.array(case["context_positions"])
    terms = [arrays[name] for name in ("bias_table", "mask_add") if name in arrays]
    if "mask_key_add" in arrays:
        terms.append(arrays["mask_key_add"][..., None, None, :])
    if case["alibi"]:
        terms.append(alibi(query_positions, key_positions, case["heads"], case["alibi"]["slopes"], case["alibi"]["form"]))
    if "t5_table" in arrays:
        terms.append(t5_bias(arrays["t5_table"], query_positions, key_positions, case["t5"]))
    if not terms:
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # -1e308 twice is -inf, and inf - inf NaN
        total = rounded(sum(map(widened, terms[1:]), widened(terms[0])), case["precision"]["scores"])
    return append_keys(total, case["dims"]["Lk"] - case["dims"]["Lc"], 0.0)


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`qk`, `scaled`, `capped`, `slopes`, `buckets`, `bias`, `keep` and `masked`, as far as the case has them, in `precision.scores`.

    A score beyond what that dtype can hold is infinite.
    """

    def kept(x: np.ndarray) -> np.ndarray:
        return overflowing(rounded(x, case["precision"]["scores"]), case["overflow"]["certain"])

    made = {}
    if "scaled" in arrays:
        made["scaled"] = rounded(arrays["scaled"], case["precision"]["scores"])
    else:
        made["qk"] = kept(products(latest(arrays, "q"), latest(arrays, "k"), case["precision"]["accumulate"]))
        made["scaled"] = kept(widened(made["qk"]) * case["scale_factor"])
    scores = made["scaled"]
    if case["softcap"]:
        scores = made["capped"] = softcap(scores, case["softcap"])
    if case["alibi"]:
        made["slopes"] = rounded(alibi_slopes(case["heads"], case["alibi"]["slopes"]), case["precision"]["scores"])
    if "t5_table" in arrays:
        found = relative_buckets(case["query_positions"], case["context_positions"], len(arrays["t5_table"]), case["t5"])
        made["buckets"] = rounded(found.astype(np.float64), case["precision"]["scores"])
    if (added := bias(case, arrays)) is not None:
        made["bias"] = np.broadcast_to(added, scores.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # as the sum of biases
            scores = kept(scores + made["bias"])
    if (keep := combined(case, arrays)) is not None:
        made["keep"] = np.broadcast_to(keep, scores.shape)
        fill = rounded(np.asarray(fill_value(case["mask"]["fill"], scores.dtype)), scores.dtype)  # -1e9 is -inf in float16
        scores = np.where(made["keep"], scores, fill)
    return {**made, "masked": scores}
