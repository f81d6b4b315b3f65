"""Mistakes with the mask: which keys a query sees, and what takes the place of the others."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import Arrays, Stage
from worked_attention.referee.mistakes.entry import Change, entries
from worked_attention.referee.mistakes.when import (
    heads,
    mask_names,
    masked,
    padded,
)
from worked_attention.stages import masks

mistake, enter_all = entries("masks")


def cells(case: dict, arrays: Arrays, go: Stage) -> tuple[Arrays, np.ndarray, np.ndarray | float, np.ndarray]:
    """What the scores are made of: (arrays of the stage, scores before the bias, bias, keep)."""
    made = go(case, arrays)
    keep = made.get("keep", np.ones(made["masked"].shape, bool))
    return made, made.get("capped", made["scaled"]), made.get("bias", 0.0), keep


def filled(case: dict, scores: np.ndarray, keep: np.ndarray) -> np.ndarray:
    return np.where(keep, scores, masks.fill_value(case["mask"]["fill"], scores.dtype))


def with_keep(case: dict, arrays: Arrays, go: Stage, keep: np.ndarray) -> Arrays:
    """The stage with another boolean mask."""
    made, scores, added, right = cells(case, arrays, go)
    keep = np.broadcast_to(masks.append_keys(keep, right.shape[-1] - keep.shape[-1], True), right.shape)
    return made | {"keep": keep, "masked": filled(case, scores + added, keep)}


@mistake("scores", "the boolean mask inverted", "True means attend in some libraries and blocked in others; turn the mask round.", masked)
def mask_inverted(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    return with_keep(case, arrays, go, ~keep)


@mistake("scores", "no boolean mask", "Block what the mask blocks before the softmax.", masked)
def mask_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return with_keep(case, arrays, go, np.ones_like(go(case, arrays)["keep"]))


@mistake(
    "scores",
    "the mask transposed",
    "Rows of the mask are queries, columns keys.",
    lambda case: masked(case) and case["dims"]["Lq"] == case["dims"]["Lc"],
)
def mask_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    return with_keep(case, arrays, go, np.swapaxes(keep, -1, -2))


def remask(**changes: object) -> Change:
    """The stage with keys of `mask` changed; None takes one away."""

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        mask = {key: value for key, value in (case["mask"] | changes).items() if value is not None}
        made = go({**case, "mask": mask}, arrays)
        if "keep" in case["shapes"] and "keep" not in made:  # the only mask was taken away
            made["keep"] = np.ones(made["masked"].shape, bool)
        return made

    return change


enter_all(
    "causal_ignored",
    "no causal mask",
    "Block the keys behind the query's own.",
    mask_names("causal"),
    {"scores": remask(causal=None, prefix=None)},
)
enter_all(
    "prefix_ignored",
    "the causal mask without its prefix",
    "The first `prefix` keys are seen by every query.",
    mask_names("prefix"),
    {"scores": remask(prefix=None)},
)
enter_all("window_ignored", "no window", "Block the keys outside of the window.", mask_names("window"), {"scores": remask(window=None)})
enter_all(
    "documents_ignored",
    "queries that see other documents",
    "A query sees its own document only.",
    mask_names("documents"),
    {"scores": remask(documents=None)},
)


@mistake("scores", "padding that is seen", "Block the keys that are padding.", padded)
def padding_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    kept = {name: array for name, array in arrays.items() if name not in ("mask_key_keep", "mask_key_block")}
    return remask(key_lengths=None)(case, kept, go)


@mistake(
    "scores",
    "padded tokens blocked as queries, too",
    "Padding closes columns (keys), not rows (queries).",
    lambda case: padded(case) and case["dims"]["Lq"] == case["dims"]["Lc"],
)
def padding_in_rows(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    bare = {key: value for key, value in case["mask"].items() if key in ("fill", "empty_row", "key_lengths")}
    columns = {name: array for name, array in arrays.items() if name not in ("mask_keep", "mask_block")}
    padding = go({**case, "mask": bare}, columns)["keep"][..., : case["dims"]["Lc"]]
    return with_keep(case, arrays, go, keep & np.swapaxes(padding, -1, -2))


@mistake(
    "scores",
    "the masks of the sequences laid out head by head",
    "Sequences come first: repeat each sequence's mask for all its heads (repeat_interleave, not tile).",
    lambda case: masked(case) and case["dims"].get("B", 1) > 1 and heads(case),
)
def mask_tiled_over_heads(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    tiled = np.swapaxes(keep, 0, 1).reshape(keep.shape)
    return with_keep(case, arrays, go, tiled)


@mistake(
    "scores",
    "the causal mask with the other alignment",
    "`top_left` counts from the first key; `bottom_right` lets the last query see the last key, as a cache needs it.",
    lambda case: mask_names("causal")(case) and case["dims"]["Lq"] != case["dims"]["Lc"],
)
def causal_other_alignment(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    other = {"top_left": "bottom_right", "bottom_right": "top_left"}[case["mask"]["causal"]]
    return remask(causal=other)(case, arrays, go)


@mistake(
    "scores",
    "the window with the other alignment",
    "The diagonal of the window is that of the case's `align`.",
    lambda case: mask_names("window")(case) and "causal" not in case["mask"] and case["dims"]["Lq"] != case["dims"]["Lc"],
)
def window_other_alignment(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    other = {"top_left": "bottom_right", "bottom_right": "top_left"}[case["mask"]["window"].get("align", "top_left")]
    return remask(window={**case["mask"]["window"], "align": other})(case, arrays, go)


def _shifted_causal(steps: int) -> Change:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        queries, keys = case["dims"]["Lq"], case["dims"]["Lc"]
        i, j = np.ogrid[:queries, :keys]
        diagonal = masks.diagonal(case["mask"]["causal"], queries, keys) + steps
        others = {key: value for key, value in case["mask"].items() if key not in ("causal", "prefix")}
        if "window" in others:
            others["window"] = {**others["window"], "align": case["mask"]["causal"]}
        rest = masks.combined({**case, "mask": others}, arrays)
        keep = (j <= i + diagonal) | (j < case["mask"].get("prefix", 0))
        return with_keep(case, arrays, go, keep if rest is None else keep & rest[..., :keys])

    return change


enter_all(
    "causal_without_self",
    "a causal mask that blocks the query's own key",
    "A query sees its own key: j <= i.",
    mask_names("causal"),
    {"scores": _shifted_causal(-1)},
)
enter_all(
    "causal_one_ahead",
    "a causal mask that lets the next key through",
    "Keys behind the query's own are blocked: j <= i.",
    mask_names("causal"),
    {"scores": _shifted_causal(1)},
)


def _window(side: str, steps: int) -> tuple[Callable[[dict], bool], dict[str, Change]]:
    def applies(case: dict) -> bool:
        given = case["mask"].get("window", {}).get(side)
        return given is not None and given + steps >= 0

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        window = case["mask"]["window"]
        return remask(window={**window, side: window[side] + steps})(case, arrays, go)

    return applies, {"scores": change}


enter_all(
    "window_one_short",
    "a window of one key fewer to the left",
    "The window's `left` does not count the query's own key.",
    *_window("left", -1),
)
enter_all(
    "window_one_long",
    "a window of one key more to the left",
    "The window's `left` does not count the query's own key.",
    *_window("left", 1),
)


@mistake(
    "scores",
    "scores multiplied by the mask, so that blocked ones are 0",
    "Blocked scores are -inf: their weight, not their score, is 0.",
    masked,
)
def mask_multiplied(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = cells(case, arrays, go)
    return made | {"masked": (scores + added) * keep}


def _fill(name: str, fill: float | str, sentence: str) -> None:
    def applies(case: dict) -> bool:
        return masked(case) and case["mask"]["fill"] != fill

    enter_all(name, sentence, "Fill with -inf, and decide what an empty row becomes.", applies, {"scores": remask(fill=fill)})


_fill("fill_1e4", -1e4, "blocked scores filled with -1e4")
_fill("fill_1e9", -1e9, "blocked scores filled with -1e9")
_fill("fill_finfo_min", "finfo_min", "blocked scores filled with the most negative finite number")


@mistake(
    "scores",
    "-1e9 added to blocked scores",
    "Put -inf in the place of a blocked score, or add -inf.",
    masked,
)
def mask_added_1e9(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = cells(case, arrays, go)
    return made | {"masked": scores + added + np.where(keep, 0.0, -1e9)}
