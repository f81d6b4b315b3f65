"""The exact decimals behind the arrays of a float64 case, as far as sums, products and finite quotients of its inputs make them.

0.63 × (−0.47) + (−0.32) × (−0.05) is −0.2801 and nothing else, whatever binary floats make of it. Where a square root, an exponential
or a sine comes in, there is no such decimal, and the number is UNKNOWN here. Arrays of other dtypes are what is stored.
"""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np

from worked_attention.pages.numbers import EXACT, UNKNOWN, decimals, quotient, unknown
from worked_attention.stages.catalogue import source
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.positions import alibi, t5_buckets
from worked_attention.stages.projections import extend, latest, split_heads
from worked_attention.stages.scores import repeat_heads

Own = dict[str, np.ndarray]
AGREE = 1e-12  # how near, against the array's largest, an exact decimal must be to what is stored to stand for it
DECIMAL = np.frompyfunc(Decimal, 1, 1)


def own_decimals(case: dict, arrays: dict[str, np.ndarray]) -> Own:
    """The exact decimal of every number of every array that is not boolean, UNKNOWN where there is none; object arrays by name.

    case: resolved. arrays: all arrays of the case, any shapes, in its dtype.
    """
    numeric = {name: array for name, array in arrays.items() if array.dtype != bool}
    if case["dtype"] != "float64":
        return {name: decimals(array) for name, array in numeric.items()}
    own: Own = {name: decimals(numeric[name]) for name in case["arrays"]["parameters"] if name in numeric}
    with localcontext(EXACT):
        for stage, names in case["arrays"].items():
            for name in [name for name in names if stage != "parameters" and name in numeric and name not in own]:
                made = DECIMAL(RULES[name](case, arrays, own)) if name in RULES else unknown(numeric[name].shape)
                own[name] = _agreeing(made, numeric[name])
    return own


def _agreeing(made: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """`made` where it is what is stored but for rounding, else UNKNOWN."""
    near = AGREE * np.abs(stored[np.isfinite(stored)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(made.astype(np.float64) - stored) <= near, made, UNKNOWN)


def _projected(name: str) -> Callable:
    def rule(case: dict, arrays: dict, own: Own) -> np.ndarray:
        x = own["concat" if name == "o" else source(name, own)]
        y = x @ own[f"w_{name}"].T if f"w_{name}" in own else x
        return y + own[f"b_{name}"] if f"b_{name}" in own else y

    return rule


def _extended(name: str) -> Callable:
    def rule(case: dict, arrays: dict, own: Own) -> np.ndarray:
        before = latest({key: array for key, array in own.items() if key != f"{name}_extended"}, name)
        return extend(before, own.get(f"bias_{name}"), case["extra_key"] == "zero", case["kv_heads"])

    return rule


def _scaled(case: dict, arrays: dict, own: Own) -> np.ndarray:
    return own["qk"] * scale(case)


def scale(case: dict) -> Decimal:
    """What multiplies q·k, UNKNOWN if it is no finite decimal."""
    if not isinstance(case["scale"], str):
        return Decimal(repr(case["scale_factor"]))
    if case["scale"] == "none":
        return Decimal(1)
    width = case["dims"]["d_k"] if "d_k" in case["scale"] else root_of(case)
    if case["scale"] == "1/d_k":
        return quotient(Decimal(1), Decimal(width))
    root = math.isqrt(width)
    return quotient(Decimal(1), Decimal(root)) if root * root == width else UNKNOWN


def root_of(case: dict) -> int:
    """The width under the root of the scales 1/sqrt(d_k) and 1/sqrt(d_model)."""
    dims = case["dims"]
    return dims["d_k"] if case["scale"] == "1/sqrt(d_k)" else dims.get("d_model", dims["H"] * dims.get("d_k", 1))


def bias_terms(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each additive term of the scores by its name, broadcastable to [..., H, Lq, Lc], as `stages.scores.bias` adds them up."""
    queries, keys = np.array(case["query_positions"]), np.array(case["context_positions"])
    terms = {name: arrays[name] for name in ("bias_table", "mask_add") if name in arrays}
    if "mask_key_add" in arrays:
        terms["mask_key_add"] = arrays["mask_key_add"][..., None, None, :]
    if case["alibi"]:
        terms["alibi"] = alibi(queries, keys, case["heads"], case["alibi"]["slopes"], case["alibi"]["form"])
    if "t5_table" in arrays:
        buckets = t5_buckets(keys[None, :] - queries[:, None], len(arrays["t5_table"]), case["t5"]["longest"], case["t5"]["direction"])
        terms["t5_table"] = np.moveaxis(arrays["t5_table"][buckets], -1, 0)
    return terms


def _bias(case: dict, arrays: dict, own: Own) -> np.ndarray:
    terms = [decimals(np.asarray(term)) for term in bias_terms(case, arrays).values()]
    more = case["dims"]["Lk"] - case["dims"]["Lc"]
    total = sum(terms[1:], terms[0])
    total = np.concatenate([total, np.full((*total.shape[:-1], more), Decimal(0), object)], axis=-1)
    return np.broadcast_to(total, arrays["bias"].shape)


def _masked(case: dict, arrays: dict, own: Own) -> np.ndarray:
    scores = own.get("capped", own["scaled"])
    scores = scores + own["bias"] if "bias" in own else scores
    return np.where(arrays["keep"], scores, decimals(arrays["masked"])) if "keep" in arrays else scores


def _weights(case: dict, arrays: dict, own: Own) -> np.ndarray:
    """0 where a key is masked, 1/n where the n others have one and the same score; a hardmax is what it is, and so is a bare score."""
    if case["softmax"] == "hardmax":
        return decimals(arrays["weights"])
    if case["softmax"] == "none":
        return np.where(arrays["masked"] == -np.inf, Decimal(0), own["masked"])
    masked, alone = arrays["masked"], case["softmax"] == "plain" and "sinks" not in arrays
    made = unknown(masked.shape)
    for row in np.ndindex(masked.shape[:-1]):
        seen = np.flatnonzero(masked[row] != -np.inf)
        if len(seen) == 0:
            continue
        made[row] = np.where(masked[row] == -np.inf, Decimal(0), UNKNOWN)
        if alone and all(score == own["masked"][row][seen[0]] for score in own["masked"][row][seen]):
            made[row][seen] = quotient(Decimal(1), Decimal(len(seen)))
    return made


def _dropped(case: dict, arrays: dict, own: Own) -> np.ndarray:
    kept = np.where(arrays["dropout_keep"], own["weights"], Decimal(0))
    divided = np.frompyfunc(lambda weight: quotient(weight, 1 - Decimal(repr(case["dropout"]))), 1, 1)
    return divided(kept)


RULES: dict[str, Callable[[dict, dict, Own], np.ndarray]] = {
    "q": _projected("q"),
    "k": _projected("k"),
    "v": _projected("v"),
    "q_heads": lambda case, arrays, own: split_heads(own["q"], case["heads"]),
    "k_heads": lambda case, arrays, own: split_heads(own["k"], case["kv_heads"]),
    "v_heads": lambda case, arrays, own: split_heads(own["v"], case["kv_heads"]),
    "present_k": lambda case, arrays, own: np.concatenate([own["past_k"], latest(own, "k")], axis=-2),
    "present_v": lambda case, arrays, own: np.concatenate([own["past_v"], own["v_heads"]], axis=-2),
    "k_extended": _extended("k"),
    "v_extended": _extended("v"),
    "qk": lambda case, arrays, own: latest(own, "q") @ np.swapaxes(repeat_heads(latest(own, "k"), case["heads"]), -1, -2),
    "scaled": _scaled,
    "buckets": lambda case, arrays, own: decimals(arrays["buckets"]),
    "bias": _bias,
    "masked": _masked,
    "weights": _weights,
    "dropped": _dropped,
    "contexts": lambda case, arrays, own: own.get("dropped", own["weights"]) @ repeat_heads(latest(own, "v"), case["heads"]),
    "concat": lambda case, arrays, own: merge_heads(own["contexts"]),
    "output": _projected("o"),
}
