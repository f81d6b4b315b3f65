"""Mistakes in the contexts: which weights meet which values, and how heads are laid side by side."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import Arrays, Stage
from worked_attention.referee.mistakes.entry import Change, Entries
from worked_attention.referee.mistakes.when import as_long, has, heads, plain, scaled
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import latest
from worked_attention.stages.scores import repeat_heads

entries = Entries("contexts")
mistake = entries.mistake


@mistake(
    "contexts",
    "heads laid side by side by a reshape alone, which mixes tokens and heads",
    "Swap [H, L, d] to [L, H, d] first and reshape then.",
    lambda case: "concat" in case["shapes"] and heads(case) and case["dims"]["Lq"] > 1,
)
def merged_without_transpose(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    return made | {"concat": made["contexts"].reshape(made["concat"].shape)}


@mistake(
    "contexts",
    "columns of the heads interleaved",
    "The columns of one head stay side by side: reshape [L, H, d], not [L, d, H].",
    lambda case: "concat" in case["shapes"] and heads(case) and case["dims"]["d_v"] > 1,
)
def heads_interleaved(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    return made | {"concat": np.moveaxis(made["contexts"], -3, -1).reshape(made["concat"].shape)}


def _with_contexts(case: dict, arrays: Arrays, **changes: np.ndarray) -> Arrays:
    used = "dropped" if "dropped" in arrays else "weights"
    return arrays | ({used: changes["weights"]} if "weights" in changes else {})


@mistake(
    "contexts",
    "values weighted with the transposed weights",
    "A context is weights @ values.",
    lambda case: as_long(case) and "contexts" in case["shapes"],
)
def transposed_weights_used(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    weights = arrays.get("dropped", arrays["weights"])
    return go(case, _with_contexts(case, arrays, weights=np.swapaxes(weights, -1, -2)))


@mistake(
    "contexts",
    "all heads weighted with the mean of their weights",
    "Each head uses its own weights; their mean is for looking at only.",
    lambda case: heads(case) and "contexts" in case["shapes"],
)
def mean_weights_used(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    weights = arrays.get("dropped", arrays["weights"])
    return go(case, _with_contexts(case, arrays, weights=np.broadcast_to(weights.mean(axis=-3, keepdims=True), weights.shape)))


@mistake(
    "contexts",
    "the keys averaged in place of the values",
    "A context is weights @ values.",
    lambda case: "contexts" in case["shapes"] and scaled(case) and case["dims"]["d_k"] == case["dims"]["d_v"],
)
def keys_for_values(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, {name: a for name, a in arrays.items() if name not in ("present_v", "v_extended")} | {"v_heads": latest(arrays, "k")})


@mistake("contexts", "weights before dropout", "Weight the values with what dropout leaves.", has("dropped", "contexts"))
def dropout_not_used(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"dropped": arrays["weights"]})


def _shares(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    share = 1 / (1 + np.exp(other - one))
    return share, 1 - share


def _cuts(case: dict) -> range:
    """After how many keys the first of two parts may end."""
    merged = plain(case) and "contexts" in case["shapes"] and "dropped" not in case["shapes"]
    return range(1, min(case["dims"]["Lk"], 9) if merged else 1)


def _parts(name: str, sentence: str, remedy: str, weigh: Callable) -> None:
    """Contexts of two parts of the keys, added with what `weigh` makes of their natural log-sum-exps [..., Lq, 1]."""

    def cut_at(cut: int) -> Change:
        def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
            values = repeat_heads(latest(arrays, "v"), case["heads"])
            parts = [(arrays["masked"][..., keys], values[..., keys, :]) for keys in (slice(0, cut), slice(cut, None))]
            logs = [np.log(np.exp(scores).sum(axis=-1, keepdims=True)) for scores, _ in parts]
            means = [np.exp(scores - log) @ v for (scores, v), log in zip(parts, logs, strict=True)]
            contexts = sum(weight * mean for weight, mean in zip(weigh(*logs), means, strict=True))
            return {"contexts": contexts, "concat": merge_heads(contexts)}

        return change

    entries.numbered(name, "contexts", sentence, remedy, _cuts, cut_at)


_parts(
    "merged_base_2",
    "the contexts of the first {} keys and of the others merged by e^lse where lse is to base 2",
    "Weigh each part by e^lse with natural logarithms, or by 2^lse with those to base 2.",
    lambda one, other: _shares(one / np.log(2), other / np.log(2)),
)
_parts(
    "merged_base_e",
    "the contexts of the first {} keys and of the others merged by 2^lse where lse is natural",
    "Weigh each part by e^lse with natural logarithms, or by 2^lse with those to base 2.",
    lambda one, other: _shares(one * np.log(2), other * np.log(2)),
)
_parts(
    "merged_added",
    "the contexts of the first {} keys and of the others divided by the product of their sums (log-sum-exps added)",
    "The whole log-sum-exp is log(exp(lse1) + exp(lse2)).",
    lambda one, other: (np.exp(-other), np.exp(-one)),
)
_parts(
    "merged_averaged",
    "the mean of the contexts of the first {} keys and of the others",
    "Weigh each part by its share of the whole sum of exponentials.",
    lambda one, other: (0.5, 0.5),
)
