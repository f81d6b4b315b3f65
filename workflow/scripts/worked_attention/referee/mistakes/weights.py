"""Mistakes in the weights: softmax, sinks, empty rows, dropout."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import STAGE, Arrays, Stage
from worked_attention.referee.mistakes.entry import Change, Entries
from worked_attention.referee.mistakes.masks import cells, filled
from worked_attention.referee.mistakes.when import as_long, biased, has, has_sinks, heads, masked, plain, soft, unweighted
from worked_attention.stages.precision import bfloat16

entries = Entries("weights")
mistake = entries.mistake


def _reweighted(case: dict, arrays: Arrays, go: Stage, weights: np.ndarray) -> Arrays:
    """The stage with other weights, and dropout after them."""
    made = {**go(case, arrays), "weights": weights}
    if "dropped" in made:
        made["dropped"] = weights * arrays["dropout_keep"] / (1 - case["dropout"])
    return made


def _along(axes: int | tuple[int, ...]) -> Change:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        scores = arrays["masked"]
        e = np.exp(scores - scores.max(axis=axes, keepdims=True))
        return _reweighted(case, arrays, go, e / e.sum(axis=axes, keepdims=True))

    return change


entries.enter(
    "softmax_over_queries",
    "the softmax over the queries",
    "Every row sums to 1: softmax along the last axis.",
    plain,
    {"weights": _along(-2)},
)
entries.enter(
    "softmax_over_heads",
    "the softmax over the heads",
    "Every row sums to 1: softmax along the last axis.",
    lambda case: plain(case) and heads(case),
    {"weights": _along(-3)},
)
entries.enter(
    "softmax_over_everything",
    "one softmax over all queries and keys of a head",
    "Every row sums to 1 by itself: softmax along the last axis.",
    plain,
    {"weights": _along((-2, -1))},
)


def _empty(policy: str, sentence: str) -> None:
    def applies(case: dict) -> bool:
        return plain(case) and case["mask"]["empty_row"] != policy and (masked(case) or biased(case))

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        return go({**case, "mask": {**case["mask"], "empty_row": policy}}, arrays)

    remedy = "Follow the case's `empty_row`; implementations differ here."
    entries.enter(f"empty_row_{policy}", sentence, remedy, applies, {"weights": change}, neutral=True)


_empty("nan", "NaN where a query sees no key")
_empty("zero", "weights of 0 where a query sees no key")
_empty("uniform", "equal weights where a query sees no key")


def _exponentials(name: str, sentence: str, remedy: str, largest: Callable[[np.ndarray], np.ndarray | float], base: float = np.e) -> None:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        scores = arrays["masked"]
        e = np.power(base, scores - largest(scores))
        return _reweighted(case, arrays, go, e / e.sum(axis=-1, keepdims=True))

    entries.enter(name, sentence, remedy, plain, {"weights": change})


_SHIFT = "Subtract the largest score of each row, not one for all and not none."
_exponentials("global_maximum", "rows shifted by the largest score of all, so that some underflow to 0/0", _SHIFT, lambda s: s.max())
_exponentials("no_maximum", "exponentials of scores that were not shifted, so that some overflow", _SHIFT, lambda s: 0.0)
_exponentials(
    "powers_of_two",
    "powers of 2 in place of powers of e",
    "Multiply the scores by log2(e) before exp2.",
    lambda s: s.max(axis=-1, keepdims=True),
    2.0,
)


@mistake(
    "weights",
    "the scores after the mask put to 0 by multiplying weights, not renormalised",
    "Mask before the softmax, so that rows sum to 1.",
    lambda case: plain(case) and masked(case),
)
def mask_after_softmax(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = STAGE["scores"](case, arrays)
    unmasked = made.get("capped", made["scaled"]) + made.get("bias", 0.0)
    weights = go(case, arrays | {"masked": unmasked})["weights"] * made["keep"]
    return _reweighted(case, arrays, go, weights)


@mistake(
    "weights",
    "weights of the scores before bias and mask",
    "The softmax takes what is masked.",
    lambda case: soft(case) and (masked(case) or biased(case)),
)
def unmasked_scores(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = STAGE["scores"](case, arrays)
    return go(case, arrays | {"masked": made.get("capped", made["scaled"])})


@mistake("weights", "log of the softmax", "The values are weighted with the softmax itself.", lambda case: soft(case) and not masked(case))
def log_softmax(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _reweighted(case, arrays, go, np.log(go(case, arrays)["weights"]))


@mistake("weights", "the softmax taken twice", "Take the softmax once.", soft)
def softmax_twice(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"masked": go(case, arrays)["weights"]})


@mistake("weights", "exponentials not divided by their sum", "Divide each row by its sum.", plain)
def not_normalised(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    scores = arrays["masked"]
    return _reweighted(case, arrays, go, np.exp(scores - scores.max(axis=-1, keepdims=True)))


@mistake("weights", "the weights transposed", "Rows are queries and columns keys.", as_long)
def weights_map_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _reweighted(case, arrays, go, np.swapaxes(go(case, arrays)["weights"], -1, -2))


def _sink(case: dict, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """(scores, sink of each row)."""
    scores = arrays["masked"]
    sinks = arrays.get("sinks", np.zeros(case["heads"]))
    return scores, np.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))


@mistake("weights", "the sink (or the one) left out of the denominator", "Add exp(sink) to the denominator of each row.", has_sinks)
def sink_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "plain"}, {name: array for name, array in arrays.items() if name != "sinks"})


@mistake("weights", "the sink in the numerator, too", "The sink joins the denominator only; it has no value.", has_sinks)
def sink_in_numerator(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    scores, sink = _sink(case, arrays)
    largest = np.maximum(scores.max(axis=-1, keepdims=True), sink)
    e, extra = np.exp(scores - largest), np.exp(sink - largest)
    return _reweighted(case, arrays, go, (e + extra) / (e.sum(axis=-1, keepdims=True) + extra))


@mistake("weights", "the sink added to all scores of its head", "The sink is a term of its own in the denominator.", has("sinks"))
def sink_as_bias(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    scores, sink = _sink(case, arrays)
    return sink_ignored(case, arrays | {"masked": scores + sink}, go)


@mistake(
    "weights",
    "exp(sink), or the one, not shifted by the row's largest score",
    "When scores are shifted by m, the sink is, too: exp(sink - m), and 1 becomes exp(-m).",
    has_sinks,
)
def sink_not_shifted(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    scores, sink = _sink(case, arrays)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return _reweighted(case, arrays, go, e / (e.sum(axis=-1, keepdims=True) + np.exp(sink)))


@mistake(
    "weights",
    "one added to the denominator of the plain softmax",
    "The plain softmax has nothing but the exponentials in its denominator.",
    plain,
)
def plus_one_uncalled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "plus_one"}, arrays)


def _rounded(name: str, dtype: np.dtype, word: str) -> None:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        return _reweighted(case, arrays, go, go(case, arrays)["weights"].astype(dtype).astype(np.float64))

    def applies(case: dict) -> bool:
        return soft(case) and np.dtype(case["dtype"]).itemsize > 2

    entries.enter(name, f"weights rounded to {word}", "Keep the weights in the arithmetic of the case.", applies, {"weights": change})


_rounded("weights_in_float16", np.dtype(np.float16), "float16")
_rounded("weights_in_bfloat16", bfloat16, "bfloat16")


@mistake(
    "weights",
    "equal weights for the largest scores of a row",
    "Hardmax gives all to the first largest score.",
    lambda case: case["softmax"] == "hardmax",
)
def hardmax_shared(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    scores = arrays["masked"]
    largest = (scores == scores.max(axis=-1, keepdims=True)) & (scores > -np.inf)
    return _reweighted(case, arrays, go, largest / np.maximum(largest.sum(axis=-1, keepdims=True), 1))


@mistake(
    "weights",
    "the last of several largest scores chosen",
    "Hardmax gives all to the first largest score.",
    lambda case: case["softmax"] == "hardmax",
)
def hardmax_last(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    turned = go(case, arrays | {"masked": arrays["masked"][..., ::-1]})["weights"][..., ::-1]
    return _reweighted(case, arrays, go, turned)


@mistake("weights", "softmax in place of hardmax", "Hardmax gives 1 to the first largest score.", lambda case: case["softmax"] == "hardmax")
def softmax_for_hardmax(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "plain"}, arrays)


@mistake("weights", "a softmax, where the case has none", "Without a softmax the scores themselves are the weights.", unweighted)
def softmax_uncalled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "plain"}, arrays)


@mistake("weights", "no softmax: the scores themselves as weights", "Take the softmax of each row, after the mask.", plain)
def softmax_left_out(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "none"}, arrays)


@mistake(
    "weights",
    "blocked keys left at what fills them, where no softmax makes it 0",
    "Without a softmax a blocked key has the weight 0.",
    lambda case: unweighted(case) and masked(case),
)
def blocked_not_zero(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _reweighted(case, arrays, go, arrays["masked"])


@mistake(
    "weights",
    "the scores divided by the number of keys",
    "Without a softmax the scores themselves are the weights; nothing is divided.",
    unweighted,
)
def scores_averaged(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _reweighted(case, arrays, go, go(case, arrays)["weights"] / arrays["masked"].shape[-1])


def _dropping(name: str, sentence: str, remedy: str, wrong: Callable[[np.ndarray, np.ndarray, float], np.ndarray]) -> None:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        made = go(case, arrays)
        return made | {"dropped": wrong(made["weights"], arrays["dropout_keep"], case["dropout"])}

    entries.enter(name, sentence, remedy, has("dropped"), {"weights": change})


_dropping("dropout_not_rescaled", "dropped weights not divided by 1 - p", "Divide what is kept by 1 - p.", lambda w, keep, p: w * keep)
_dropping("dropout_ignored", "no dropout", "Multiply by dropout_keep / (1 - p).", lambda w, keep, p: w)
_dropping("dropout_inverted", "the dropout mask inverted", "True in dropout_keep means kept.", lambda w, keep, p: w * ~keep / (1 - p))
_dropping(
    "dropout_renormalised",
    "rows divided by their new sum after dropout",
    "Divide by 1 - p, not by the sum.",
    lambda w, keep, p: w * keep / (w * keep).sum(axis=-1, keepdims=True),
)


@mistake(
    "weights", "dropped weights returned as the weights", "`weights` are those before dropout; `dropped` those after it.", has("dropped")
)
def dropout_in_weights(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    return made | {"weights": made["dropped"]}


entries.enter(
    "softmax_over_heads_and_keys",
    "one softmax over the heads and keys of a query",
    "Every row of every head sums to 1 by itself: softmax along the last axis.",
    lambda case: plain(case) and heads(case),
    {"weights": _along((-3, -1))},
)


@mistake("weights", "weights divided once more by their sum over the queries", "Every row sums to 1 already; leave it.", plain)
def renormalised_over_queries(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    weights = go(case, arrays)["weights"]
    return _reweighted(case, arrays, go, weights / weights.sum(axis=-2, keepdims=True))


def _resunk(case: dict, arrays: Arrays, go: Stage, change: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    """The stage with other sinks."""
    return go({**case, "softmax": "plain"}, arrays | {"sinks": change(arrays.get("sinks", np.zeros(case["heads"])))})


@mistake("weights", "the sink (or the one) counted twice in the denominator", "Add exp(sink) once, not in every block.", has_sinks)
def sink_twice(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _resunk(case, arrays, go, lambda sinks: sinks + np.log(2))


@mistake(
    "weights",
    "the sink times the scale",
    "The sink is a logit already: nothing multiplies it.",
    lambda case: "sinks" in case["shapes"] and case["scale_factor"] != 1,
)
def sink_scaled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _resunk(case, arrays, go, lambda sinks: sinks * case["scale_factor"])


def _in_range(name: str, dtype: np.dtype, sentence: str, largest: Callable[[np.ndarray], np.ndarray | float]) -> None:
    """Exponentials in a format in which they over- or underflow, shifted by `largest`."""

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        scores = arrays["masked"].astype(dtype)
        e = np.exp(scores - np.asarray(largest(scores), dtype))
        return _reweighted(case, arrays, go, (e / e.sum(axis=-1, keepdims=True, dtype=dtype)).astype(np.float64))

    entries.enter(name, sentence, _SHIFT, plain, {"weights": change})


for _word, _dtype in (("float32", np.dtype(np.float32)), ("float16", np.dtype(np.float16))):
    _in_range(
        f"no_maximum_{_word}", _dtype, f"exponentials of scores that were not shifted, in {_word}, so that some overflow", lambda s: 0.0
    )
    _in_range(
        f"global_maximum_{_word}",
        _dtype,
        f"rows shifted by the largest score of all, in {_word}, so that some underflow to 0/0",
        lambda s: s.max(),
    )


@mistake(
    "weights",
    "rows of which every exponential underflowed, put to 0",
    _SHIFT,
    plain,
)
def underflow_to_zero(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    e = np.exp(arrays["masked"])
    total = e.sum(axis=-1, keepdims=True)
    return _reweighted(case, arrays, go, np.where(total > 0, e / total, 0.0))


@mistake(
    "weights",
    "the bias of the first key as a sink in the denominator, and no bias on the scores",
    "The bias is added to the score of its key, which keeps its value.",
    lambda case: "bias_table" in case["shapes"] and plain(case),
)
def first_bias_as_sink(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    _, scores, _, keep = cells(case, arrays, STAGE["scores"])
    first = arrays["bias_table"][..., 0, 0]  # of the first query, for all heads or one each
    sinks = np.broadcast_to(first, np.broadcast_shapes(first.shape, (case["heads"],))).reshape(-1, case["heads"])[0]
    return go(case, arrays | {"sinks": sinks, "masked": filled(case, scores, keep)})
