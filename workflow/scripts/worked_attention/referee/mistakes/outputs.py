"""Mistakes in the output projection."""

import numpy as np

from worked_attention.referee.chain import Arrays, Stage
from worked_attention.referee.mistakes.entry import Entries, without
from worked_attention.referee.mistakes.when import has, heads, square

entries = Entries("outputs")
mistake = entries.mistake


@mistake(
    "outputs",
    "no output projection",
    "Multiply by the transpose of w_o and add b_o.",
    lambda case: "w_o" in case["shapes"] and case["shapes"]["concat"] == case["shapes"]["output"],
)
def missing_w_o(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, {name: array for name, array in arrays.items() if name not in ("w_o", "b_o")})


entries.enter("missing_b_o", "no bias added to the output", "Add b_o.", has("b_o"), {"outputs": without("b_o")})


@mistake(
    "outputs",
    "w_o not transposed",
    "Weights are stored [out, in]; multiply by the transpose: concat @ w_o.T.",
    lambda case: square(case, "w_o"),
)
def w_o_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"w_o": arrays["w_o"].T})


@mistake(
    "outputs", "b_o added once for each head", "Sum the heads first and add b_o once.", lambda case: "b_o" in case["shapes"] and heads(case)
)
def b_o_for_each_head(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"b_o": case["heads"] * arrays["b_o"]})


@mistake(
    "outputs",
    "x added to the output",
    "The residual connection is not part of attention.",
    lambda case: "x" in case["shapes"] and case["shapes"]["x"] == case["shapes"].get("output"),
)
def residual_added(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    return made | {"output": made["output"] + arrays["x"]}


@mistake(
    "outputs",
    "the signs of w_o lost, so that what it subtracts is added",
    "Keep the signs of w_o.",
    lambda case: "w_o" in case["shapes"],
)
def w_o_without_signs(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"w_o": np.abs(arrays["w_o"])})
