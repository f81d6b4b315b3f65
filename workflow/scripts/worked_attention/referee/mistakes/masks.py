"""Mistakes with the mask: which keys a query sees, and what takes the place of the others."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import Arrays, Stage
from worked_attention.referee.mistakes.entry import Change, Entries
from worked_attention.referee.mistakes.when import heads, mask_names, masked, padded
from worked_attention.stages import masks

entries = Entries("masks")
mistake = entries.mistake


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
    return made | {"masked": filled(case, scores + added, keep)} | ({"keep": keep} if masked(case) else {})


def _right_keep(case: dict, arrays: Arrays, go: Stage) -> np.ndarray:
    """`keep` [..., H, Lq, Lc] as it should be; all True where the case has no mask."""
    made = go(case, arrays)
    return made.get("keep", np.ones(made["masked"].shape, bool))[..., : case["dims"]["Lc"]]


@mistake("scores", "the boolean mask inverted", "True means attend in some libraries and blocked in others; turn the mask round.", masked)
def mask_inverted(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = _right_keep(case, arrays, go)
    return with_keep(case, arrays, go, ~keep)


@mistake("scores", "no boolean mask", "Block what the mask blocks before the softmax.", masked)
def mask_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return with_keep(case, arrays, go, np.ones_like(_right_keep(case, arrays, go)))


@mistake(
    "scores",
    "the mask transposed",
    "Rows of the mask are queries, columns keys.",
    lambda case: masked(case) and case["dims"]["Lq"] == case["dims"]["Lc"],
)
def mask_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = _right_keep(case, arrays, go)
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


entries.enter(
    "causal_ignored",
    "no causal mask",
    "Block the keys behind the query's own.",
    mask_names("causal"),
    {"scores": remask(causal=None)},
)
entries.enter(
    "prefix_ignored",
    "the causal mask without its prefix",
    "The first `prefix` keys are seen by every query.",
    lambda case: mask_names("causal")(case) and case["mask"]["prefix"] > 0,
    {"scores": remask(prefix=0)},
)
entries.enter("window_ignored", "no window", "Block the keys outside of the window.", mask_names("window"), {"scores": remask(window=None)})
entries.enter(
    "documents_ignored",
    "queries that see other documents",
    "A query sees its own document only.",
    mask_names("documents"),
    {"scores": remask(documents=None)},
)


@mistake("scores", "padding that is seen", "Block the keys that are padding.", padded)
def padding_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    kept = {name: array for name, array in arrays.items() if name not in ("mask_key_keep", "mask_key_block")}
    return remask(key_lengths=None, diagonal="padded")(case, kept, go)


def _padding(case: dict, arrays: Arrays, go: Stage) -> tuple[np.ndarray, np.ndarray]:
    """(keep of the padding alone, keep of all other masks), both [..., H, Lq, Lc]."""
    bare = {key: value for key, value in case["mask"].items() if key not in ("causal", "window", "documents")}
    padding = {name: array for name, array in arrays.items() if name not in ("mask_keep", "mask_block")}
    others = {key: value for key, value in case["mask"].items() if key != "key_lengths"} | {"diagonal": "padded"}
    rest = {name: array for name, array in arrays.items() if name not in ("mask_key_keep", "mask_key_block")}
    return _right_keep({**case, "mask": bare}, padding, go), _right_keep({**case, "mask": others}, rest, go)


@mistake(
    "scores",
    "padded tokens blocked as queries, too",
    "Padding closes columns (keys), not rows (queries).",
    lambda case: padded(case) and case["dims"]["Lq"] == case["dims"]["Lc"],
)
def padding_in_rows(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    padding, _ = _padding(case, arrays, go)
    return with_keep(case, arrays, go, _right_keep(case, arrays, go) & np.swapaxes(padding, -1, -2))


@mistake(
    "scores",
    "the masks of the sequences laid out head by head",
    "Sequences come first: repeat each sequence's mask for all its heads (repeat_interleave, not tile).",
    lambda case: masked(case) and case["dims"].get("B", 1) > 1 and heads(case),
)
def mask_tiled_over_heads(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = _right_keep(case, arrays, go)
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
    other = {"top_left": "bottom_right", "bottom_right": "top_left"}[case["mask"]["window"]["align"]]
    return remask(window={**case["mask"]["window"], "align": other})(case, arrays, go)


def _shifted_causal(steps: int) -> Change:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        queries, keys = case["dims"]["Lq"], case["dims"]["Lc"]
        i, j = np.ogrid[:queries, :keys]
        ends = masks.DIAGONAL[case["mask"]["diagonal"]](case["mask"], case["dims"])
        diagonal = masks.ALIGN[case["mask"]["causal"]](queries, ends) + steps
        others = {key: value for key, value in case["mask"].items() if key != "causal"}
        if "window" in others:
            others["window"] = {**others["window"], "align": case["mask"]["causal"]}
        rest = masks.combined({**case, "mask": others}, arrays)
        keep = (j <= i + diagonal) | (j < case["mask"]["prefix"])
        return with_keep(case, arrays, go, keep if rest is None else keep & rest[..., :keys])

    return change


entries.enter(
    "causal_without_self",
    "a causal mask that blocks the query's own key",
    "A query sees its own key: j <= i.",
    mask_names("causal"),
    {"scores": _shifted_causal(-1)},
)
entries.enter(
    "causal_one_ahead",
    "a causal mask that lets the next key through",
    "Keys behind the query's own are blocked: j <= i.",
    mask_names("causal"),
    {"scores": _shifted_causal(1)},
)


def _window(side: str, steps: int) -> tuple[Callable[[dict], bool], dict[str, Change]]:
    def applies(case: dict) -> bool:
        limit = case["mask"].get("window", {}).get(side)
        return limit is not None and limit + steps >= 0

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        window = case["mask"]["window"]
        return remask(window={**window, side: window[side] + steps})(case, arrays, go)

    return applies, {"scores": change}


entries.enter(
    "window_one_short",
    "a window of one key fewer to the left",
    "The window's `left` does not count the query's own key.",
    *_window("left", -1),
)
entries.enter(
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


def _fill(name: str, fill: float | str, sentence: str, neutral: bool = False) -> None:
    def applies(case: dict) -> bool:
        return masked(case) and case["mask"]["fill"] != fill

    remedy = "Fill as the case says, and decide what an empty row becomes."
    entries.enter(name, sentence, remedy, applies, {"scores": remask(fill=fill)}, neutral)


_fill(
    "fill_minus_infinity",
    "-inf",
    "blocked scores filled with -inf (or with a number that is -inf in the format of the scores), where the case has a finite number",
    neutral=True,
)
_fill("fill_1e4", -1e4, "blocked scores filled with -1e4")
_fill("fill_5e4", -5e4, "blocked scores filled with -5e4")
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


def _behind_the_mask(case: dict) -> bool:
    """A boolean mask, and NaN or infinity among what makes the scores, which it may have to hide."""
    norm = case["qk_norm"]
    return masked(case) and (any(not name.startswith("mask_") for name in case["spelled"]) or bool(norm and norm["zero_vector"] == "nan"))


def _added(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = cells(case, arrays, go)
    return made | {"masked": scores + added + np.where(keep, 0.0, -np.inf)}


entries.enter(
    "mask_added",
    "-inf added to blocked scores, so that NaN or infinity of a blocked key comes through",
    "Put -inf in the place of a blocked score, if what is behind a mask may be anything.",
    _behind_the_mask,
    {"scores": _added},
    neutral=True,
)


# Masks that nobody asked for, and masks of another shape


def _no_causal(case: dict) -> bool:
    return "causal" not in case["mask"] and case["dims"]["Lc"] > 1


def _also(keep: Callable[[dict], np.ndarray]) -> Change:
    """The stage with one more boolean mask [Lq, Lc]."""
    return lambda case, arrays, go: with_keep(case, arrays, go, _right_keep(case, arrays, go) & keep(case))


def _causal(align: str) -> Change:
    return _also(lambda case: masks.causal(case["rows"], case["dims"]["Lc"], align))


entries.enter(
    "causal_uncalled",
    "a causal mask, which the case does not have",
    "Every query sees every key that no other mask blocks; look for a causal default.",
    _no_causal,
    {"scores": _causal("top_left")},
)
entries.enter(
    "causal_uncalled_bottom_right",
    "a causal mask, which the case does not have, that lets the last query see the last key",
    "Every query sees every key that no other mask blocks; look for a causal default.",
    lambda case: _no_causal(case) and case["dims"]["Lq"] != case["dims"]["Lc"],
    {"scores": _causal("bottom_right")},
)


def _narrow(case: dict) -> range:
    """Widths of a window that would block something, where the case has none."""
    return range(1, min(case["dims"]["Lc"] - 1, 4) if "window" not in case["mask"] else 1)


_LOOK = "Look for a window that is on by default."
entries.numbered(
    "window_uncalled",
    "scores",
    "a window with left and right {}, which the case does not have",
    _LOOK,
    _narrow,
    lambda width: _also(lambda case: masks.window(case["rows"], case["dims"]["Lc"], _align(case), width, width)),
)
entries.numbered(
    "left_window_uncalled",
    "scores",
    "a window with left {}, which the case does not have",
    _LOOK,
    _narrow,
    lambda width: _also(lambda case: masks.window(case["rows"], case["dims"]["Lc"], _align(case), width, None)),
)


def _align(case: dict) -> str:
    return case["mask"].get("causal") or "top_left"


entries.enter(
    "window_one_short_right",
    "a window of one key fewer to the right",
    "The window's `right` does not count the query's own key.",
    *_window("right", -1),
)
entries.enter(
    "window_one_long_right",
    "a window of one key more to the right",
    "The window's `right` does not count the query's own key.",
    *_window("right", 1),
)


def _sides(case: dict) -> tuple[int | None, int | None]:
    return case["mask"]["window"]["left"], case["mask"]["window"]["right"]


@mistake(
    "scores",
    "the window's left and right swapped",
    "`left` counts keys before the query's own, `right` those behind it.",
    lambda case: mask_names("window")(case) and len(set(_sides(case))) == 2,
)
def window_sides_swapped(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    left, right = _sides(case)
    return remask(window={**case["mask"]["window"], "left": right, "right": left})(case, arrays, go)


def _from_below(case: dict) -> bool:
    return case["mask"].get("causal") == "bottom_right" and case["dims"]["Lq"] != case["dims"]["Lc"]


@mistake(
    "scores",
    "a window counted from the queries of this step alone, beside a causal mask that counts the cached keys",
    "Query i stands behind the cache: its window begins at i + Lc - Lq - left.",
    lambda case: (
        mask_names("window", "causal")(case) and case["mask"]["causal"] == "bottom_right" and case["dims"]["Lq"] != case["dims"]["Lc"]
    ),
)
def window_of_this_step(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = _right_keep({**case, "mask": {k: v for k, v in case["mask"].items() if k != "window"}}, arrays, go)
    left, right = _sides(case)
    return with_keep(case, arrays, go, keep & masks.window(case["rows"], case["dims"]["Lc"], "top_left", left, right))


@mistake(
    "scores",
    "the diagonal counted from the other end: the last key of all, padding included, or each sequence's own last key",
    "Count as `mask.diagonal` says: `own` from each sequence's last key, `padded` from the last of all.",
    lambda case: _from_below(case) and "key_lengths" in case["mask"],
)
def diagonal_of_other_length(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return remask(diagonal={"own": "padded", "padded": "own"}[case["mask"]["diagonal"]])(case, arrays, go)


@mistake(
    "scores",
    "the causal diagonal on the other side, keys j <= i - (Lk - Lq)",
    "`bottom_right` adds Lk - Lq to the query's index.",
    lambda case: _from_below(case),
)
def causal_diagonal_negative(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _shifted_causal(2 * (case["dims"]["Lq"] - case["dims"]["Lc"]))(case, arrays, go)


def _chunks(case: dict) -> list[int]:
    """Lengths of the documents of self-attention where they lie one after the other; none where they do not, or there is one only."""
    documents = case["mask"].get("documents") or {"queries": [], "keys": []}
    if documents["queries"] != documents["keys"] or sorted(documents["keys"]) != documents["keys"]:
        return []
    lengths = [documents["keys"].count(number) for number in dict.fromkeys(documents["keys"])]
    return lengths if len(lengths) > 1 else []


def _redocumented(move: Callable[[list[int]], list[int]]) -> Change:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        moved = move(case["mask"]["documents"]["keys"])
        return remask(documents={"queries": moved, "keys": moved})(case, arrays, go)

    return change


@mistake(
    "scores",
    "a sliding window as wide as a chunk in place of chunks",
    "A query sees its own chunk only; the window begins anew with every chunk.",
    lambda case: len(set(_chunks(case)[:-1])) == 1 and _chunks(case)[0] > 1,
)
def sliding_for_chunks(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = _right_keep({**case, "mask": {key: value for key, value in case["mask"].items() if key != "documents"}}, arrays, go)
    sliding = masks.window(case["rows"], case["dims"]["Lc"], _align(case), _chunks(case)[0] - 1, None)
    return with_keep(case, arrays, go, keep & sliding)


entries.enter(
    "chunks_one_early",
    "chunks (or documents) that begin one token too early",
    "The first token of a chunk sees itself only.",
    lambda case: bool(_chunks(case)),
    {"scores": _redocumented(lambda numbers: [*numbers[1:], numbers[-1]])},
)
entries.enter(
    "chunks_one_late",
    "chunks (or documents) that begin one token too late",
    "The first token of a chunk sees itself only.",
    lambda case: bool(_chunks(case)),
    {"scores": _redocumented(lambda numbers: [numbers[0], *numbers[:-1]])},
)


@mistake(
    "scores",
    "the padding in rows (queries) in place of columns (keys)",
    "Padding closes columns (keys), not rows (queries).",
    lambda case: padded(case) and case["dims"]["Lq"] == case["dims"]["Lc"],
)
def padding_in_rows_only(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    padding, others = _padding(case, arrays, go)
    return with_keep(case, arrays, go, others & np.swapaxes(padding, -1, -2))


@mistake(
    "scores",
    "the padding [B, Lk] of the sequences read as one mask [Lq, Lk]",
    "Give padding the shape [B, 1, 1, Lk].",
    lambda case: padded(case) and case["dims"].get("B", 1) == case["dims"]["Lq"] > 1,
)
def padding_read_as_table(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    padding, others = _padding(case, arrays, go)
    return with_keep(case, arrays, go, others & padding[:, 0, 0, :])


@mistake(
    "scores",
    "no weight on the keys that the layer appends",
    "Every query sees the appended keys (bias_k, zero), whatever the mask says of the others.",
    lambda case: case["dims"]["Lk"] > case["dims"]["Lc"],
)
def appended_keys_blocked(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = _right_keep(case, arrays, go)
    return with_keep(case, arrays, go, masks.append_keys(keep, case["dims"]["Lk"] - case["dims"]["Lc"], False))
