"""The library of known mistakes: each a small change to one stage, with a sentence that names it and its remedy.

A change is a function (case, arrays, go) -> arrays of the stage, computed wrongly. `arrays` are those of the stages before;
`go(case, arrays)` computes the stage, and may itself be mistaken already, so that mistakes can be combined. Most changes alter
the case or a parameter and go on, or go and alter what comes out. A sentence completes "what you sent equals: ...".
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from worked_attention.referee.chain import STAGE, Arrays, Stage, after
from worked_attention.stages import masks, positions
from worked_attention.stages.catalogue import STAGES
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.positions import alibi_slopes
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.projections import latest, norm, split_heads
from worked_attention.stages.scores import bias, repeat_heads, softcap

Change = Callable[[dict, Arrays, Stage], Arrays]


@dataclass(frozen=True)
class Mistake:
    """One known mistake: its name, what it is, what mends it, when it can happen, and the stages that it changes."""

    name: str
    sentence: str
    remedy: str
    applies: Callable[[dict], bool]
    changes: dict[str, Change]

    @property
    def stage(self) -> str:
        """The first stage that it changes."""
        return next(stage for stage in STAGES if stage in self.changes)

    def run(self, stage: str, case: dict, arrays: Arrays, go: Stage | None = None) -> Arrays:
        """The arrays of `stage` as this mistake makes them, from all arrays of the stages before."""
        go = go or STAGE[stage]
        with np.errstate(all="ignore"):
            return self.changes[stage](case, arrays, go) if stage in self.changes else go(case, arrays)


LIBRARY: dict[str, Mistake] = {}


def mistake(stage: str, sentence: str, remedy: str, applies: Callable[[dict], bool] = lambda case: True) -> Callable[[Change], Change]:
    """Put the function that follows into the library, under its own name."""

    def enter(change: Change) -> Change:
        enter_all(change.__name__, sentence, remedy, applies, {stage: change})
        return change

    return enter


def enter_all(name: str, sentence: str, remedy: str, applies: Callable[[dict], bool], changes: dict[str, Change]) -> None:
    """Put a mistake into the library that changes one stage or several."""
    LIBRARY[name] = Mistake(name, sentence, remedy, applies, changes)


def altered(**changes: Callable[[dict], object]) -> Change:
    """Go on with a case whose keys are altered: `key=function(case)` gives the new value."""
    return lambda case, arrays, go: go({**case, **{key: value(case) for key, value in changes.items()}}, arrays)


# What a case has


def has(*names: str) -> Callable[[dict], bool]:
    """Cases that have all these arrays."""
    return lambda case: all(name in case["shapes"] for name in names)


def heads(case: dict) -> bool:
    return case["heads"] > 1


def same_shape(case: dict, *names: str) -> bool:
    """Whether all these arrays are in the case and have one shape."""
    return all(name in case["shapes"] for name in names) and len({tuple(case["shapes"][name]) for name in names}) == 1


def square(case: dict, *names: str) -> bool:
    return all(name in case["shapes"] and len(set(case["shapes"][name])) == 1 for name in names)


def as_long(case: dict) -> bool:
    """As many keys as queries, and more than one."""
    return case["dims"]["Lq"] == case["dims"]["Lk"] > 1


def self_attention(case: dict) -> bool:
    return "w_q" in case["shapes"] and not {"x_kv", "x_k"} & set(case["shapes"])


def scaled(case: dict) -> bool:
    return "qk" in case["shapes"]


def layout(case: dict) -> bool:
    return case["begins_at"] in ("x", "qkv") and (case["heads"] > 1 or case["kv_heads"] > 1)


# Projections


@mistake(
    "projections",
    "X times W where X times the transpose of W is right",
    "Weights are stored [out, in]; multiply by the transpose: x @ w.T.",
    lambda case: square(case, "w_q", "w_k", "w_v"),
)
def weights_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {name: arrays[name].T for name in ("w_q", "w_k", "w_v")})


def _fused(case: dict) -> bool:
    return self_attention(case) and heads(case) and same_shape(case, "w_q", "w_k", "w_v")


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
    _fused,
)
def fused_read_per_head(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    def regroup(w: np.ndarray) -> np.ndarray:
        return np.swapaxes(w.reshape(case["heads"], 3, -1, *w.shape[1:]), 0, 1).reshape(3, -1, *w.shape[1:])

    return go(case, arrays | _refused(arrays, "w", regroup) | _refused(arrays, "b", regroup))


@mistake(
    "projections",
    "a fused weight stored per head (q, k, v of head 1, then of head 2), read as blocks [Q|K|V]",
    "Cut the fused weight into heads first and each head into q, k and v afterwards.",
    _fused,
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


def _without(*names: str) -> Change:
    return lambda case, arrays, go: go(case, {name: array for name, array in arrays.items() if name not in names})


for _name, _word in (("q", "queries"), ("k", "keys"), ("v", "values")):
    enter_all(
        f"missing_b_{_name}", f"no bias added to the {_word}", f"Add b_{_name}.", has(f"b_{_name}"), {"projections": _without(f"b_{_name}")}
    )
enter_all(
    "missing_biases",
    "no bias added to queries, keys and values",
    "Add b_q, b_k and b_v.",
    has("b_q", "b_k", "b_v"),
    {"projections": _without("b_q", "b_k", "b_v")},
)


def _swapped(one: str, other: str) -> Change:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        names = [(f"{kind}_{one}", f"{kind}_{other}") for kind in "wb"]
        pairs = {**dict(names), **{b: a for a, b in names}}
        kept = {name: array for name, array in arrays.items() if name not in pairs}
        return go(case, kept | {pairs[name]: array for name, array in arrays.items() if name in pairs})

    return change


for _one, _other in (("q", "k"), ("k", "v"), ("q", "v")):
    enter_all(
        f"{_one}_and_{_other}_swapped",
        f"w_{_one} and w_{_other} (with their biases) swapped",
        f"Make {_one} from w_{_one} and {_other} from w_{_other}.",
        lambda case, names=(f"w_{_one}", f"w_{_other}"): same_shape(case, *names),
        {"projections": _swapped(_one, _other)},
    )


@mistake("projections", "x without the sinusoids", "Add the sinusoids to x before the projections.", has("x_pos"))
def missing_sinusoids(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    table = {f"{name}_pos": arrays[name] for name in ("x", "x_kv") if f"{name}_pos" in made}
    return (
        go(case, arrays | {name: arrays[name] - (made[f"{name}_pos"] - arrays[name]) for name in ("x", "x_kv") if name in arrays}) | table
    )


@mistake(
    "projections",
    "sinusoids with all sines in front of all cosines",
    "Put sine and cosine of one wavelength side by side: sine in column 2i, cosine in column 2i + 1.",
    lambda case: "x_pos" in case["shapes"] and case["dims"]["d_model"] > 2,
)
def sinusoids_in_halves(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, moved, shown = go(case, arrays), {}, {}
    for name in ("x", "x_kv"):
        if f"{name}_pos" in made:
            table = made[f"{name}_pos"] - arrays[name]
            halves = np.concatenate([table[..., 0::2], table[..., 1::2]], axis=-1)
            shown[f"{name}_pos"] = arrays[name] + halves
            moved[name] = shown[f"{name}_pos"] - table
    return go(case, arrays | moved) | shown


def _rotated(case: dict) -> bool:
    return bool(case["rotary"])


def _rotary(**changes: object) -> Change:
    return altered(rotary=lambda case: {**case["rotary"], **changes})


@mistake(
    "projections",
    "rotation with the other pairing of columns",
    "Pair column i with i + dims/2 for `half`, column 2i with 2i + 1 for `interleaved`, as the weights were made for.",
    lambda case: _rotated(case) and case["rotary"].get("dims", case["dims"]["d_k"]) > 2,
)
def rotary_other_pairing(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    other = {"half": "interleaved", "interleaved": "half"}[case["rotary"]["pairing"]]
    return go({**case, "rotary": {**case["rotary"], "pairing": other}}, arrays)


def _moved(queries: int, keys: int) -> Change:
    return altered(
        query_positions=lambda case: [p + queries for p in case["query_positions"]],
        key_positions=lambda case: [p + keys for p in case["key_positions"]],
    )


enter_all(
    "rotary_from_zero",
    "rotation with positions counted from 0 again",
    "Count positions on from the length of the cache (or from the offset).",
    lambda case: _rotated(case) and case["query_positions"] != list(range(case["dims"]["Lq"])),
    {
        "projections": altered(
            query_positions=lambda case: list(range(case["dims"]["Lq"])), key_positions=lambda case: list(range(case["dims"]["Ln"]))
        )
    },
)
enter_all(
    "rotary_from_one",
    "rotation with positions counted from one too many",
    "The first token stands at position 0.",
    _rotated,
    {"projections": _moved(1, 1)},
)
enter_all(
    "rotary_query_one_ahead",
    "queries rotated one position too far",
    "A query stands where its own key stands.",
    _rotated,
    {"projections": _moved(1, 0)},
)
enter_all(
    "rotary_backwards",
    "rotation by the negative angle",
    "A pair (a, b) becomes (a cos - b sin, a sin + b cos).",
    _rotated,
    {
        "projections": altered(
            query_positions=lambda case: [-p for p in case["query_positions"]],
            key_positions=lambda case: [-p for p in case["key_positions"]],
        )
    },
)
enter_all(
    "rotary_keys_left_out",
    "queries rotated and keys not",
    "Rotate keys as well.",
    _rotated,
    {"projections": altered(key_positions=lambda case: [0] * case["dims"]["Ln"])},
)
enter_all(
    "rotary_left_out",
    "no rotation",
    "Rotate queries and keys by their positions.",
    _rotated,
    {"projections": altered(query_positions=lambda case: [0] * case["dims"]["Lq"], key_positions=lambda case: [0] * case["dims"]["Ln"])},
)
enter_all(
    "rotary_default_base",
    "rotation with base 10000",
    "Use the base of the case.",
    lambda case: _rotated(case) and case["rotary"].get("base", 10000) != 10000,
    {"projections": _rotary(base=10000)},
)
enter_all(
    "rotary_scaling_left_out",
    "rotation without its scaling",
    "Scale the frequencies (or the base) by the rule of the case.",
    lambda case: _rotated(case) and bool(case["rotary"].get("scaling")),
    {"projections": altered(rotary=lambda case: {k: v for k, v in case["rotary"].items() if k != "scaling"})},
)
enter_all(
    "rotary_all_columns",
    "all columns rotated where only the first ones are",
    "Rotate the first rotary.dims columns and let the others pass.",
    lambda case: _rotated(case) and case["rotary"].get("dims", case["dims"]["d_k"]) < case["dims"]["d_k"] and case["dims"]["d_k"] % 2 == 0,
    {"projections": altered(rotary=lambda case: {k: v for k, v in case["rotary"].items() if k != "dims"})},
)


@mistake(
    "projections",
    "values rotated as the keys are",
    "Rotate queries and keys only.",
    lambda case: _rotated(case) and not case["dims"]["d_v"] % 2,
)
def rotary_values(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    values = arrays | made
    turned = positions.rotary(values["v_heads"], np.array(case["key_positions"]), {**case["rotary"], "dims": case["dims"]["d_v"]})
    key = next(n for n in ("k_rot", "k_norm", "k_heads") if n in values)
    kept = {"q_heads": latest(values, "q"), "k_heads": values[key], "v_heads": turned}
    return made | {"v_heads": turned} | after("rot", case, arrays, kept, go)


def _normed(case: dict, arrays: Arrays, go: Stage, change: Callable[[np.ndarray, str], np.ndarray]) -> Arrays:
    """Norms by `change(heads, name)`, and what follows from them."""
    made = go(case, arrays)
    every = arrays | made
    normed = {f"{name}_norm": change(every[f"{name}_heads"], name) for name in "qk"}
    kept = {"q_heads": normed["q_norm"], "k_heads": normed["k_norm"], "v_heads": every["v_heads"]}
    return made | normed | after("norm", case, arrays, kept, go)


def _has_norm(case: dict) -> bool:
    return bool(case["qk_norm"])


@mistake("projections", "queries and keys without their norm", "Divide each query and key by its size.", _has_norm)
def missing_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _normed(case, arrays, go, lambda x, name: x)


@mistake("projections", "the norm without its gain", "Multiply by g_q and g_k after the norm.", has("g_q", "g_k"))
def missing_gain(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _normed(case, arrays, go, lambda x, name: norm(x, case["qk_norm"]["kind"], case["qk_norm"]["eps"]))


@mistake(
    "projections", "the other norm (length in place of root mean square, or the reverse)", "Use the kind that the case names.", _has_norm
)
def other_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    kind = {"rms": "l2", "l2": "rms"}[case["qk_norm"]["kind"]]
    return _normed(case, arrays, go, lambda x, name: norm(x, kind, case["qk_norm"]["eps"], arrays.get(f"g_{name}")))


@mistake(
    "projections",
    "the norm taken over all heads together",
    "Split into heads first; every head is divided by its own size.",
    lambda case: _has_norm(case) and heads(case),
)
def norm_over_all_heads(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    def change(x: np.ndarray, name: str) -> np.ndarray:
        n = x.shape[-3]
        y = split_heads(norm(merge_heads(x), case["qk_norm"]["kind"], case["qk_norm"]["eps"]), n)
        return y * arrays.get(f"g_{name}", np.float64(1))

    return _normed(case, arrays, go, change)


@mistake(
    "projections",
    "the rotation before the norm",
    "Norm queries and keys first and rotate them then.",
    lambda case: _has_norm(case) and _rotated(case),
)
def rotary_before_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    every, options = arrays | made, case["qk_norm"]
    places = {"q": np.array(case["query_positions"]), "k": np.array(case["key_positions"])}
    turned = {name: positions.rotary(every[f"{name}_heads"], places[name], case["rotary"]) for name in "qk"}
    final = {f"{name}_rot": norm(turned[name], options["kind"], options["eps"], arrays.get(f"g_{name}")) for name in "qk"}
    kept = {"q_heads": final["q_rot"], "k_heads": final["k_rot"], "v_heads": every["v_heads"]}
    return made | final | after("rot", case, arrays, kept, go)


@mistake("projections", "new keys and values in front of the cached ones", "Append what is new behind the cache.", has("past_k"))
def cache_behind(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, past = go(case, arrays), case["dims"]["Lp"]
    turned = {name: np.concatenate([made[name][..., past:, :], made[name][..., :past, :]], axis=-2) for name in ("present_k", "present_v")}
    return made | turned


@mistake(
    "projections",
    "the cached keys rotated once more",
    "Keys are cached as the scores use them, rotated already.",
    lambda case: "past_k" in case["shapes"] and _rotated(case) and case["dims"]["Lp"] > 1,
)
def cache_rotated_again(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"past_k": positions.rotary(arrays["past_k"], np.arange(case["dims"]["Lp"]), case["rotary"])})


@mistake("projections", "the appended keys in front of the others", "The layer appends its keys behind all others.", has("k_extended"))
def appended_keys_in_front(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, keys = go(case, arrays), case["dims"]["Lc"]
    return made | {name: np.roll(made[name], -keys, axis=-2) for name in ("k_extended", "v_extended")}


# Scores


def _factor(name: str, sentence: str, remedy: str, factor: Callable[[dict], float]) -> None:
    """A wrong scale; it applies where it differs from the right one."""

    def applies(case: dict) -> bool:
        return scaled(case) and abs(factor(case) - case["scale_factor"]) > 1e-6 * abs(case["scale_factor"])

    enter_all(name, sentence, remedy, applies, {"scores": altered(scale_factor=factor)})


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
    lambda case: (case["heads"] * case["dims"]["d_k"]) ** -0.5 if "d_model" in case["dims"] else case["scale_factor"],
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


enter_all(
    "groups_tiled",
    "key and value heads repeated as 0, 1, 0, 1 where 0, 0, 1, 1 is right",
    "Repeat each key and value head for its block of neighbouring query heads (repeat_interleave, not tile).",
    lambda case: 1 < case["kv_heads"] < case["heads"] and scaled(case),
    {"scores": _tiled, "contexts": _tiled},
)


def _cells(case: dict, arrays: Arrays, go: Stage) -> tuple[Arrays, np.ndarray, np.ndarray | float, np.ndarray]:
    """What the scores are made of: (arrays of the stage, scores before the bias, bias, keep)."""
    made = go(case, arrays)
    keep = made.get("keep", np.ones(made["masked"].shape, bool))
    return made, made.get("capped", made["scaled"]), made.get("bias", 0.0), keep


def _filled(case: dict, scores: np.ndarray, keep: np.ndarray) -> np.ndarray:
    return np.where(keep, scores, masks.fill_value(case["mask"]["fill"], scores.dtype))


def _with_keep(case: dict, arrays: Arrays, go: Stage, keep: np.ndarray) -> Arrays:
    """The stage with another boolean mask."""
    made, scores, added, right = _cells(case, arrays, go)
    keep = np.broadcast_to(masks.append_keys(keep, right.shape[-1] - keep.shape[-1], True), right.shape)
    return made | {"keep": keep, "masked": _filled(case, scores + added, keep)}


def _masked(case: dict) -> bool:
    return "keep" in case["shapes"]


@mistake("scores", "the boolean mask inverted", "True means attend in some libraries and blocked in others; turn the mask round.", _masked)
def mask_inverted(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    return _with_keep(case, arrays, go, ~keep)


@mistake("scores", "no boolean mask", "Block what the mask blocks before the softmax.", _masked)
def mask_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _with_keep(case, arrays, go, np.ones_like(go(case, arrays)["keep"]))


@mistake(
    "scores",
    "the mask transposed",
    "Rows of the mask are queries, columns keys.",
    lambda case: _masked(case) and case["dims"]["Lq"] == case["dims"]["Lc"],
)
def mask_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    return _with_keep(case, arrays, go, np.swapaxes(keep, -1, -2))


def _remask(**changes: object) -> Change:
    """The stage with keys of `mask` changed; None takes one away."""

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        mask = {key: value for key, value in (case["mask"] | changes).items() if value is not None}
        made = go({**case, "mask": mask}, arrays)
        if "keep" in case["shapes"] and "keep" not in made:  # the only mask was taken away
            made["keep"] = np.ones(made["masked"].shape, bool)
        return made

    return change


def _mask(*keys: str) -> Callable[[dict], bool]:
    return lambda case: all(key in case["mask"] for key in keys)


enter_all(
    "causal_ignored",
    "no causal mask",
    "Block the keys behind the query's own.",
    _mask("causal"),
    {"scores": _remask(causal=None, prefix=None)},
)
enter_all(
    "prefix_ignored",
    "the causal mask without its prefix",
    "The first `prefix` keys are seen by every query.",
    _mask("prefix"),
    {"scores": _remask(prefix=None)},
)
enter_all("window_ignored", "no window", "Block the keys outside of the window.", _mask("window"), {"scores": _remask(window=None)})
enter_all(
    "documents_ignored",
    "queries that see other documents",
    "A query sees its own document only.",
    _mask("documents"),
    {"scores": _remask(documents=None)},
)


def _padded(case: dict) -> bool:
    return "key_lengths" in case["mask"] or bool({"mask_key_keep", "mask_key_block"} & set(case["shapes"]))


@mistake("scores", "padding that is seen", "Block the keys that are padding.", _padded)
def padding_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    kept = {name: array for name, array in arrays.items() if name not in ("mask_key_keep", "mask_key_block")}
    return _remask(key_lengths=None)(case, kept, go)


@mistake(
    "scores",
    "padded tokens blocked as queries, too",
    "Padding closes columns (keys), not rows (queries).",
    lambda case: _padded(case) and case["dims"]["Lq"] == case["dims"]["Lc"],
)
def padding_in_rows(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    bare = {key: value for key, value in case["mask"].items() if key in ("fill", "empty_row", "key_lengths")}
    columns = {name: array for name, array in arrays.items() if name not in ("mask_keep", "mask_block")}
    padding = go({**case, "mask": bare}, columns)["keep"][..., : case["dims"]["Lc"]]
    return _with_keep(case, arrays, go, keep & np.swapaxes(padding, -1, -2))


@mistake(
    "scores",
    "the masks of the sequences laid out head by head",
    "Sequences come first: repeat each sequence's mask for all its heads (repeat_interleave, not tile).",
    lambda case: _masked(case) and case["dims"].get("B", 1) > 1 and heads(case),
)
def mask_tiled_over_heads(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    keep = go(case, arrays)["keep"][..., : case["dims"]["Lc"]]
    tiled = np.swapaxes(keep, 0, 1).reshape(keep.shape)
    return _with_keep(case, arrays, go, tiled)


@mistake(
    "scores",
    "the causal mask with the other alignment",
    "`top_left` counts from the first key; `bottom_right` lets the last query see the last key, as a cache needs it.",
    lambda case: _mask("causal")(case) and case["dims"]["Lq"] != case["dims"]["Lc"],
)
def causal_other_alignment(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    other = {"top_left": "bottom_right", "bottom_right": "top_left"}[case["mask"]["causal"]]
    return _remask(causal=other)(case, arrays, go)


@mistake(
    "scores",
    "the window with the other alignment",
    "The diagonal of the window is that of the case's `align`.",
    lambda case: _mask("window")(case) and "causal" not in case["mask"] and case["dims"]["Lq"] != case["dims"]["Lc"],
)
def window_other_alignment(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    other = {"top_left": "bottom_right", "bottom_right": "top_left"}[case["mask"]["window"].get("align", "top_left")]
    return _remask(window={**case["mask"]["window"], "align": other})(case, arrays, go)


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
        return _with_keep(case, arrays, go, keep if rest is None else keep & rest[..., :keys])

    return change


enter_all(
    "causal_without_self",
    "a causal mask that blocks the query's own key",
    "A query sees its own key: j <= i.",
    _mask("causal"),
    {"scores": _shifted_causal(-1)},
)
enter_all(
    "causal_one_ahead",
    "a causal mask that lets the next key through",
    "Keys behind the query's own are blocked: j <= i.",
    _mask("causal"),
    {"scores": _shifted_causal(1)},
)


def _window(side: str, steps: int) -> tuple[Callable[[dict], bool], dict[str, Change]]:
    def applies(case: dict) -> bool:
        given = case["mask"].get("window", {}).get(side)
        return given is not None and given + steps >= 0

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        window = case["mask"]["window"]
        return _remask(window={**window, side: window[side] + steps})(case, arrays, go)

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
    _masked,
)
def mask_multiplied(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = _cells(case, arrays, go)
    return made | {"masked": (scores + added) * keep}


def _fill(name: str, fill: float | str, sentence: str) -> None:
    def applies(case: dict) -> bool:
        return _masked(case) and case["mask"]["fill"] != fill

    enter_all(name, sentence, "Fill with -inf, and decide what an empty row becomes.", applies, {"scores": _remask(fill=fill)})


_fill("fill_1e4", -1e4, "blocked scores filled with -1e4")
_fill("fill_1e9", -1e9, "blocked scores filled with -1e9")
_fill("fill_finfo_min", "finfo_min", "blocked scores filled with the most negative finite number")


@mistake(
    "scores",
    "-1e9 added to blocked scores",
    "Put -inf in the place of a blocked score, or add -inf.",
    _masked,
)
def mask_added_1e9(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = _cells(case, arrays, go)
    return made | {"masked": scores + added + np.where(keep, 0.0, -1e9)}


def _biased(case: dict) -> bool:
    return "bias" in case["shapes"]


@mistake(
    "scores",
    "the bias scaled, too",
    "Scale q k^T first and add the bias then.",
    lambda case: _biased(case) and scaled(case) and case["scale_factor"] != 1,
)
def bias_scaled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = _cells(case, arrays, go)
    return made | {"masked": _filled(case, scores + added * case["scale_factor"], keep)}


@mistake("scores", "no bias added", "Add the bias (table, ALiBi, T5, additive mask) to the scores.", _biased)
def bias_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, _, keep = _cells(case, arrays, go)
    return made | {"bias": np.zeros_like(made["bias"]), "masked": _filled(case, scores, keep)}


@mistake(
    "scores",
    "the additive mask read as boolean, where a number that is not 0 blocks",
    "A float mask is added to the scores.",
    lambda case: bool({"mask_add", "mask_key_add"} & set(case["shapes"])),
)
def float_mask_as_boolean(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    names = [name for name in ("mask_add", "mask_key_add") if name in arrays]
    return go(case, arrays | {name: np.where(arrays[name] != 0, -np.inf, 0.0) for name in names})


def _capped(case: dict) -> bool:
    return bool(case["softcap"])


@mistake("scores", "no softcap", "Scores become softcap * tanh(scores / softcap).", _capped)
def softcap_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, _, added, keep = _cells(case, arrays, go)
    return made | {"capped": made["scaled"], "masked": _filled(case, made["scaled"] + added, keep)}


@mistake(
    "scores",
    "the softcap after bias and mask, so that blocked scores become -softcap",
    "Cap the scaled scores first; add the bias and mask then.",
    lambda case: _capped(case) and (_biased(case) or _masked(case)),
)
def softcap_after_mask(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, _, added, keep = _cells(case, arrays, go)
    return made | {"masked": softcap(_filled(case, made["scaled"] + added, keep), case["softcap"])}


@mistake(
    "scores",
    "tanh(scores / softcap) without the softcap in front",
    "Multiply by the softcap again.",
    lambda case: _capped(case) and case["softcap"] != 1,
)
def softcap_not_multiplied(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, scores, added, keep = _cells(case, arrays, go)
    capped = scores / case["softcap"]
    return made | {"capped": capped, "masked": _filled(case, capped + added, keep)}


@mistake(
    "scores",
    "the softcap before the scale",
    "Scale first and cap then.",
    lambda case: _capped(case) and scaled(case) and case["scale_factor"] != 1,
)
def softcap_before_scale(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made, _, added, keep = _cells(case, arrays, go)
    capped = softcap(made["qk"], case["softcap"]) * case["scale_factor"]
    return made | {"capped": capped, "masked": _filled(case, capped + added, keep)}


def _rebiased(case: dict, arrays: Arrays, go: Stage, part: Callable[[dict, Arrays], np.ndarray | None], wrong: Callable) -> Arrays:
    """The stage with one additive term `part` replaced by `wrong(term)`."""
    made, scores, added, keep = _cells(case, arrays, go)
    term = part(case, arrays)
    added = added - term + wrong(term)
    return made | {"bias": np.broadcast_to(added, scores.shape), "masked": _filled(case, scores + added, keep)}


def _alibi_term(case: dict, arrays: Arrays) -> np.ndarray:
    none = {name: array for name, array in arrays.items() if name not in ("bias_table", "mask_add", "mask_key_add", "t5_table")}
    return bias(case, none)


def _alibi(case: dict) -> bool:
    return bool(case["alibi"])


def _alibi_change(wrong: Callable[[dict, np.ndarray], np.ndarray]) -> Change:
    return lambda case, arrays, go: _rebiased(case, arrays, go, _alibi_term, lambda term: wrong(case, term))


def _other_slopes(case: dict, term: np.ndarray) -> np.ndarray:
    right, other = case["alibi"]["slopes"], {"interleaved": "geometric", "geometric": "interleaved"}
    ratio = alibi_slopes(case["heads"], other[right]) / alibi_slopes(case["heads"], right)
    return term * ratio[:, None, None]


enter_all(
    "alibi_other_slopes",
    "ALiBi with the other rule for head counts that are no power of two",
    "The authors take the slopes of the power of two below and fill up; the plain series is 2^(-8h/H).",
    lambda case: _alibi(case) and case["heads"] & (case["heads"] - 1) > 0,
    {"scores": _alibi_change(_other_slopes)},
)
enter_all(
    "alibi_sign",
    "ALiBi with the opposite sign",
    "Far keys are punished, not favoured: -slope * distance.",
    _alibi,
    {"scores": _alibi_change(lambda case, term: -term)},
)
enter_all(
    "alibi_exponent",
    "ALiBi slopes that begin at 1 (the exponent off by one)",
    "The first slope is 2^(-8/H).",
    _alibi,
    {"scores": _alibi_change(lambda case, term: term * 2.0 ** (8 / case["heads"]))},
)
enter_all(
    "alibi_other_form",
    "ALiBi by (j - i) in place of -|i - j|, or the reverse",
    "The forms agree under a causal mask only.",
    _alibi,
    {"scores": altered(alibi=lambda case: {**case["alibi"], "form": "relative" if case["alibi"]["form"] == "distance" else "distance"})},
)


def _t5(case: dict) -> bool:
    return bool(case["t5"])


enter_all(
    "t5_mirrored",
    "T5's bias with i - j in place of j - i",
    "The relative position is that of the key minus that of the query.",
    _t5,
    {
        "scores": altered(
            query_positions=lambda case: [-p for p in case["query_positions"]],
            context_positions=lambda case: [-p for p in case["context_positions"]],
        )
    },
)
enter_all(
    "t5_other_direction",
    "T5's buckets for the other direction",
    "`both` gives half of the buckets to keys on the right, `left` none.",
    lambda case: _t5(case) and case["dims"]["buckets"] % 2 == 0,
    {"scores": altered(t5=lambda case: {**case["t5"], "direction": {"both": "left", "left": "both"}[case["t5"]["direction"]]})},
)
enter_all(
    "offset_forgotten",
    "ALiBi or T5 with queries counted from 0 again",
    "Queries stand behind the keys in the cache.",
    lambda case: (_alibi(case) or _t5(case)) and case["query_positions"] != list(range(case["dims"]["Lq"])),
    {"scores": altered(query_positions=lambda case: list(range(case["dims"]["Lq"])))},
)


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


def _bare(case: dict) -> bool:
    others = {"keep", "bias", "sinks", "dropped"} & set(case["shapes"])
    return scaled(case) and as_long(case) and bool(case["arrays"]["contexts"]) and not others


enter_all(
    "attention_across_heads",
    "the heads of one token attending each other",
    "Queries, keys and values are [batch, heads, tokens, width]; swap the middle axes before the product.",
    lambda case: _bare(case) and heads(case) and case["heads"] == case["kv_heads"],
    _across(-3),
)
enter_all(
    "attention_across_batch",
    "the samples of the batch attending each other, token by token",
    "The module takes tokens first (or batch first); swap the axes, or say which one it is (batch_first).",
    lambda case: _bare(case) and "B" in case["dims"],
    _across(-4),
)


# Weights


def _plain(case: dict) -> bool:
    return case["softmax"] == "plain" and "sinks" not in case["shapes"]


def _sinks(case: dict) -> bool:
    return case["softmax"] == "plus_one" or "sinks" in case["shapes"]


def _soft(case: dict) -> bool:
    return case["softmax"] != "hardmax"


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


enter_all(
    "softmax_over_queries",
    "the softmax over the queries",
    "Every row sums to 1: softmax along the last axis.",
    _plain,
    {"weights": _along(-2)},
)
enter_all(
    "softmax_over_heads",
    "the softmax over the heads",
    "Every row sums to 1: softmax along the last axis.",
    lambda case: _plain(case) and heads(case),
    {"weights": _along(-3)},
)
enter_all(
    "softmax_over_everything",
    "one softmax over all queries and keys of a head",
    "Every row sums to 1 by itself: softmax along the last axis.",
    _plain,
    {"weights": _along((-2, -1))},
)


def _empty(policy: str, sentence: str) -> None:
    def applies(case: dict) -> bool:
        return _plain(case) and case["mask"]["empty_row"] != policy and (_masked(case) or _biased(case))

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        return go({**case, "mask": {**case["mask"], "empty_row": policy}}, arrays)

    enter_all(f"empty_row_{policy}", sentence, "Follow the case's `empty_row`; implementations differ here.", applies, {"weights": change})


_empty("nan", "NaN where a query sees no key")
_empty("zero", "weights of 0 where a query sees no key")
_empty("uniform", "equal weights where a query sees no key")


def _exponentials(name: str, sentence: str, remedy: str, largest: Callable[[np.ndarray], np.ndarray | float], base: float = np.e) -> None:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        scores = arrays["masked"]
        e = np.power(base, scores - largest(scores))
        return _reweighted(case, arrays, go, e / e.sum(axis=-1, keepdims=True))

    enter_all(name, sentence, remedy, _plain, {"weights": change})


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
    lambda case: _plain(case) and _masked(case),
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
    lambda case: _soft(case) and (_masked(case) or _biased(case)),
)
def unmasked_scores(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = STAGE["scores"](case, arrays)
    return go(case, arrays | {"masked": made.get("capped", made["scaled"])})


@mistake(
    "weights", "log of the softmax", "The values are weighted with the softmax itself.", lambda case: _soft(case) and not _masked(case)
)
def log_softmax(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return _reweighted(case, arrays, go, np.log(go(case, arrays)["weights"]))


@mistake("weights", "the softmax taken twice", "Take the softmax once.", _soft)
def softmax_twice(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, arrays | {"masked": go(case, arrays)["weights"]})


@mistake("weights", "exponentials not divided by their sum", "Divide each row by its sum.", _plain)
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


@mistake("weights", "the sink (or the one) left out of the denominator", "Add exp(sink) to the denominator of each row.", _sinks)
def sink_ignored(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "plain"}, {name: array for name, array in arrays.items() if name != "sinks"})


@mistake("weights", "the sink in the numerator, too", "The sink joins the denominator only; it has no value.", _sinks)
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
    _sinks,
)
def sink_not_shifted(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    scores, sink = _sink(case, arrays)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return _reweighted(case, arrays, go, e / (e.sum(axis=-1, keepdims=True) + np.exp(sink)))


@mistake(
    "weights",
    "one added to the denominator of the plain softmax",
    "The plain softmax has nothing but the exponentials in its denominator.",
    _plain,
)
def plus_one_uncalled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softmax": "plus_one"}, arrays)


def _rounded(name: str, dtype: np.dtype, word: str) -> None:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        return _reweighted(case, arrays, go, go(case, arrays)["weights"].astype(dtype).astype(np.float64))

    def applies(case: dict) -> bool:
        return _soft(case) and np.dtype(case["dtype"]).itemsize > 2

    enter_all(name, f"weights rounded to {word}", "Keep the weights in the arithmetic of the case.", applies, {"weights": change})


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


def _dropping(name: str, sentence: str, remedy: str, wrong: Callable[[np.ndarray, np.ndarray, float], np.ndarray]) -> None:
    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        made = go(case, arrays)
        return made | {"dropped": wrong(made["weights"], arrays["dropout_keep"], case["dropout"])}

    enter_all(name, sentence, remedy, has("dropped"), {"weights": change})


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


# Contexts


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


# Outputs


@mistake(
    "outputs",
    "no output projection",
    "Multiply by the transpose of w_o and add b_o.",
    lambda case: "w_o" in case["shapes"] and case["shapes"]["concat"] == case["shapes"]["output"],
)
def missing_w_o(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, {name: array for name, array in arrays.items() if name not in ("w_o", "b_o")})


enter_all("missing_b_o", "no bias added to the output", "Add b_o.", has("b_o"), {"outputs": _without("b_o")})


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


# Backward


def _backward(*names: str) -> Callable[[dict], bool]:
    return lambda case: bool(case["backward"]) and has(*names)(case)


@mistake(
    "backward",
    "d_qk without the scale",
    "What multiplies the scores multiplies their gradient.",
    lambda case: _backward("d_qk")(case) and case["scale_factor"] != 1,
)
def gradient_not_scaled(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "scale_factor": 1.0}, arrays)


@mistake("backward", "no softcap in the gradient", "Multiply by 1 - tanh^2.", lambda case: _backward("d_qk")(case) and _capped(case))
def gradient_without_softcap(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "softcap": None}, arrays)


@mistake(
    "backward",
    "gradients of queries and keys not turned back",
    "Rotate the gradients by the negative angles.",
    lambda case: _backward("d_q_heads")(case) and _rotated(case),
)
def gradient_not_turned_back(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "rotary": None}, arrays)


@mistake(
    "backward",
    "no norm in the gradient",
    "The gradient goes through the norm of queries and keys.",
    lambda case: _backward("d_q_heads")(case) and _has_norm(case),
)
def gradient_without_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go({**case, "qk_norm": None}, arrays)


@mistake(
    "backward",
    "P dP in place of P (dP - sum P dP)",
    "Subtract the row sum of P dP: the softmax couples the scores of a row.",
    _backward("d_masked"),
)
def softmax_gradient_without_sum(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    d_masked = np.where(arrays["masked"] == -np.inf, 0, arrays["weights"] * made["d_weights"])
    d_scaled = np.where(arrays["keep"], d_masked, 0) if "keep" in arrays else d_masked
    if case["softcap"]:
        d_scaled = d_scaled * (1 - (arrays["capped"] / case["softcap"]) ** 2)
    return made | {"d_masked": d_masked, "d_scaled": d_scaled, "d_qk": d_scaled * case["scale_factor"]}


@mistake("backward", "gradients of the biases averaged over the rows", "Sum over all rows; the loss is a sum.", _backward("d_b_o"))
def bias_gradient_averaged(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    rows = {"d_b_o": "output", "d_b_q": "q", "d_b_k": "k", "d_b_v": "v"}
    return made | {name: made[name] / np.prod(case["shapes"][of][:-1]) for name, of in rows.items() if name in made}


@mistake(
    "backward",
    "gradients of the weights transposed",
    "Weights are stored [out, in], and so are their gradients: dY^T X.",
    lambda case: _backward("d_w_o")(case),
)
def weight_gradient_transposed(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    return made | {name: made[name].T for name in ("d_w_q", "d_w_k", "d_w_v", "d_w_o") if name in made}


@mistake(
    "backward",
    "dropped weights in the gradient as if nothing was dropped",
    "A dropped weight gets no gradient; a kept one is divided by 1 - p.",
    lambda case: _backward("dropped")(case),
)
def gradient_without_dropout(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    return go(case, {name: array for name, array in arrays.items() if name != "dropout_keep"})
