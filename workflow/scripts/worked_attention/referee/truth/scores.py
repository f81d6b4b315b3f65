"""Stage scores of one head: Q K^T, times the scale, softcap, plus biases, and the mask over all (Vaswani et al. 2017, equation 1)."""

import numpy as np
from flint import arb

from worked_attention.referee.truth.balls import ANYTHING, CLOSED, Balls, balls, each, matmul
from worked_attention.referee.truth.masks import fill, seen
from worked_attention.referee.truth.parts import Part
from worked_attention.referee.truth.positions import alibi, bucket, largest, slopes
from worked_attention.referee.truth.projections import entering

SCALE = {  # by the sizes of the case
    "none": lambda dims: arb(1),
    "1/d_k": lambda dims: 1 / arb(dims["d_k"]),
    "1/sqrt(d_k)": lambda dims: 1 / arb(dims["d_k"]).sqrt(),
    "1/sqrt(d_model)": lambda dims: 1 / arb(dims["d_model"] if "d_model" in dims else dims["H"] * dims["d_k"]).sqrt(),
}


def scores(case: dict, part: Part) -> dict[str, np.ndarray]:
    """`qk`, `scaled`, `capped`, `bias`, `keep` and `masked` as far as the case has them, all [n, Lk]; a score that is too large for what
    the case keeps scores in is infinite."""
    made = {}
    if "scaled" in part:
        x = part["scaled"]
    else:
        made["qk"] = kept(case, matmul(entering(part, "q"), entering(part, "k").T))
        x = kept(case, made["qk"] * scale(case))
    made["scaled"] = x
    if case["softcap"]:
        x = made["capped"] = capped(x, arb(case["softcap"]))
    if case["alibi"]:
        made["slopes"] = np.array(slopes(case["heads"], case["alibi"]["slopes"])[part.h], dtype=object)
    if "t5_table" in part:
        made["buckets"] = balls(buckets_of(case, part).astype(np.float64))
    if terms := biases(case, part):
        made["bias"] = bias(case, terms, len(x))
        x = kept(case, x + made["bias"])
    if (keep := seen(case, part)) is not None:
        made["keep"] = keep
        x = np.where(keep, x, fill(case))
    return {**made, "masked": x}


def kept(case: dict, x: Balls) -> Balls:
    """Scores as the narrowest of `precision` holds them: infinite beyond its largest number, `ANYTHING` where that is not known."""
    most = arb(min(largest(dtype) for dtype in case["precision"].values()))

    def one(s: arb) -> arb:
        size = abs(s)
        if size <= most or not s.is_finite():
            return s
        return (arb("inf") if s > 0 else CLOSED) if size > most else ANYTHING

    return each(one, x)


def scale(case: dict) -> arb:
    """What multiplies q·k, exactly as the case says it."""
    return SCALE[case["scale"]](case["dims"]) if isinstance(case["scale"], str) else arb(case["scale"])


def capped(x: Balls, cap: arb) -> Balls:
    """cap * tanh(x / cap) (Gemma 2, 2024, section 2)."""

    def soft(s: arb) -> arb:
        y = (s / cap).tanh()
        return cap * y if s.is_nan() or y.rel_one_accuracy_bits() > 60 else ANYTHING

    return each(soft, x)


def biases(case: dict, part: Part) -> list[Balls]:
    """The terms that are added to the scores, [n, Lc] or with 1 standing for all: tables, ALiBi, T5, masks that are added."""
    i, j = np.array(case["query_positions"])[part.queries, None], np.array(case["context_positions"])[None, :]
    terms = [part[name] for name in ("bias_table", "mask_add") if name in part]
    if "mask_key_add" in part:
        terms.append(part["mask_key_add"][None, :])
    if case["alibi"]:
        terms.append(alibi(slopes(case["heads"], case["alibi"]["slopes"])[part.h], i, j, case["alibi"]["form"]))
    if "t5_table" in part:
        terms.append(part["t5_table"][buckets_of(case, part)])
    return terms


def buckets_of(case: dict, part: Part) -> np.ndarray:
    """T5's bucket of each key for each of these queries, whole numbers [n, Lc]."""
    i, j = np.array(case["query_positions"])[part.queries, None], np.array(case["context_positions"])[None, :]
    distances, cells = np.unique(j - i, return_inverse=True)
    found = [bucket(int(d), len(part["t5_table"]), case["t5"]["longest"], case["t5"]["direction"]) for d in distances]
    return np.array(found)[cells.reshape((j - i).shape)]


def bias(case: dict, terms: list[Balls], n: int) -> Balls:
    """All terms together, [n, Lk]; the keys that the layer appends get none."""
    keys, all_keys = case["dims"]["Lc"], case["dims"]["Lk"]
    total = np.broadcast_to(sum(terms[1:], terms[0]), (n, keys))
    return np.hstack([total, balls(np.zeros((n, all_keys - keys)))])
