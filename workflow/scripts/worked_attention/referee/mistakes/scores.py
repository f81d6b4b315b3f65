"""Mistakes in the scores: scale, groups of heads, bias, softcap, the product itself."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import Arrays, Stage
from worked_attention.referee.mistakes.entry import Change, Entries, Mistake, altered
from worked_attention.referee.mistakes.masks import cells, filled
from worked_attention.referee.mistakes.when import as_long, bare, biased, capped, heads, masked, scaled
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import latest
from worked_attention.stages.scores import repeat_heads, softcap

entries = Entries("scores")
mistake = entries.mistake


def _factor(name: str, sentence: str, remedy: str, factor: Callable[[dict], float]) -> None:
    """A wrong scale; it applies where it differs from the right one."""

    def applies(case: dict) -> bool:
        return scaled(case) and abs(factor(case) - case["scale_factor"]) > 1e-6 * abs(case["scale_factor"])

    entries.enter(name, sentence, remedy, applies, {"scores": altered(scale_factor=factor)})


def _own_width(case: dict) -> bool:
    """Whether all heads together are not as wide as x."""
    return "d_model" in case["dims"] and case["dims"]["d_model"] != case["heads"] * case["dims"]["d_k"]


_RIGHT_SCALE = "Use the scale of the case, 1/sqrt(d_k) by default, where d_k is the width of one head."
_factor("sign_of_scale_lost", "a negative scale without its sign", "Keep the sign of the scale.", lambda case: abs(case["scale_factor"]))
_factor(
    "divided_by_sqrt_d_model",
    "divided by sqrt(d_model)",
    _RIGHT_SCALE,
    lambda case: case["dims"].get("d_model", case["heads"] * case["dims"]["d_k"]) ** -0.5,
)
_factor(
    "divided_by_sqrt_all_heads",
    "divided by sqrt(H d_k)",
    _RIGHT_SCALE,
    lambda case: (case["heads"] * case["dims"]["d_k"]) ** -0.5 if _own_width(case) else case["scale_factor"],
)
_factor("not_scaled", "no scale", "Multiply q k^T by the scale before the softmax.", lambda case: 1.0)
_factor(
    "scaled_twice", "the scale applied twice", "Scale once, either the queries or the products.", lambda case: case["scale_factor"] ** 2
)
_factor("inverse_scale", "multiplied by sqrt(d_k) where division is right", _RIGHT_SCALE, lambda case: 1 / case["scale_factor"])
_factor("divided_by_d_k", "divided by d_k", _RIGHT_SCALE, lambda case: 1 / case["dims"]["d_k"])
_factor("divided_by_sqrt_d_v", "divided by sqrt(d_v)", _RIGHT_SCALE, lambda case: case["dims"]["d_v"] ** -0.5)
_factor(
    "divided_by_sqrt_d_k",
    "divided by sqrt(d_k), though the case has another scale",
    "Use the scale of the case.",
    lambda case: case["dims"]["d_k"] ** -0.5,
)


def _tiled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    """Every query head h reads key and value head h mod H_kv."""
    order = np.arange(case["heads"]) % case["kv_heads"]
    names = ("k_heads", "v_heads", "k_norm", "k_rot", "present_k", "present_v", "k_extended", "v_extended")
    return go(case, arrays | {name: arrays[name][..., order, :, :] for name in names if name in arrays})


entries.enter(
    "groups_tiled",
    "key and value heads repeated as 0, 1, 0, 1 where 0, 0, 1, 1 is right",
    "Repeat each key and value head for its block of neighbouring query heads (repeat_interleave, not tile).",
    lambda case: 1 < case["kv_heads"] < case["heads"] and scaled(case),
    {"scores": _tiled, "contexts": _tiled},
)


@mistake(
    "scores",
    "the bias scaled, too",
    "Scale q k^T first and add the bias then.",
    lambda case: biased(case) and scaled(case) and case["scale_factor"] != 1,
)
def bias_scaled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = cells(case, arrays, go)
    added = added * case["scale_factor"]
    return made | {"bias": added, "masked": filled(case, scores + added, keep)}


@mistake("scores", "no bias added", "Add the bias (table, ALiBi, T5, additive mask) to the scores.", biased)
def bias_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, _, keep = cells(case, arrays, go)
    return made | {"bias": np.zeros_like(made["bias"]), "masked": filled(case, scores, keep)}


@mistake(
    "scores",
    "the additive mask read as boolean, where a number that is not 0 blocks",
    "A float mask is added to the scores.",
    lambda case: bool({"mask_add", "mask_key_add"} & set(case["shapes"])),
)
def float_mask_as_boolean(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    names = [name for name in ("mask_add", "mask_key_add") if name in arrays]
    return go(case, arrays | {name: np.where(arrays[name] != 0, -np.inf, 0.0) for name in names})


@mistake("scores", "no softcap", "Scores become softcap * tanh(scores / softcap).", capped)
def softcap_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, _, added, keep = cells(case, arrays, go)
    return made | {"capped": made["scaled"], "masked": filled(case, made["scaled"] + added, keep)}


@mistake(
    "scores",
    "the softcap after the mask, so that blocked scores become -softcap",
    "Cap the scaled scores first; add the bias and mask then.",
    lambda case: capped(case) and masked(case),
)
def softcap_after_mask(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, _, added, keep = cells(case, arrays, go)
    return made | {"masked": softcap(filled(case, made["scaled"] + added, keep), case["softcap"])}


@mistake(
    "scores",
    "the softcap after the bias",
    "Cap the scaled scores first, and add the bias then.",
    lambda case: capped(case) and biased(case),
)
def softcap_after_bias(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, _, added, keep = cells(case, arrays, go)
    return made | {"masked": filled(case, softcap(made["scaled"] + added, case["softcap"]), keep)}


@mistake(
    "scores",
    "tanh(scores / softcap) without the softcap in front",
    "Multiply by the softcap again.",
    lambda case: capped(case) and case["softcap"] != 1,
)
def softcap_not_multiplied(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = cells(case, arrays, go)
    capped = scores / case["softcap"]
    return made | {"capped": capped, "masked": filled(case, capped + added, keep)}


@mistake(
    "scores",
    "the softcap before the scale",
    "Scale first and cap then.",
    lambda case: capped(case) and scaled(case) and case["scale_factor"] != 1,
)
def softcap_before_scale(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, _, added, keep = cells(case, arrays, go)
    capped = softcap(made["qk"], case["softcap"]) * case["scale_factor"]
    return made | {"capped": capped, "masked": filled(case, capped + added, keep)}


@mistake("scores", "the transpose, K Q^T", "Rows are queries and columns keys: Q K^T.", lambda case: as_long(case) and scaled(case))
def scores_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    qk = np.swapaxes(made["qk"], -1, -2)
    return {"qk": qk} | go(case, arrays | {"scaled": qk * case["scale_factor"]})


@mistake("scores", "minus the distance between query and key in place of their product", "A score is the dot product q . k.", scaled)
def distance_for_product(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    q, k = latest(arrays, "q"), repeat_heads(latest(arrays, "k"), case["heads"])
    qk = -np.sqrt(((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(axis=-1))
    return {"qk": qk} | go(case, arrays | {"scaled": qk * case["scale_factor"]})


def _across(axis: int) -> dict[str, Change]:
    """Scores and contexts with `axis` of queries, keys and values (counted from their last) where the tokens belong."""

    def turned(case: dict, arrays: Arrays, names: str) -> tuple[dict, Arrays]:
        last = {name: latest(arrays, name) for name in names}
        turn = {key: np.swapaxes(x, axis, -2) for key, x in arrays.items() if any(x is y for y in last.values())}
        return ({**case, "heads": case["dims"]["Lq"]} if axis == -3 else case), arrays | turn

    def scores(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        return go(*turned(case, arrays, "qk"))

    def contexts(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        right = np.swapaxes(go(*turned(case, arrays, "v"))["contexts"], axis, -2)
        return {"contexts": right, "concat": merge_heads(right)}

    return {"scores": scores, "contexts": contexts}


entries.enter(
    "attention_across_heads",
    "the heads of one token attending each other",
    "Queries, keys and values are [batch, heads, tokens, width]; swap the middle axes before the product.",
    lambda case: bare(case) and heads(case) and case["heads"] == case["kv_heads"],
    _across(-3),
)
entries.enter(
    "attention_across_batch",
    "the samples of the batch attending each other, token by token",
    "The module takes tokens first (or batch first); swap the axes, or say which one it is (batch_first).",
    lambda case: bare(case) and "B" in case["dims"],
    _across(-4),
)


def scaled_by(factor: float) -> Mistake:
    """One factor on the scaled scores, or on those that the case gives."""

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        if scaled(case):
            return go({**case, "scale_factor": factor * case["scale_factor"]}, arrays)
        return go(case, arrays | {"scaled": factor * arrays["scaled"]})

    return Mistake("scaled_by", "scores", f"scores {factor:.6g} times ours", "Look for the factor.", lambda case: True, {"scores": change})


@mistake(
    "scores",
    "the biases (or additive masks) of the sequences laid out head by head",
    "Sequences come first: repeat each sequence's bias for all its heads (repeat_interleave, not tile).",
    lambda case: biased(case) and case["dims"].get("B", 1) > 1 and heads(case),
)
def bias_tiled_over_heads(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = cells(case, arrays, go)
    added = np.swapaxes(added, 0, 1).reshape(added.shape)
    return made | {"bias": added, "masked": filled(case, scores + added, keep)}


@mistake(
    "scores",
    "a bias that is not multiplied by log2(e), though the scores are, for exp2",
    "With exp2 everything in the exponent is multiplied by log2(e), the bias, too.",
    biased,
)
def bias_without_log2e(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = cells(case, arrays, go)
    added = added * np.log(2)
    return made | {"bias": added, "masked": filled(case, scores + added, keep)}


def _repeated_tokens(case: dict, arrays: Arrays, name: str) -> Arrays:
    x, group = latest(arrays, name), case["heads"] // case["kv_heads"]
    repeated = np.repeat(x, group, axis=-2).reshape(*x.shape[:-3], case["heads"], *x.shape[-2:])
    return {key: repeated for key, array in arrays.items() if array is x}


entries.enter(
    "tokens_repeated",
    "keys and values repeated token by token (each token several times) in place of head by head",
    "Repeat along the axis of the heads, not of the tokens.",
    lambda case: case["kv_heads"] < case["heads"] and scaled(case),
    {
        "scores": lambda case, arrays, go: go(case, arrays | _repeated_tokens(case, arrays, "k")),
        "contexts": lambda case, arrays, go: go(case, arrays | _repeated_tokens(case, arrays, "v")),
    },
)


def _head_order(case: dict) -> np.ndarray:
    """Heads in the order (place in the group, group) where (group, place in the group) is right; pairs where no heads share keys."""
    groups = case["kv_heads"] if case["kv_heads"] < case["heads"] else case["heads"] // 2
    return np.arange(case["heads"]).reshape(groups, -1).T.ravel()


def _regrouped(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    names = ("q",) if case["kv_heads"] < case["heads"] else ("q", "k")
    moved = {key: x[..., _head_order(case), :, :] for name in names for key, x in arrays.items() if x is latest(arrays, name)}
    return go(case, arrays | moved)


entries.enter(
    "heads_in_other_groups",
    "heads laid out as (place in the group, group) where (group, place in the group) is right",
    "Neighbouring heads make a group; swap the two axes that the heads were split into.",
    lambda case: (
        scaled(case) and case["heads"] > 2 and case["heads"] % 2 == 0 and not np.array_equal(_head_order(case), range(case["heads"]))
    ),
    {"scores": _regrouped},
)
