"""Mistakes in the gradients."""

import numpy as np

from worked_attention.referee.chain import Arrays, Stage
from worked_attention.referee.mistakes.entry import Entries
from worked_attention.referee.mistakes.when import capped, has_gradients, has_norm, masked, plain, rotated, soft, unweighted

entries = Entries("backward")
mistake = entries.mistake


@mistake(
    "backward",
    "d_qk without the scale",
    "What multiplies the scores multiplies their gradient.",
    lambda case: has_gradients("d_qk")(case) and case["scale_factor"] != 1,
)
def gradient_not_scaled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "scale_factor": 1.0}, arrays)


@mistake("backward", "no softcap in the gradient", "Multiply by 1 - tanh^2.", lambda case: has_gradients("d_qk")(case) and capped(case))
def gradient_without_softcap(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softcap": None}, arrays)


@mistake(
    "backward",
    "gradients of queries and keys not turned back",
    "Rotate the gradients by the negative angles.",
    lambda case: has_gradients("d_q_heads")(case) and rotated(case),
)
def gradient_not_turned_back(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "rotary": None}, arrays)


@mistake(
    "backward",
    "no norm in the gradient",
    "The gradient goes through the norm of queries and keys.",
    lambda case: has_gradients("d_q_heads")(case) and has_norm(case),
)
def gradient_without_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "qk_norm": None}, arrays)


@mistake(
    "backward",
    "P dP in place of P (dP - sum P dP)",
    "Subtract the row sum of P dP: the softmax couples the scores of a row.",
    lambda case: has_gradients("d_masked")(case) and soft(case),
)
def softmax_gradient_without_sum(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    d_masked = np.where(arrays["masked"] == -np.inf, 0, arrays["weights"] * made["d_weights"])
    d_scaled = np.where(arrays["keep"], d_masked, 0) if "keep" in arrays else d_masked
    if case["softcap"]:
        d_scaled = d_scaled * (1 - (arrays["capped"] / case["softcap"]) ** 2)
    return made | {"d_masked": d_masked, "d_scaled": d_scaled, "d_qk": d_scaled * case["scale_factor"]}


@mistake("backward", "gradients of the biases averaged over the rows", "Sum over all rows; the loss is a sum.", has_gradients("d_b_o"))
def bias_gradient_averaged(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    rows = {"d_b_o": "output", "d_b_q": "q", "d_b_k": "k", "d_b_v": "v"}
    return made | {name: made[name] / np.prod(case["shapes"][of][:-1]) for name, of in rows.items() if name in made}


@mistake(
    "backward",
    "gradients of the weights transposed",
    "Weights are stored [out, in], and so are their gradients: dY^T X.",
    lambda case: has_gradients("d_w_o")(case),
)
def weight_gradient_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    return made | {name: made[name].T for name in ("d_w_q", "d_w_k", "d_w_v", "d_w_o") if name in made}


@mistake(
    "backward",
    "dropped weights in the gradient as if nothing was dropped",
    "A dropped weight gets no gradient; a kept one is divided by 1 - p.",
    lambda case: has_gradients("dropped")(case),
)
def gradient_without_dropout(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, {name: array for name, array in arrays.items() if name != "dropout_keep"})


@mistake(
    "backward",
    "the gradient of a softmax, where the case has none",
    "Without a softmax the weights are the scores, and so are their gradients.",
    lambda case: has_gradients("d_masked")(case) and unweighted(case),
)
def softmax_gradient_uncalled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "plain"}, arrays)


@mistake(
    "backward",
    "the softmax gradient with the dropped weights in place of the weights",
    "P in P (dP - sum P dP) is the softmax itself, before dropout.",
    has_gradients("dropped"),
)
def gradient_of_dropped_weights(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"weights": arrays["dropped"]})


@mistake(
    "backward",
    "the softmax gradient with the dropped weights, and no dropout on the way to it",
    "Multiply the gradient of the weights by keep / (1 - p); P in P (dP - sum P dP) is the softmax before dropout.",
    has_gradients("dropped"),
)
def gradient_of_dropped_weights_alone(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, {name: array for name, array in arrays.items() if name != "dropout_keep"} | {"weights": arrays["dropped"]})


@mistake(
    "backward",
    "the gradient of dropout with p where 1/(1 - p) is right",
    "What is kept is divided by 1 - p, forwards and backwards.",
    has_gradients("dropped"),
)
def gradient_dropout_times_p(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "dropout": 1 - 1 / case["dropout"]}, arrays)


@mistake(
    "backward",
    "NaN in the gradients of queries without keys",
    "A query that sees no key has no gradient: put 0 where the softmax has 0/0.",
    lambda case: has_gradients("d_masked")(case) and masked(case) and plain(case),
)
def gradient_nan_in_empty_rows(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    empty = (arrays["masked"] == -np.inf).all(axis=-1, keepdims=True)
    softmax = {"weights": np.where(empty, np.nan, arrays["weights"]), "masked": np.where(empty, 0.0, arrays["masked"])}
    made = go(case, arrays | softmax | {"keep": arrays["keep"] | empty})
    values = ("d_v_heads", "d_v", "d_w_v", "d_b_v", "d_x_v")  # their gradient does not go through the softmax
    return made | {name: array for name, array in go(case, arrays).items() if name in values}
