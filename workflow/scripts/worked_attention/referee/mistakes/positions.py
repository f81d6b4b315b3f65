"""Mistakes with positions: sinusoids and rotation in the projections, ALiBi and T5 in the scores."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import Arrays, Stage, after
from worked_attention.referee.mistakes.entry import Change, Entries, altered
from worked_attention.referee.mistakes.masks import cells, filled
from worked_attention.referee.mistakes.when import has, has_alibi, has_norm, has_t5, rotated
from worked_attention.stages import positions
from worked_attention.stages.positions import alibi_slopes
from worked_attention.stages.projections import latest, norm, unrotated
from worked_attention.stages.scores import bias

entries = Entries("positions")
mistake = entries.mistake


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


def _rotary(**changes: object) -> Change:
    return altered(rotary=lambda case: {**case["rotary"], **changes})


@mistake(
    "projections",
    "rotation with the other pairing of columns",
    "Pair column i with i + dims/2 for `half`, column 2i with 2i + 1 for `interleaved`, as the weights were made for.",
    lambda case: rotated(case) and case["rotary"]["dims"] > 2,
)
def rotary_other_pairing(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    other = {"half": "interleaved", "interleaved": "half"}[case["rotary"]["pairing"]]
    return go({**case, "rotary": {**case["rotary"], "pairing": other}}, arrays)


def _moved(queries: int, keys: int) -> Change:
    return altered(
        query_positions=lambda case: [p + queries for p in case["query_positions"]],
        key_positions=lambda case: [p + keys for p in case["key_positions"]],
    )


def _in_steps(positions: list[int]) -> bool:
    """Whether tokens stand one after the other."""
    return positions == _counted_on(positions)


def _counted_on(positions: list[int]) -> list[int]:
    return list(range(positions[0], positions[0] + len(positions)))


def _listed(case: dict) -> bool:
    """Positions that are not one after the other, as where they restart with a document, or several tokens stand at one place."""
    return not (_in_steps(case["query_positions"]) and _in_steps(case["key_positions"]))


entries.enter(
    "rotary_from_zero",
    "rotation with positions counted from 0 again",
    "Count positions on from the length of the cache (or from the offset).",
    lambda case: rotated(case) and case["query_positions"][0] > 0 and _in_steps(case["query_positions"]),
    {
        "projections": altered(
            query_positions=lambda case: list(range(case["dims"]["Lq"])), key_positions=lambda case: list(range(case["dims"]["Ln"]))
        )
    },
)
entries.enter(
    "rotary_from_one",
    "rotation with positions counted from one too many",
    "The first token stands at position 0.",
    rotated,
    {"projections": _moved(1, 1)},
)
entries.enter(
    "rotary_query_one_ahead",
    "queries rotated one position too far",
    "A query stands where its own key stands.",
    rotated,
    {"projections": _moved(1, 0)},
)
entries.enter(
    "rotary_backwards",
    "rotation by the negative angle",
    "A pair (a, b) becomes (a cos - b sin, a sin + b cos).",
    rotated,
    {
        "projections": altered(
            query_positions=lambda case: [-p for p in case["query_positions"]],
            key_positions=lambda case: [-p for p in case["key_positions"]],
        )
    },
)
entries.enter(
    "rotary_keys_left_out",
    "queries rotated and keys not",
    "Rotate keys as well.",
    rotated,
    {"projections": altered(key_positions=lambda case: [0] * case["dims"]["Ln"])},
)
entries.enter(
    "rotary_left_out",
    "no rotation",
    "Rotate queries and keys by their positions.",
    rotated,
    {"projections": altered(query_positions=lambda case: [0] * case["dims"]["Lq"], key_positions=lambda case: [0] * case["dims"]["Ln"])},
)
entries.enter(
    "rotary_default_base",
    "rotation with base 10000",
    "Use the base of the case.",
    lambda case: rotated(case) and case["rotary"]["base"] != 10000,
    {"projections": _rotary(base=10000)},
)
entries.enter(
    "rotary_scaling_left_out",
    "rotation without its scaling",
    "Scale the frequencies (or the base) by the rule of the case.",
    lambda case: rotated(case) and bool(case["rotary"]["scaling"]),
    {"projections": _rotary(scaling=None)},
)
entries.enter(
    "rotary_all_columns",
    "all columns rotated where only the first ones are",
    "Rotate the first rotary.dims columns and let the others pass.",
    lambda case: rotated(case) and case["rotary"]["dims"] < case["dims"]["d_k"] and case["dims"]["d_k"] % 2 == 0,
    {"projections": altered(rotary=lambda case: {**case["rotary"], "dims": case["dims"]["d_k"]})},
)


@mistake(
    "projections",
    "values rotated as the keys are",
    "Rotate queries and keys only.",
    lambda case: rotated(case) and not case["dims"]["d_v"] % 2,
)
def rotary_values(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    values = arrays | made
    turned = positions.rotary(values["v_heads"], np.array(case["key_positions"]), {**case["rotary"], "dims": case["dims"]["d_v"]})
    key = next(n for n in ("k_rot", "k_norm", "k_heads") if n in values)
    kept = {"q_heads": latest(values, "q"), "k_heads": values[key], "v_heads": turned}
    return made | {"v_heads": turned} | after("rot", case, arrays, kept, go)


@mistake(
    "projections",
    "the rotation before the norm",
    "Norm queries and keys first and rotate them then.",
    lambda case: has_norm(case) and rotated(case),
)
def rotary_before_norm(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    made = go(case, arrays)
    every, options = arrays | made, case["qk_norm"]
    places = {"q": np.array(case["query_positions"]), "k": np.array(case["key_positions"])}
    turned = {name: positions.rotary(every[f"{name}_heads"], places[name], case["rotary"]) for name in "qk"}
    final = {f"{name}_rot": norm(turned[name], options, arrays.get(f"g_{name}")) for name in "qk"}
    kept = {"q_heads": final["q_rot"], "k_heads": final["k_rot"], "v_heads": every["v_heads"]}
    return made | final | after("rot", case, arrays, kept, go)


def _rebiased(case: dict, arrays: Arrays, go: Stage, part: Callable[[dict, Arrays], np.ndarray | None], wrong: Callable) -> Arrays:
    """The stage with one additive term `part` replaced by `wrong(term)`."""
    made, scores, added, keep = cells(case, arrays, go)
    term = part(case, arrays)
    added = added - term + wrong(term)
    return made | {"bias": np.broadcast_to(added, scores.shape), "masked": filled(case, scores + added, keep)}


def _alibi_term(case: dict, arrays: Arrays) -> np.ndarray:
    none = {name: array for name, array in arrays.items() if name not in ("bias_table", "mask_add", "mask_key_add", "t5_table")}
    return bias(case, none)


def _alibi_change(wrong: Callable[[dict, np.ndarray], np.ndarray]) -> Change:
    return lambda case, arrays, go: _rebiased(case, arrays, go, _alibi_term, lambda term: wrong(case, term))


def _at_the_end(case: dict) -> list[int]:
    """Positions of the queries if the last one stood at the last key."""
    return [case["context_positions"][-1] - i for i in reversed(range(case["dims"]["Lq"]))]


def _other_slopes(case: dict, term: np.ndarray) -> np.ndarray:
    right, other = case["alibi"]["slopes"], {"interleaved": "geometric", "geometric": "interleaved"}
    ratio = alibi_slopes(case["heads"], other[right]) / alibi_slopes(case["heads"], right)
    return term * ratio[:, None, None]


entries.enter(
    "alibi_other_slopes",
    "ALiBi with the other rule for head counts that are no power of two",
    "The authors take the slopes of the power of two below and fill up; the plain series is 2^(-8h/H).",
    lambda case: has_alibi(case) and case["heads"] & (case["heads"] - 1) > 0,
    {"scores": _alibi_change(_other_slopes)},
)
entries.enter(
    "alibi_sign",
    "ALiBi with the opposite sign",
    "Far keys are punished, not favoured: -slope * distance.",
    has_alibi,
    {"scores": _alibi_change(lambda case, term: -term)},
)
entries.enter(
    "alibi_exponent",
    "ALiBi slopes that begin at 1 (the exponent off by one)",
    "The first slope is 2^(-8/H).",
    has_alibi,
    {"scores": _alibi_change(lambda case, term: term * 2.0 ** (8 / case["heads"]))},
)
entries.enter(
    "alibi_other_form",
    "ALiBi by (j - i) in place of -|i - j|, or the reverse",
    "The forms agree under a causal mask only.",
    has_alibi,
    {"scores": altered(alibi=lambda case: {**case["alibi"], "form": "relative" if case["alibi"]["form"] == "distance" else "distance"})},
)
entries.enter(
    "alibi_to_the_end",
    "ALiBi with the last query at the last key",
    "Count queries from where they stand: only behind a cache is the last one at the last key.",
    lambda case: has_alibi(case) and case["query_positions"] != _at_the_end(case),
    {"scores": altered(query_positions=_at_the_end)},
)


entries.enter(
    "t5_mirrored",
    "T5's bias with i - j in place of j - i",
    "The relative position is that of the key minus that of the query.",
    has_t5,
    {
        "scores": altered(
            query_positions=lambda case: [-p for p in case["query_positions"]],
            context_positions=lambda case: [-p for p in case["context_positions"]],
        )
    },
)
entries.enter(
    "t5_other_direction",
    "T5's buckets for the other direction",
    "`both` gives half of the buckets to keys on the right, `left` none.",
    lambda case: has_t5(case) and case["dims"]["buckets"] % 2 == 0,
    {"scores": altered(t5=lambda case: {**case["t5"], "direction": {"both": "left", "left": "both"}[case["t5"]["direction"]]})},
)
entries.enter(
    "offset_forgotten",
    "ALiBi or T5 with queries counted from 0 again",
    "Queries stand behind the keys in the cache.",
    lambda case: (has_alibi(case) or has_t5(case)) and case["query_positions"][0] > 0 and _in_steps(case["query_positions"]),
    {"scores": altered(query_positions=lambda case: list(range(case["dims"]["Lq"])))},
)


# Positions and frequencies that the case does not name

_COUNTED_ON = altered(
    query_positions=lambda case: _counted_on(case["query_positions"]),
    key_positions=lambda case: _counted_on(case["key_positions"]),
    context_positions=lambda case: [*range(case["dims"]["Lp"]), *_counted_on(case["key_positions"])],
)
entries.enter(
    "positions_counted_on",
    "rotation (or sinusoids) with positions counted on token by token, where the case lists others",
    "Use the positions that are given: they may restart with each document, or several tokens may stand at one.",
    lambda case: (rotated(case) or "x_pos" in case["shapes"]) and _listed(case),
    {"projections": _COUNTED_ON},
)
entries.enter(
    "distances_counted_on",
    "ALiBi or T5 with positions counted on token by token, where the case lists others",
    "Use the positions that are given: they may restart with each document, or several tokens may stand at one.",
    lambda case: (has_alibi(case) or has_t5(case)) and _listed(case),
    {"scores": _COUNTED_ON},
)


def _times(factor: float) -> Change:
    return altered(
        query_positions=lambda case: [factor * p for p in case["query_positions"]],
        key_positions=lambda case: [factor * p for p in case["key_positions"]],
    )


entries.numbered(
    "rotary_positions_times",
    "projections",
    "rotation with positions times {}",
    "Use the positions themselves.",
    lambda case: [2, 0.5] if rotated(case) else [],
    _times,
)


def _turned(case: dict, arrays: Arrays, go: Stage, turn: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Arrays:
    """Queries and keys rotated by `turn(x [..., L, d], positions [L])`, and what follows from them."""
    made = go(case, arrays)
    every = arrays | made
    places = {"q": np.array(case["query_positions"]), "k": np.array(case["key_positions"])}
    rotated = {f"{name}_rot": turn(unrotated(every, name), places[name]) for name in "qk"}
    kept = {"q_heads": rotated["q_rot"], "k_heads": rotated["k_rot"], "v_heads": every["v_heads"]}
    return made | rotated | after("rot", case, arrays, kept, go)


def _paired(x: np.ndarray, at: np.ndarray, theta: np.ndarray, first: np.ndarray, second: np.ndarray, stretch: float = 1.0) -> np.ndarray:
    """Column first[i] with column second[i] turned by position times theta[i]."""
    y, angle = x.copy(), np.multiply.outer(at, theta)
    cos, sin = stretch * np.cos(angle), stretch * np.sin(angle)
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


def _dims(case: dict) -> int:
    return case["rotary"]["dims"]


def _base(case: dict) -> float:
    return case["rotary"]["base"]


def _partly(case: dict) -> bool:
    return rotated(case) and _dims(case) < case["dims"]["d_k"] and not case["rotary"]["scaling"]


def _pairs(case: dict, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The dims/2 pairs of columns that are rotated, cut from all pairs of `width` columns."""
    i = np.arange(_dims(case) // 2)
    return {"half": (i, i + width // 2), "interleaved": (2 * i, 2 * i + 1)}[case["rotary"]["pairing"]]


def _partial(name: str, sentence: str, frequencies: bool, pairs: bool) -> None:
    """Partial rotation with the frequencies, or the pairs, of the whole head."""

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        whole, part = case["dims"]["d_k"], _dims(case)
        theta = positions.frequencies(whole if frequencies else part, _base(case), None)[0][: part // 2]
        return _turned(case, arrays, go, lambda x, at: _paired(x, at, theta, *_pairs(case, whole if pairs else part)))

    def applies(case: dict) -> bool:
        return _partly(case) and case["dims"]["d_k"] % 2 == 0 and (frequencies or case["rotary"]["pairing"] == "half")

    remedy = "The rotated columns are a head of their own: rotary.dims columns, with the frequencies and the pairs of that width."
    entries.enter(name, sentence, remedy, applies, {"projections": change})


_partial("rotary_frequencies_of_head", "partial rotation with the frequencies of the whole head", True, False)
_partial("rotary_pairs_of_head", "partial rotation with the pairs of the whole head, i with i + d_k/2", False, True)
_partial("rotary_as_whole_head", "partial rotation with the frequencies and the pairs of the whole head", True, True)
entries.enter(
    "rotary_part_twice",
    "the part of the columns that is rotated taken twice",
    "Rotate rotary.dims columns; it is the part of d_k already.",
    lambda case: _partly(case) and _dims(case) ** 2 % (2 * case["dims"]["d_k"]) == 0,
    {"projections": altered(rotary=lambda case: {**case["rotary"], "dims": _dims(case) ** 2 // case["dims"]["d_k"]})},
)


@mistake(
    "projections",
    "the table of angles of the other pairing (0, 0, 1, 1 for halves, 0, 1, 0, 1 for neighbours)",
    "The table repeats each angle for the two columns of a pair.",
    lambda case: rotated(case) and _dims(case) > 2,
)
def rotary_table_of_other_pairing(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    dims = _dims(case)
    theta, stretch = positions.frequencies(dims, _base(case), case["rotary"]["scaling"])
    of_column = {"half": np.repeat(theta, 2), "interleaved": np.tile(theta, 2)}[case["rotary"]["pairing"]]
    first, second = _pairs(case, dims)

    def turn(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        y, angle = x.copy(), np.multiply.outer(at, of_column)
        cos, sin = stretch * np.cos(angle), stretch * np.sin(angle)
        y[..., first] = x[..., first] * cos[:, first] - x[..., second] * sin[:, first]
        y[..., second] = x[..., second] * cos[:, second] + x[..., first] * sin[:, second]
        return y

    return _turned(case, arrays, go, turn)


def _scaling_rule(*rules: str) -> Callable[[dict], bool]:
    return lambda case: rotated(case) and bool(case["rotary"]["scaling"]) and case["rotary"]["scaling"]["rule"] in rules


def _stretched(power: int) -> Change:
    """YaRN's stretch of cosine and sine to this power."""

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        theta, stretch = positions.frequencies(_dims(case), _base(case), case["rotary"]["scaling"])
        pairs = _pairs(case, _dims(case))
        return _turned(case, arrays, go, lambda x, at: _paired(x, at, theta, *pairs, stretch**power))

    return change


entries.enter(
    "yarn_not_stretched",
    "YaRN without its stretch of cosine and sine",
    "Multiply cosine and sine by 0.1 ln(factor) + 1.",
    _scaling_rule("yarn"),
    {"projections": _stretched(0)},
)
entries.enter(
    "yarn_stretched_twice",
    "YaRN with its stretch of cosine and sine squared",
    "Queries and keys get the stretch once each; do not multiply the scale by it as well.",
    _scaling_rule("yarn"),
    {"projections": _stretched(2)},
)


@mistake(
    "projections",
    "YaRN with the ends of its ramp not rounded to whole pairs",
    "The ramp begins at floor(...) and ends at ceil(...).",
    _scaling_rule("yarn"),
)
def yarn_ramp_not_rounded(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    options, dims, base = case["rotary"]["scaling"], _dims(case), _base(case)
    theta, stretch = base ** (-np.arange(0, dims, 2) / dims), 0.1 * np.log(options["factor"]) + 1

    def pair(turns: float) -> float:
        return dims * np.log(options["original_length"] / (turns * 2 * np.pi)) / (2 * np.log(base))

    first, last = max(pair(options["beta_fast"]), 0), min(pair(options["beta_slow"]), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - first) / max(last - first, 0.001), 0, 1)
    slowed = (1 - ramp) * theta + ramp * theta / options["factor"]
    return _turned(case, arrays, go, lambda x, at: _paired(x, at, slowed, *_pairs(case, dims), stretch))


@mistake(
    "projections",
    "NTK-aware rotation with angles divided by the factor as well",
    "Only the base grows; nothing is divided.",
    _scaling_rule("ntk"),
)
def ntk_and_linear(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    theta, _ = positions.frequencies(_dims(case), _base(case), case["rotary"]["scaling"])
    theta = theta / case["rotary"]["scaling"]["factor"]
    return _turned(case, arrays, go, lambda x, at: _paired(x, at, theta, *_pairs(case, _dims(case))))


def _other_factors(case: dict) -> list[float]:
    """What the factor is taken for: 2f - 1 (dynamic NTK at twice the length), f^2, sqrt(f)."""
    if not _scaling_rule("linear", "ntk", "yarn", "llama3")(case):
        return []
    factor = case["rotary"]["scaling"]["factor"]
    return [other for other in dict.fromkeys((2 * factor - 1, factor**2, factor**0.5)) if other != factor]


entries.numbered(
    "rotary_other_factor",
    "projections",
    "rotation scaled by a factor of {}",
    "Use the factor of the case.",
    _other_factors,
    lambda factor: altered(rotary=lambda case: {**case["rotary"], "scaling": {**case["rotary"]["scaling"], "factor": factor}}),
)


def _permuted(x: np.ndarray, heads: int) -> np.ndarray:
    """Columns of each of `heads` heads [..., L, H*d] from interleaved pairs to halves."""
    split = x.reshape(*x.shape[:-1], heads, -1)
    return np.concatenate([split[..., 0::2], split[..., 1::2]], axis=-1).reshape(x.shape)


def _permutable(case: dict) -> bool:
    return rotated(case) and case["begins_at"] in ("x", "qkv") and _dims(case) == case["dims"]["d_k"] > 2


def _permuting(queries: Callable[[dict, np.ndarray], np.ndarray], keys: Callable[[dict, np.ndarray], np.ndarray]) -> Change:
    """Rows of w_q and w_k permuted (as columns of q and k), and the other pairing."""

    def change(case: dict, arrays: Arrays, go: Stage) -> Arrays:
        made = arrays | go(case, arrays)
        whole = {"q": queries(case, made["q"]), "k": keys(case, made["k"]), "v": made["v"]}
        return rotary_other_pairing(case, arrays | whole, go) | {
            name: x for name, x in whole.items() if name in case["arrays"]["projections"]
        }

    return change


_PERMUTE = "Permute the rows of w_q within each of its H heads and those of w_k within each of its H_kv, once, if the pairing changes."
entries.enter(
    "rotary_permuted_queries_only",
    "w_q permuted for the other pairing, w_k not",
    _PERMUTE,
    _permutable,
    {"projections": _permuting(lambda case, q: _permuted(q, case["heads"]), lambda case, k: k)},
)
entries.enter(
    "rotary_permuted_keys_only",
    "w_k permuted for the other pairing, w_q not",
    _PERMUTE,
    _permutable,
    {"projections": _permuting(lambda case, q: q, lambda case, k: _permuted(k, case["kv_heads"]))},
)
entries.enter(
    "rotary_permuted_twice",
    "w_q and w_k permuted twice for the other pairing",
    _PERMUTE,
    lambda case: _permutable(case) and _dims(case) > 4,
    {
        "projections": _permuting(
            lambda case, q: _permuted(_permuted(q, case["heads"]), case["heads"]),
            lambda case, k: _permuted(_permuted(k, case["kv_heads"]), case["kv_heads"]),
        )
    },
)


def _wrong_counts(case: dict) -> list[int]:
    """Head counts other than the right one into which the columns of k can be cut, each part of even width."""
    if not _permutable(case):
        return []
    columns = case["kv_heads"] * case["dims"]["d_k"]
    return [n for n in range(1, min(columns // 2, 64)) if columns % (2 * n) == 0 and n != case["kv_heads"]]


entries.numbered(
    "rotary_keys_permuted_as",
    "projections",
    "w_k permuted for the other pairing as if it had {} heads",
    _PERMUTE,
    _wrong_counts,
    lambda heads: _permuting(lambda case, q: _permuted(q, case["heads"]), lambda case, k: _permuted(k, heads)),
)


@mistake(
    "scores",
    "ALiBi counted from the last key (a constant more in each row, which the softmax does not see)",
    "Nothing is to be mended but the scores themselves: -slope * |i - j|.",
    lambda case: has_alibi(case) and case["softmax"] == "plain" and "sinks" not in case["shapes"],
)
def alibi_from_last_key(case: dict, arrays: Arrays, go: Stage) -> Arrays:
    last = max(case["context_positions"])
    return go({**case, "query_positions": [last] * case["dims"]["Lq"], "alibi": {**case["alibi"], "form": "relative"}}, arrays)
