"""Mistakes in the contexts: which weights meet which values, and how heads are laid side by side."""

import numpy as np

from worked_attention.referee.chain import Arrays, Stage
from worked_attention.referee.mistakes.entry import entries
from worked_attention.referee.mistakes.when import (
    as_long,
    has,
    heads,
    scaled,
)
from worked_attention.stages.projections import latest

mistake, _ = entries("contexts")


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
