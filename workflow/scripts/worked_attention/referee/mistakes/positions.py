"""Mistakes with positions: sinusoids and rotation in the projections, ALiBi and T5 in the scores."""

from collections.abc import Callable

import numpy as np

from worked_attention.referee.chain import Arrays, Stage, after
from worked_attention.referee.mistakes.entry import Change, altered, entries
from worked_attention.referee.mistakes.masks import cells, filled
from worked_attention.referee.mistakes.when import (
    has,
    has_alibi,
    has_norm,
    has_t5,
    rotated,
)
from worked_attention.stages import positions
from worked_attention.stages.positions import alibi_slopes
from worked_attention.stages.projections import latest, norm
from worked_attention.stages.scores import bias

mistake, enter_all = entries("positions")


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
    lambda case: rotated(case) and case["rotary"].get("dims", case["dims"]["d_k"]) > 2,
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
    lambda case: rotated(case) and case["query_positions"] != list(range(case["dims"]["Lq"])),
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
    rotated,
    {"projections": _moved(1, 1)},
)
enter_all(
    "rotary_query_one_ahead",
    "queries rotated one position too far",
    "A query stands where its own key stands.",
    rotated,
    {"projections": _moved(1, 0)},
)
enter_all(
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
enter_all(
    "rotary_keys_left_out",
    "queries rotated and keys not",
    "Rotate keys as well.",
    rotated,
    {"projections": altered(key_positions=lambda case: [0] * case["dims"]["Ln"])},
)
enter_all(
    "rotary_left_out",
    "no rotation",
    "Rotate queries and keys by their positions.",
    rotated,
    {"projections": altered(query_positions=lambda case: [0] * case["dims"]["Lq"], key_positions=lambda case: [0] * case["dims"]["Ln"])},
)
enter_all(
    "rotary_default_base",
    "rotation with base 10000",
    "Use the base of the case.",
    lambda case: rotated(case) and case["rotary"].get("base", 10000) != 10000,
    {"projections": _rotary(base=10000)},
)
enter_all(
    "rotary_scaling_left_out",
    "rotation without its scaling",
    "Scale the frequencies (or the base) by the rule of the case.",
    lambda case: rotated(case) and bool(case["rotary"].get("scaling")),
    {"projections": altered(rotary=lambda case: {k: v for k, v in case["rotary"].items() if k != "scaling"})},
)
enter_all(
    "rotary_all_columns",
    "all columns rotated where only the first ones are",
    "Rotate the first rotary.dims columns and let the others pass.",
    lambda case: rotated(case) and case["rotary"].get("dims", case["dims"]["d_k"]) < case["dims"]["d_k"] and case["dims"]["d_k"] % 2 == 0,
    {"projections": altered(rotary=lambda case: {k: v for k, v in case["rotary"].items() if k != "dims"})},
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
    final = {f"{name}_rot": norm(turned[name], options["kind"], options["eps"], arrays.get(f"g_{name}")) for name in "qk"}
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


def _other_slopes(case: dict, term: np.ndarray) -> np.ndarray:
    right, other = case["alibi"]["slopes"], {"interleaved": "geometric", "geometric": "interleaved"}
    ratio = alibi_slopes(case["heads"], other[right]) / alibi_slopes(case["heads"], right)
    return term * ratio[:, None, None]


enter_all(
    "alibi_other_slopes",
    "ALiBi with the other rule for head counts that are no power of two",
    "The authors take the slopes of the power of two below and fill up; the plain series is 2^(-8h/H).",
    lambda case: has_alibi(case) and case["heads"] & (case["heads"] - 1) > 0,
    {"scores": _alibi_change(_other_slopes)},
)
enter_all(
    "alibi_sign",
    "ALiBi with the opposite sign",
    "Far keys are punished, not favoured: -slope * distance.",
    has_alibi,
    {"scores": _alibi_change(lambda case, term: -term)},
)
enter_all(
    "alibi_exponent",
    "ALiBi slopes that begin at 1 (the exponent off by one)",
    "The first slope is 2^(-8/H).",
    has_alibi,
    {"scores": _alibi_change(lambda case, term: term * 2.0 ** (8 / case["heads"]))},
)
enter_all(
    "alibi_other_form",
    "ALiBi by (j - i) in place of -|i - j|, or the reverse",
    "The forms agree under a causal mask only.",
    has_alibi,
    {"scores": altered(alibi=lambda case: {**case["alibi"], "form": "relative" if case["alibi"]["form"] == "distance" else "distance"})},
)


enter_all(
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
enter_all(
    "t5_other_direction",
    "T5's buckets for the other direction",
    "`both` gives half of the buckets to keys on the right, `left` none.",
    lambda case: has_t5(case) and case["dims"]["buckets"] % 2 == 0,
    {"scores": altered(t5=lambda case: {**case["t5"], "direction": {"both": "left", "left": "both"}[case["t5"]["direction"]]})},
)
enter_all(
    "offset_forgotten",
    "ALiBi or T5 with queries counted from 0 again",
    "Queries stand behind the keys in the cache.",
    lambda case: (has_alibi(case) or has_t5(case)) and case["query_positions"] != list(range(case["dims"]["Lq"])),
    {"scores": altered(query_positions=lambda case: list(range(case["dims"]["Lq"])))},
)
