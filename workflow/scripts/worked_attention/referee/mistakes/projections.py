"""Mistakes in the projections: weights, biases, heads, norm, cache, appended keys."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import Arrays, Stage, after
from worked_attention.referee.mistakes.entry import Change, Entries, without
from worked_attention.referee.mistakes.when import fused, has, has_norm, heads, layout, rotated, same_shape, square
from worked_attention.stages import positions
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import norm, split_heads

entries = Entries("projections")
mistake = entries.mistake


@mistake(
    "projections",
    "X times W where X times the transpose of W is right",
    "Weights are stored [out, in]; multiply by the transpose: x @ w.T.",
    lambda case: square(case, "w_q", "w_k", "w_v"),
)
def weights_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {name: arrays[name].T for name in ("w_q", "w_k", "w_v")})


def _refused(arrays: Arrays, kind: str, regroup: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    """w_q, w_k, w_v (or their biases) stacked into one, regrouped and cut apart again."""
    names = [f"{kind}_{name}" for name in "qkv"]
    if not all(name in arrays for name in names):
        return {}
    return dict(zip(names, regroup(np.concatenate([arrays[name] for name in names])), strict=True))


@mistake(
    "projections",
    "a fused weight stored as blocks [Q|K|V], read per head (q, k, v of head 1, then of head 2)",
    "Cut the fused weight into three blocks first and each block into heads afterwards.",
    fused,
)
def fused_read_per_head(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    def regroup(w: np.ndarray) -> np.ndarray:
        return np.swapaxes(w.reshape(case["heads"], 3, -1, *w.shape[1:]), 0, 1).reshape(3, -1, *w.shape[1:])

    return go(case, arrays | _refused(arrays, "w", regroup) | _refused(arrays, "b", regroup))


@mistake(
    "projections",
    "a fused weight stored per head (q, k, v of head 1, then of head 2), read as blocks [Q|K|V]",
    "Cut the fused weight into heads first and each head into q, k and v afterwards.",
    fused,
)
def fused_read_as_blocks(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    def regroup(w: np.ndarray) -> np.ndarray:
        return np.swapaxes(w.reshape(3, case["heads"], -1, *w.shape[1:]), 0, 1).reshape(3, -1, *w.shape[1:])

    return go(case, arrays | _refused(arrays, "w", regroup) | _refused(arrays, "b", regroup))


def _resplit(case: dict, arrays: Arrays, go: Stage, split: Callable[[np.ndarray, int], np.ndarray]) -> Arrays:
    made = go(case, arrays)
    counts = {"q": case["heads"], "k": case["kv_heads"], "v": case["kv_heads"]}
    whole = {name: made.get(name, arrays.get(name)) for name in counts}
    return go(case, arrays | whole | {f"{name}_heads": split(x, counts[name]) for name, x in whole.items()})


@mistake(
    "projections",
    "heads cut by a reshape to [H, L, d] alone, which mixes tokens and heads",
    "Reshape to [L, H, d] and then swap the first two axes.",
    lambda case: layout(case) and case["dims"]["Lq"] > 1,
)
def view_without_transpose(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _resplit(case, arrays, go, lambda x, n: x.reshape(*x.shape[:-2], n, x.shape[-2], -1))


@mistake(
    "projections",
    "every H-th column given to a head",
    "A head takes d neighbouring columns: reshape to [L, H, d], not to [L, d, H].",
    layout,
)
def heads_of_every_hth_column(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _resplit(case, arrays, go, lambda x, n: np.moveaxis(x.reshape(*x.shape[:-1], -1, n), -1, -3))


for _name, _word in (("q", "queries"), ("k", "keys"), ("v", "values")):
    entries.enter(
        f"missing_b_{_name}", f"no bias added to the {_word}", f"Add b_{_name}.", has(f"b_{_name}"), {"projections": without(f"b_{_name}")}
    )
entries.enter(
    "missing_biases",
    "no bias added to queries, keys and values",
    "Add b_q, b_k and b_v.",
    has("b_q", "b_k", "b_v"),
    {"projections": without("b_q", "b_k", "b_v")},
)


def _swapped(one: str, other: str) -> Change:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        names = [(f"{kind}_{one}", f"{kind}_{other}") for kind in "wb"]
        pairs = {**dict(names), **{b: a for a, b in names}}
        kept = {name: array for name, array in arrays.items() if name not in pairs}
        return go(case, kept | {pairs[name]: array for name, array in arrays.items() if name in pairs})

    return change


for _one, _other in (("q", "k"), ("k", "v"), ("q", "v")):
    entries.enter(
        f"{_one}_and_{_other}_swapped",
        f"w_{_one} and w_{_other} (with their biases) swapped",
        f"Make {_one} from w_{_one} and {_other} from w_{_other}.",
        lambda case, names=(f"w_{_one}", f"w_{_other}"): same_shape(case, *names),
        {"projections": _swapped(_one, _other)},
    )


def _normed(case: dict, arrays: Arrays, go: Stage, change: Callable[[np.ndarray, str], np.ndarray]) -> Arrays:
    """Norms by `change(heads, name)`, and what follows from them."""
    made = go(case, arrays)
    every = arrays | made
    normed = {f"{name}_norm": change(every[f"{name}_heads"], name) for name in "qk"}
    kept = {"q_heads": normed["q_norm"], "k_heads": normed["k_norm"], "v_heads": every["v_heads"]}
    return made | normed | after("norm", case, arrays, kept, go)


@mistake("projections", "queries and keys without their norm", "Divide each query and key by its size.", has_norm)
def missing_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _normed(case, arrays, go, lambda x, name: x)


@mistake("projections", "the norm without its gain", "Multiply by g_q and g_k after the norm.", has("g_q", "g_k"))
def missing_gain(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _normed(case, arrays, go, lambda x, name: norm(x, case["qk_norm"]))


@mistake(
    "projections", "the other norm (length in place of root mean square, or the reverse)", "Use the kind that the case names.", has_norm
)
def other_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    kind = {"rms": "l2", "l2": "rms"}[case["qk_norm"]["kind"]]
    return _normed(case, arrays, go, lambda x, name: norm(x, {**case["qk_norm"], "kind": kind}, arrays.get(f"g_{name}")))


@mistake(
    "projections",
    "the norm taken over all heads together",
    "Split into heads first; every head is divided by its own size.",
    lambda case: has_norm(case) and heads(case),
)
def norm_over_all_heads(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    def change(x: np.ndarray, name: str) -> np.ndarray:
        n = x.shape[-3]
        y = split_heads(norm(merge_heads(x), case["qk_norm"]), n)
        return y * arrays.get(f"g_{name}", np.float64(1))

    return _normed(case, arrays, go, change)


@mistake("projections", "new keys and values in front of the cached ones", "Append what is new behind the cache.", has("past_k"))
def cache_behind(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, past = go(case, arrays), case["dims"]["Lp"]
    turned = {name: np.concatenate([made[name][..., past:, :], made[name][..., :past, :]], axis=-2) for name in ("present_k", "present_v")}
    return made | turned


@mistake(
    "projections",
    "the cached keys rotated once more",
    "Keys are cached as the scores use them, rotated already.",
    lambda case: "past_k" in case["shapes"] and rotated(case) and case["dims"]["Lp"] > 1,
)
def cache_rotated_again(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"past_k": positions.rotary(arrays["past_k"], np.arange(case["dims"]["Lp"]), case["rotary"])})


@mistake("projections", "the appended keys in front of the others", "The layer appends its keys behind all others.", has("k_extended"))
def appended_keys_in_front(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, keys = go(case, arrays), case["dims"]["Lc"]
    return made | {name: np.roll(made[name], -keys, axis=-2) for name in ("k_extended", "v_extended")}


@mistake(
    "projections",
    "the norm taken over the tokens",
    "Each query and key is divided by its own size, along its columns.",
    lambda case: has_norm(case) and case["dims"]["Lq"] > 1,
)
def norm_over_tokens(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    def change(x: np.ndarray, name: str) -> np.ndarray:
        y = norm(np.swapaxes(x, -1, -2), case["qk_norm"])
        return np.swapaxes(y, -1, -2) * arrays.get(f"g_{name}", np.float64(1))

    return _normed(case, arrays, go, change)


def _with_eps(eps: float) -> Change:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        return _normed(case, arrays, go, lambda x, name: norm(x, {**case["qk_norm"], "eps": eps}, arrays.get(f"g_{name}")))

    return change


entries.numbered(
    "norm_with_eps",
    "projections",
    "the norm with eps {}",
    "Use the eps of the case, under the root.",
    lambda case: [eps for eps in (1e-5, 1e-6, 1e-8, 1e-12, 0.0) if eps != case["qk_norm"]["eps"]] if has_norm(case) else [],
    _with_eps,
)


@mistake("projections", "the norm with eps added behind the root", "Add eps under the root: x / sqrt(mean(x^2) + eps).", has_norm)
def norm_eps_outside(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    def change(x: np.ndarray, name: str) -> np.ndarray:
        length = {"rms": np.mean, "l2": np.sum}[case["qk_norm"]["kind"]](x * x, axis=-1, keepdims=True) ** 0.5
        return x / (length + case["qk_norm"]["eps"]) * arrays.get(f"g_{name}", np.float64(1))

    return _normed(case, arrays, go, change)


@mistake(
    "projections",
    "the zero key in front of the appended one",
    "bias_k stands in front of the zero key.",
    lambda case: "bias_k" in case["shapes"] and case["extra_key"] == "zero",
)
def zero_key_before_bias_key(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    order = [*range(case["dims"]["Lc"]), case["dims"]["Lc"] + 1, case["dims"]["Lc"]]
    return made | {name: made[name][..., order, :] for name in ("k_extended", "v_extended")}
