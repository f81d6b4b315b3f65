"""What must hold of any attention, whatever its options: random cases compared with themselves, changed, and with closed forms.

No reference computes anything here. Tests that say "exactly" compare bits; the others allow for the rounding of another order of sums.
"""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import raw_cases, resolved

from worked_attention.files.formats import values
from worked_attention.stages import backward, contexts, outputs, parameters, projections, scores, weights
from worked_attention.stages.catalogue import CATALOGUE, axes
from worked_attention.stages.positions import frequencies
from worked_attention.stages.projections import latest
from worked_attention.stages.whole import compute

EACH = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
UNORDERED = {"sinusoidal": None, "rotary": None, "alibi": None, "positions": None, "t5": None, "bias_table": None, "dropout": None}
ALONE = {"past": None, "appended": None}  # no keys but those made from the input
PLAIN = {"softmax": None, "sinks": None}
FINITE = ("zero", "uniform")
AFTER_PROJECTIONS = (scores, weights, contexts, outputs)


def drawn(raw: dict) -> tuple[dict, dict[str, np.ndarray]]:
    """The resolved case and its parameters."""
    case = resolved(raw)
    arrays = parameters.stage(case, Path())
    if "mask_add" in arrays and arrays["mask_add"].ndim == 3:  # a mask written out has rank 2 or 4
        arrays["mask_add"] = arrays["mask_add"][0]
    return case, arrays


def run(case: dict, arrays: dict[str, np.ndarray], stages=(projections, *AFTER_PROJECTIONS, backward)) -> dict[str, np.ndarray]:
    """Every array of `case` from `arrays` on."""
    arrays = dict(arrays)
    for stage in stages:
        arrays |= stage.stage(case, arrays)
    return arrays


def written(raw: dict, arrays: dict[str, np.ndarray], **changes) -> dict:
    """`raw` with `arrays` as its parameters, written out, so that they show all sizes; an option changed to None is left out."""
    raw = {key: value for key, value in (deepcopy(raw) | changes).items() if key != "sizes" and value is not None}
    raw["parameters"] = {name: values(array) for name, array in arrays.items() if not name.startswith("mask_")}
    if masks := {name.removeprefix("mask_"): values(array) for name, array in arrays.items() if name.startswith("mask_")}:
        raw["mask"] = raw.get("mask", {}) | masks
    return raw


def again(raw: dict, arrays: dict[str, np.ndarray], **changes) -> dict[str, np.ndarray]:
    return compute(resolved(written(raw, arrays, **changes)))


def change(arrays: dict[str, np.ndarray], dims: dict[str, int], alter) -> dict[str, np.ndarray]:
    """`arrays`, each put through alter(name, array, axis names); the names of an array of lower rank are the last ones."""
    found = {}
    for name, array in arrays.items():
        names = axes(name, dims)
        found[name] = alter(name, array, names[len(names) - array.ndim :])
    return found


def take(array: np.ndarray, names: tuple[str, ...], axis: str, index) -> np.ndarray:
    """`array` with `index` of its `axis`, if it has one that is not 1 for all."""
    if axis not in names or array.shape[names.index(axis)] == 1 and axis in ("B", "H") and len(names) == 4:
        return array
    return np.take(array, index, axis=names.index(axis))


def near(a: np.ndarray, b: np.ndarray, tolerance: float = 1e-11) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


exactly = np.testing.assert_array_equal


def shift_matters(case: dict) -> bool:
    """Whether a constant added to a row of scaled scores moves its weights (a blocked score of -1e9 is as good as -inf)."""
    return bool(case["softcap"] or case["softmax"] in ("plus_one", "none") or "sinks" in case["parameters"] or case["mask"]["fill"] == -30)


# Weights


@settings(EACH, max_examples=120)
@given(raw_cases(dtypes=("float64", "float32", "bfloat16", "float16")))
def test_rows_sum_to_what_the_softmax_says(raw):
    case, arrays = drawn(raw)
    a = run(case, arrays)
    masked, found = a["masked"].astype(float), a["weights"].astype(float)
    empty = (masked == -np.inf).all(axis=-1)
    if case["softmax"] == "none":
        exactly(a["weights"], np.where(masked == -np.inf, 0, a["masked"]).astype(a["weights"].dtype))
        return
    sink = {"plus_one": np.zeros(case["heads"])}.get(case["softmax"], a.get("sinks"))
    if sink is not None:
        sink = np.broadcast_to(sink[:, None].astype(float), empty.shape)
        total = np.logaddexp.reduce(masked, axis=-1)
        expected = 1 - np.exp(sink - np.logaddexp(total, sink))
    else:
        expected = np.where(empty, {"zero": 0, "nan": np.nan, "uniform": 1}[case["mask"]["empty_row"]], 1)
    eps = {"float64": 2e-16, "float32": 1.2e-7, "float16": 1e-3, "bfloat16": 8e-3}[case["dtype"]]
    np.testing.assert_allclose(found.sum(axis=-1), expected, rtol=0, atol=eps * (found.shape[-1] + 4))
    if case["mask"]["empty_row"] == "zero":
        assert (found >= 0).all() and (found <= 1).all()
        assert (found[masked == -np.inf] == 0).all()


@EACH
@given(raw_cases(), st.floats(-20, 20))
def test_a_constant_added_to_a_row_of_scores_changes_nothing(raw, constant):
    case, arrays = drawn(raw)
    assume(not shift_matters(case))
    a = run(case, arrays)
    rows = constant * np.cos(np.arange(case["dims"]["Lq"]))[:, None]
    near(run(case, a | {"scaled": a["scaled"] + rows}, AFTER_PROJECTIONS)["weights"], a["weights"])


@EACH
@given(raw_cases(softcap=None, softmax=None), st.floats(-5, 5))
def test_a_constant_added_to_scores_and_sinks_changes_nothing(raw, constant):
    case, arrays = drawn(raw)
    assume(case["mask"]["fill"] != -30)
    a = run(case, arrays | {"sinks": arrays.get("sinks", np.zeros(case["heads"]))})
    moved = run(case, a | {"scaled": a["scaled"] + constant, "sinks": a["sinks"] + constant}, AFTER_PROJECTIONS)
    near(moved["weights"], a["weights"])


SHIFTED = {  # what makes the softmax see a constant, or a key bias: a case of two keys that has it
    "sinks": {"parameters": {"sinks": [0.3]}},
    "plus_one": {"softmax": "plus_one"},
    "no softmax": {"softmax": "none"},
    "softcap": {"softcap": 2},
    "finite fill": {"mask": {"keep": [[True, False]], "fill": -1}},
}
KEY_BIASED = SHIFTED | {
    "extra key": {"extra_key": "zero"},
    "rotary": {"rotary": {"pairing": "half"}, "positions": {"queries": [3]}},
    "key norm": {"qk_norm": {"kind": "l2"}},
    "past": {"parameters": {"past_k": [[[0.5, 0.2]]], "past_v": [[[1.0]]]}},
}
TWO_KEYS = {"q_heads": [[[1.0, 0.5]]], "k_heads": [[[0.5, 1.0], [-0.5, 0.25]]], "v_heads": [[[1.0], [2.0]]]}


def two_keys(options: dict) -> dict:
    return options | {"parameters": TWO_KEYS | options.get("parameters", {})}


@pytest.mark.parametrize("options", SHIFTED.values(), ids=SHIFTED)
def test_where_a_constant_added_to_a_row_does_change_it(options):
    case, arrays = drawn(two_keys(options))
    a = run(case, arrays)
    moved = run(case, a | {"scaled": a["scaled"] + 1}, AFTER_PROJECTIONS)
    assert np.abs(moved["weights"] - a["weights"]).max() > 0.01


@EACH
@given(raw_cases(rotary=None, qk_norm=None, **ALONE))
def test_key_bias_cancels(raw):
    case, arrays = drawn(raw)
    assume(not shift_matters(case))
    a = run(case, arrays)
    bias = np.cos(np.arange(case["kv_heads"] * case["dims"]["d_k"]))
    if "w_k" in arrays:
        moved = run(case, arrays | {"b_k": arrays.get("b_k", 0) + bias})
    elif "k" in arrays:
        moved = run(case, arrays | {"k": arrays["k"] + bias})
    else:
        moved = run(case, arrays | {"k_heads": arrays["k_heads"] + bias.reshape(case["kv_heads"], 1, -1)})
    near(moved["weights"], a["weights"])


@pytest.mark.parametrize("options", KEY_BIASED.values(), ids=KEY_BIASED)
def test_where_key_bias_does_not_cancel(options):
    case, arrays = drawn(two_keys(options))
    moved = run(case, arrays | {"k_heads": arrays["k_heads"] + [0.5, -2.0]})
    assert np.abs(moved["weights"] - run(case, arrays)["weights"]).max() > 0.001


@EACH
@given(raw_cases(begins=("heads",), masks=False, alibi=None, t5=None, bias_table=None, dropout=None))
def test_equal_scores_average_the_values(raw):
    case, arrays = drawn(raw)
    a = run(case, arrays | {"q_heads": np.zeros_like(arrays["q_heads"])})
    v = scores.repeat_heads(latest(a, "v"), case["heads"])
    shares = 1 + 0 * v[..., 0, :1]
    if case["softmax"] == "hardmax":
        near(a["contexts"], np.broadcast_to(v[..., :1, :], a["contexts"].shape))
        return
    if case["softmax"] == "none":  # all scores are 0
        exactly(a["contexts"], np.zeros_like(a["contexts"]))
        return
    if case["softmax"] == "plus_one" or "sinks" in a:
        sinks = a.get("sinks", np.zeros(case["heads"]))
        shares = (v.shape[-2] / (v.shape[-2] + np.exp(sinks)))[:, None]
    near(a["contexts"], np.broadcast_to((shares * v.mean(axis=-2))[..., None, :], a["contexts"].shape))


@EACH
@given(raw_cases(begins=("cross", "kdim", "qkv", "heads"), masks=False, dropout=None, bias_table=None, **PLAIN, **ALONE))
def test_one_key_gives_its_value(raw):
    case, arrays = drawn(raw)
    first = change(arrays, case["dims"], lambda name, array, names: take(array, names, "Ln", [0]))
    a = again(raw, first, positions=None)
    v = scores.repeat_heads(a["v_heads"], case["heads"])
    exactly(a["contexts"], np.broadcast_to(v, a["contexts"].shape))


# Scores


@EACH
@given(raw_cases(qk_norm=None))
def test_the_scale_can_be_folded_into_the_queries(raw):
    case, arrays = drawn(raw)
    factor = case["scale_factor"]
    folded = {name: array * factor if name in ("w_q", "b_q", "q", "q_heads") else array for name, array in arrays.items()}
    if "w_q" not in arrays:
        assert folded.keys() & {"q", "q_heads"}
    a, b = run(case, arrays), run(case | {"scale_factor": 1.0}, folded)
    near(b["scaled"], a["scaled"])
    if case["softmax"] != "hardmax":
        near(b["output"], a["output"])


@EACH
@given(raw_cases(softcap=None), st.floats(1, 1e6))
def test_a_large_softcap_is_none(raw, factor):
    case, arrays = drawn(raw)
    a = run(case, arrays)
    s = np.abs(a["scaled"])
    cap = factor * max(s.max(), 1e-3)
    capped = run(case | {"softcap": cap}, arrays)["capped"]
    assert (np.abs(capped - a["scaled"]) <= s**3 / (3 * cap**2) + 1e-15 * s).all()  # x - x^3/3 <= tanh x <= x for x >= 0
    assert (np.abs(capped) <= cap).all()


@EACH
@given(raw_cases(begins=("x",), alibi={"slopes": "geometric"}, positions=None), st.sampled_from(["top_left", "bottom_right"]))
def test_forms_of_alibi_agree_under_causal(raw, align):
    raw["mask"] = {key: option for key, option in raw["mask"].items() if key != "prefix"} | {"causal": align}
    raw["mask"].pop("fill", None)
    found = {}
    for form in ("distance", "relative", "key_index"):
        raw["alibi"] = {"slopes": "geometric", "form": form}
        case, arrays = drawn(raw)
        found[form] = run(case, arrays)["weights"]
    exactly(found["distance"], found["relative"])
    seen_by_all = case["dims"]["Lk"] > case["dims"]["Lc"]  # what the layer appends gets no bias
    if not seen_by_all and case["softmax"] not in ("plus_one", "none") and "sinks" not in arrays:
        near(found["key_index"], found["relative"])


# Positions


@settings(EACH, max_examples=100)
@given(raw_cases(rotary=None, **ALONE), st.data())
def test_rotary_keeps_norms(raw, data):
    from strategies import rotary

    raw["rotary"] = data.draw(rotary(raw["sizes"]["d_k"]))
    case, arrays = drawn(raw)
    a = run(case, arrays)
    turned = case["rotary"].get("dims", case["dims"]["d_k"])
    stretch = frequencies(turned, case["rotary"]["base"], case["rotary"]["scaling"])[1]
    scaling = case["rotary"]["scaling"]
    assert stretch == (0.1 * np.log(scaling["factor"]) + 1 if scaling and scaling["rule"] == "yarn" else 1)
    for name in ("q", "k"):
        before = a.get(f"{name}_norm", a[f"{name}_heads"])
        near((a[f"{name}_rot"][..., :turned] ** 2).sum(axis=-1), stretch**2 * (before[..., :turned] ** 2).sum(axis=-1))
        exactly(a[f"{name}_rot"][..., turned:], before[..., turned:])


@settings(EACH, max_examples=100)
@given(raw_cases(rotary=None, sinusoidal=None, **ALONE), st.integers(1, 1000), st.data())
def test_only_differences_of_positions_matter(raw, offset, data):
    from strategies import rotary

    raw["rotary"] = data.draw(rotary(raw["sizes"]["d_k"]))
    case, arrays = drawn(raw)
    key_index = case["alibi"] and case["alibi"]["form"] == "key_index"  # adds a constant to each row
    assume(not key_index or not shift_matters(case | {"softcap": None}))
    moved = {key: [p + offset for p in case[key]] for key in ("query_positions", "key_positions", "context_positions")}
    a, b = run(case, arrays), run(case | moved, arrays)
    near(b["qk"], a["qk"], 1e-10)
    if case["softmax"] != "hardmax":
        near(b["weights"], a["weights"], 1e-10)


@EACH
@given(raw_cases(begins=("x",), masks=False, **UNORDERED))
def test_tokens_may_be_permuted_without_positions_and_masks(raw):
    case, arrays = drawn(raw)
    order = np.random.default_rng(0).permutation(case["dims"]["Lq"])
    near(run(case, arrays | {"x": arrays["x"][..., order, :]})["output"], run(case, arrays)["output"][..., order, :])


@EACH
@given(raw_cases(begins=("cross", "kdim", "qkv", "heads"), masks=False, **UNORDERED))
def test_keys_may_be_permuted_and_queries_answer_one_by_one(raw):
    case, arrays = drawn(raw)
    orders = {axis: np.random.default_rng(1).permutation(case["dims"][axis]) for axis in ("Lq", "Ln")}

    def permuted(name, array, names):
        return take(take(array, names, "Ln", orders["Ln"]), names, "Lq", orders["Lq"])

    near(run(case, change(arrays, case["dims"], permuted))["output"], run(case, arrays)["output"][..., orders["Lq"], :])


@pytest.mark.parametrize("options", [{"mask": {"causal": "top_left"}}, {"rotary": {"pairing": "half"}}, {"sinusoidal": {}}], ids=str)
def test_where_tokens_may_not_be_permuted(options):
    x = {"x": {"normal": {"seed": 0}}}
    case, arrays = drawn({"sizes": {"Lq": 4, "d_model": 4}, "parameters": x} | options)
    order = [2, 0, 3, 1]
    moved = run(case, {"x": arrays["x"][order]})["output"]
    assert np.abs(moved - run(case, arrays)["output"][order]).max() > 0.01


# Masks


@settings(EACH, max_examples=150)
@given(raw_cases(empty_rows=("zero", "nan")), st.sampled_from(["top_left", "bottom_right"]), st.data())
def test_the_future_cannot_move_the_past_under_causal(raw, align, data):
    raw["mask"] |= {"causal": align}
    if align != "bottom_right":
        raw["mask"].pop("diagonal", None)
    if "window" in raw["mask"]:
        raw["mask"].pop("prefix", None)
    raw["mask"].pop("fill", None)  # a finite score leaves a way from the future to a query that sees nothing
    case, arrays = drawn(raw)
    dims = case["dims"]
    last = data.draw(st.integers(0, dims["Lq"] - 1))
    hidden = last + 1 + (dims["Lc"] - dims["Lq"] if align == "bottom_right" else 0)  # the first key that the query `last` does not see
    hidden = max(0, hidden, case["mask"].get("prefix", 0))
    first = {"Lq": last + 1, "Lp": hidden, "Ln": max(0, hidden - dims["Lp"])}
    if case["begins_at"] == "x" and not {"x_kv", "x_k"} & set(arrays):
        first["Lq"] = max(first["Lq"], first["Ln"])

    def disturbed(name, array, names):
        axis = next((axis for axis in names if axis in first), None)
        if axis is None or array.dtype == bool or name in ("bias_table", "mask_add"):
            return array
        array = array.copy()
        array[(slice(None),) * names.index(axis) + (slice(first[axis], None),)] += 100.0
        return array

    exactly(run(case, change(arrays, dims, disturbed))["output"][..., : last + 1, :], run(case, arrays)["output"][..., : last + 1, :])


@EACH
@given(raw_cases())
def test_masks_combine_as_intersection(raw):
    case, arrays = drawn(raw)
    whole = run(case, arrays)
    every = {name: option for name, option in raw["mask"].items() if name not in ("fill", "empty_row", "add", "prefix")}
    keep = np.ones_like(whole["weights"], dtype=bool)
    for name, option in every.items():
        alone = {name: option}
        if name == "causal" and "prefix" in raw["mask"]:
            alone["prefix"] = raw["mask"]["prefix"]
        if name == "window":
            alone["window"] = option | {"align": raw["mask"].get("causal", "top_left")}
        other, drawn_again = drawn(raw | {"mask": alone})
        keep &= run(other, drawn_again)["keep"]
    assert ("keep" in whole) == bool(every)
    exactly(np.broadcast_to(whole.get("keep", True), keep.shape), keep)


@settings(EACH, max_examples=100)
@given(raw_cases())
def test_any_mask_is_a_boolean_mask_and_an_added_one(raw):
    raw["mask"].pop("fill", None)
    case, arrays = drawn(raw)
    a = run(case, arrays)
    assume("keep" in a)
    keep = a["keep"][..., : case["dims"]["Lc"]]
    keep = keep if "B" in case["dims"] else keep[0]  # without a batch no mask knows heads
    rest = {name: array for name, array in arrays.items() if name == "mask_add" or not name.startswith("mask_")}
    added = np.where(keep, arrays.get("mask_add", 0.0), -np.inf)
    policy = {"empty_row": raw["mask"]["empty_row"]}
    exactly(again(raw, rest | {"mask_keep": keep}, mask=policy)["weights"], a["weights"])
    exactly(again(raw, rest | {"mask_block": ~keep}, mask=policy)["weights"], a["weights"])
    exactly(again(raw, rest | {"mask_add": added}, mask=policy)["weights"], a["weights"])


@EACH
@given(raw_cases(begins=("cross", "kdim", "qkv", "heads"), empty_rows=("zero", "nan")), st.data())
def test_key_padding_is_the_same_as_removing_the_keys(raw, data):
    kept = {"causal": "top_left"} if "causal" in raw["mask"] else {}
    kept |= {name: raw["mask"][name] for name in ("window", "empty_row") if name in raw["mask"]}
    raw["mask"] = kept
    dims = resolved(raw)["dims"]
    length = data.draw(st.integers(dims["Lp"] + 1, dims["Lc"]))
    case, arrays = drawn(raw | {"mask": kept | {"key_lengths": [length] * dims.get("B", 1)}})

    def removed(name, array, names):
        array = take(array, names, "Ln", range(length - dims["Lp"]))
        array = take(array, names, "Lc", range(length))
        return take(array, names, "Lk", [*range(length), *range(dims["Lc"], dims["Lk"])])

    positions = {"queries": case["query_positions"], "keys": case["key_positions"][: length - dims["Lp"]]}
    b = again(raw, change(arrays, dims, removed), positions=positions)
    a = run(case, arrays)
    near(b["output"], a["output"])
    assert (a["weights"][..., length : dims["Lc"]] == 0).all() or np.isnan(a["weights"]).any()


def test_a_finite_fill_lets_padding_through():
    case, arrays = drawn(two_keys({"mask": {"key_lengths": [1], "fill": -1}}))
    assert run(case, arrays)["weights"][0, 0, 1] > 0.1


def nothing_more(name: str, raw: dict, case: dict, arrays: dict[str, np.ndarray]) -> dict | None:
    """The case of `raw` with an option that does nothing; None if it has no room for it."""
    dims, mask = case["dims"], raw["mask"]
    every = dims["Lq"] + dims["Lc"]
    batch, lone = dims.get("B", 1), set(mask) <= {"fill", "empty_row"}
    match name:
        case "a window wide enough" if "window" not in mask and "prefix" not in mask:
            return written(raw, arrays, mask=mask | {"window": {"left": every, "right": every}})
        case "a causal mask with every key as prefix" if "causal" not in mask and "window" not in mask:
            return written(raw, arrays, mask=mask | {"causal": "top_left", "prefix": dims["Lc"]})
        case "full lengths" if "key_lengths" not in mask:
            return written(raw, arrays, mask=mask | {"key_lengths": [dims["Lc"]] * batch})
        case "one document" if "documents" not in mask:
            return written(raw, arrays, mask=mask | {"documents": {"queries": [7] * dims["Lq"], "keys": [7] * dims["Lc"]}})
        case "a mask that keeps all" if "keep" not in mask:
            return written(raw, arrays | {"mask_keep": np.ones((dims["Lq"], dims["Lc"]), bool)})
        case "key padding that blocks none":
            return written(raw, arrays | {"mask_key_block": np.zeros((*[batch] * ("B" in dims), dims["Lc"]), bool)})
        case "an added mask of zeros" if "add" not in mask:
            return written(raw, arrays | {"mask_add": np.zeros((dims["Lq"], dims["Lc"]))})
        case "another fill" if lone and case["softmax"] != "none":
            return written(raw, arrays, mask=mask | {"fill": -5})
        case "a bias of zeros" if "bias_table" not in arrays:
            return written(raw, arrays | {"bias_table": np.zeros((dims["Lq"], dims["Lc"]))})
        case "a T5 table of zeros" if "t5_table" not in arrays:
            return written(raw, arrays | {"t5_table": np.zeros((8, dims["H"]))})
        case "rotation at position 0" if not (case["alibi"] or case["t5"] or case["sinusoidal"] or case["rotary"]):
            here = {"queries": [0] * dims["Lq"], "keys": [0] * dims["Ln"]}
            return written(raw, arrays, rotary={"pairing": "half"}, positions=here)
        case "dropout of none" if "dropout" not in raw:
            full = {"dropout_keep": np.ones((*[batch] * ("B" in dims), dims["H"], dims["Lq"], dims["Lk"]), bool)}
            return written(raw, arrays | full, dropout=0)
        case "gains of one" if "qk_norm" in raw and "g_q" not in arrays:
            return written(raw, arrays | {"g_q": np.ones(dims["d_k"]), "g_k": np.ones(dims["d_k"])})
        case "biases of zeros" if "w_k" in arrays and not {"b_q", "b_k", "b_v"} & set(arrays):
            return written(raw, arrays | {"b_q": np.zeros(dims["H"] * dims["d_k"])} | {"b_v": np.zeros(dims["H_kv"] * dims["d_v"])})
        case "the scale as a number":
            return written(raw, arrays, scale=case["scale_factor"])
        case "sinks of 0 for plus_one" if case["softmax"] == "plus_one":
            return written(raw, arrays | {"sinks": np.zeros(dims["H"])}, softmax=None)
        case "one head for each group" if dims["H"] == dims["H_kv"]:
            return written(raw, arrays, kv_heads=None)
        case "an output weight of ones on the diagonal" if "w_o" not in arrays:
            return written(raw, arrays | {"w_o": np.eye(dims["d_out"])})
    return None


NOTHING = [
    "a window wide enough",
    "a causal mask with every key as prefix",
    "full lengths",
    "one document",
    "a mask that keeps all",
    "key padding that blocks none",
    "an added mask of zeros",
    "another fill",
    "a bias of zeros",
    "a T5 table of zeros",
    "rotation at position 0",
    "dropout of none",
    "gains of one",
    "biases of zeros",
    "the scale as a number",
    "sinks of 0 for plus_one",
    "one head for each group",
    "an output weight of ones on the diagonal",
]


@settings(EACH, max_examples=100)
@given(raw_cases())
def test_options_that_do_nothing(raw):
    """All of them at each case, one by one."""
    case, arrays = drawn(raw)
    expected = run(case, arrays)
    for name in NOTHING:
        if changed := nothing_more(name, raw, case, arrays):
            found = compute(resolved(changed))
            for array in ("weights", "output"):
                np.testing.assert_allclose(found[array], expected[array], rtol=1e-13, atol=1e-13, err_msg=f"{name}: {array}")


# Heads, batch and appended keys


@EACH
@given(raw_cases(), st.data())
def test_samples_of_a_batch_do_not_touch_each_other(raw, data):
    case, arrays = drawn(raw)
    size = case["dims"].get("B")
    assume(size)
    b = data.draw(st.integers(0, size - 1))
    whole = run(case, arrays)

    def disturbed(name, array, names):
        array = array.copy()
        if names[0] == "B" and array.shape[0] == size and array.dtype != bool:
            array[b] += 100.0
        return array

    others = [i for i in range(size) if i != b]
    moved = run(case, change(arrays, case["dims"], lambda *a: a[1] if a[0] == "mask_add" else disturbed(*a)))
    exactly(moved["output"][others], whole["output"][others])
    mask = raw["mask"] | ({"key_lengths": [raw["mask"]["key_lengths"][b]]} if "key_lengths" in raw["mask"] else {})
    alone = again(raw, change(arrays, case["dims"], lambda name, array, names: take(array, names, "B", [b])), mask=mask)
    near(alone["output"], whole["output"][b : b + 1])


@EACH
@given(raw_cases())
def test_grouped_heads_are_repeated_ones(raw):
    case, arrays = drawn(raw)
    groups = case["heads"] // case["kv_heads"]
    assume(groups > 1)

    def repeated(name, array, names):
        for i, axis in enumerate(names):
            if axis.startswith("H_kv"):
                blocks = array.reshape(*array.shape[:i], case["kv_heads"], -1, *array.shape[i + 1 :])
                blocks = np.repeat(blocks, groups, axis=i)
                array = blocks.reshape(*array.shape[:i], array.shape[i] * groups, *array.shape[i + 1 :])
        return array

    a, b = run(case, arrays), again(raw, change(arrays, case["dims"], repeated), kv_heads=None)
    near(b["weights"], a["weights"])
    near(b["output"], a["output"])


@EACH
@given(raw_cases(alibi=None), st.data())
def test_each_head_works_alone(raw, data):
    case, arrays = drawn(raw)
    head = data.draw(st.integers(0, case["heads"] - 1))
    group = head // (case["heads"] // case["kv_heads"])

    def alone(name, array, names):
        for i, axis in enumerate(names):
            heads, chosen = {"H": (case["heads"], head), "H_kv": (case["kv_heads"], group)}.get(axis.split("*")[0], (None, None))
            if heads and not (axis == "H" and array.shape[i] == 1):
                width = array.shape[i] // heads
                array = np.take(array, range(chosen * width, (chosen + 1) * width), axis=i)
        return array

    without_output = {name: array for name, array in arrays.items() if name not in ("w_o", "b_o")}
    whole = run(case, arrays)
    scale = case["scale_factor"]  # 1/sqrt(d_model) of a case without x means the width of all heads
    one = again(raw, change(without_output, case["dims"], alone), heads=None, kv_heads=None, scale=scale)
    near(one["contexts"], whole["contexts"][..., head : head + 1, :, :])


@EACH
@given(raw_cases(begins=("heads",), masks=False, appended=None, dropout=None, alibi=None, t5=None, bias_table=None))
def test_extra_key_is_the_same_as_a_zero_key_with_a_zero_value(raw):
    case, arrays = drawn(raw)
    more = {name: np.insert(arrays[name], arrays[name].shape[-2], 0.0, axis=-2) for name in ("k_heads", "v_heads")}
    positions = {"queries": case["query_positions"], "keys": case["key_positions"] + [0]}
    a, b = again(raw, arrays, extra_key="zero"), again(raw, arrays | more, positions=positions)
    near(b["weights"], a["weights"], 1e-14)
    near(b["output"], a["output"], 1e-14)


# Gradients


def loss(case: dict, arrays: dict[str, np.ndarray], stages=(projections, *AFTER_PROJECTIONS)) -> float:
    """The number whose gradient at the output is `upstream`, or ones."""
    a = run(case, arrays, stages)
    return float((a["output"] * a.get("upstream", 1.0)).sum())


def slope(f, scale: float, h: float = 2e-5) -> tuple[float, float]:
    """f'(0) by central differences of step h, and how far it may be off.

    The truncation is h^2/6 f''', which shows as a third of the difference between steps 2h and h (taken three times here, for the terms
    that follow); the rounding is `scale`, the rounding error of one f, over h.
    """
    wide, narrow = ((f(step) - f(-step)) / (2 * step) for step in (2 * h, h))
    return narrow, abs(wide - narrow) + scale / h


def rounding(case: dict, a: dict[str, np.ndarray]) -> float:
    """Of the loss: sums of outputs from weights whose relative error is that of their scores."""
    size = np.abs(a["output"] * a.get("upstream", 1.0)).sum() + np.abs(a["contexts"]).sum()
    return 4e-16 * (4 + np.abs(a["scaled"]).max(initial=0)) * max(size, 1e-3)


@settings(EACH, max_examples=100)
@given(raw_cases(softmax=None, backward="ones", empty_rows=FINITE), st.integers(0, 99))
def test_gradients_by_differences_along_random_directions(raw, seed):
    case, arrays = drawn(raw)
    a = run(case, arrays)
    rng = np.random.default_rng(seed)
    for name in [name for name in arrays if f"d_{name}" in a]:
        u = rng.standard_normal(arrays[name].shape)
        found, off = slope(lambda t, name=name, u=u: loss(case, arrays | {name: arrays[name] + t * u}), rounding(case, a))
        gradient = float((a[f"d_{name}"] * u).sum())
        assert abs(found - gradient) <= off + 1e-9 * abs(gradient), (name, found, gradient, off)
    u = rng.standard_normal(a["scaled"].shape)
    found, off = slope(lambda t: loss(case, a | {"scaled": a["scaled"] + t * u}, AFTER_PROJECTIONS), rounding(case, a))
    gradient = float((a["d_scaled"] * u).sum())
    assert abs(found - gradient) <= off + 1e-9 * abs(gradient), ("scaled", found, gradient, off)


ALL_WEIGHTS = ["x", "w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o", "upstream"]
DIFFERENTIATED = {
    "two heads": {"heads": 2, "parameters": ALL_WEIGHTS},
    "causal, grouped, sinks": {"heads": 4, "kv_heads": 2, "mask": {"causal": "top_left"}, "parameters": [*ALL_WEIGHTS, "sinks"]},
    "softcap, rotary, normed": {
        "softcap": 1.5,
        "rotary": {"pairing": "interleaved"},
        "qk_norm": {"kind": "rms"},
        "parameters": [*ALL_WEIGHTS, "g_q", "g_k"],
    },
    "plus one, q k v given": {
        "softmax": "plus_one",
        "heads": 2,
        "sizes": {"Lq": 2, "Lk": 3, "d_k": 2, "d_v": 3},
        "parameters": ["q", "k", "v", "upstream"],
    },
    "sinks, heads given": {
        "sizes": {"Lq": 2, "Lk": 3, "d_k": 2},
        "parameters": ["q_heads", "k_heads", "v_heads", "sinks", "upstream"],
    },
}


@pytest.mark.parametrize("options", DIFFERENTIATED.values(), ids=DIFFERENTIATED)
def test_each_gradient_by_differences_of_each_element(options):
    raw = {"backward": "given", "sizes": {"Lq": 3, "d_model": 4}} | options
    order = sorted(options["parameters"], key=list(CATALOGUE).index)
    raw["parameters"] = {name: {"normal": {"seed": 40 + i, "std": 0.7}} for i, name in enumerate(order)}
    case, arrays = drawn(raw)
    a = run(case, arrays)
    checked = [name for name in arrays if f"d_{name}" in a]
    assert len(checked) == (9 if "x" in arrays else 3)
    for name in checked:
        for index in np.ndindex(arrays[name].shape):
            u = np.zeros(arrays[name].shape)
            u[index] = 1
            found, off = slope(lambda t, name=name, u=u: loss(case, arrays | {name: arrays[name] + t * u}), rounding(case, a))
            assert abs(found - a[f"d_{name}"][index]) <= off, (name, index, found, a[f"d_{name}"][index], off)
            assert off < 1e-6


@EACH
@given(raw_cases(softmax=None, backward="ones", empty_rows=("zero",)))
def test_what_gradients_add_up_to(raw):
    case, arrays = drawn(raw)
    a = run(case, arrays)
    rows = (a["weights"] * a["d_weights"]).sum(axis=-1)
    size = np.abs(a["weights"] * a["d_weights"]).sum(axis=-1)
    # a row of dS sums to 0; with a sink, to what the weights that the sink took would have passed on
    assert (np.abs(a["d_masked"].sum(axis=-1) - (1 - a["weights"].sum(axis=-1)) * rows) <= 1e-14 * (1 + size)).all()
    if "sinks" not in arrays:
        assert (np.abs(a["d_masked"].sum(axis=-1)) <= 1e-14 * (1 + size)).all()
    if "keep" in a:
        assert (a["d_scaled"][~a["keep"]] == 0).all()


@EACH
@given(raw_cases(begins=("x", "cross", "kdim"), rotary=None, qk_norm=None, backward="ones", empty_rows=("zero",), **PLAIN, **ALONE))
def test_a_key_bias_that_cancels_has_no_gradient(raw):
    case, arrays = drawn(raw)
    assume("b_k" in arrays and not shift_matters(case))
    a = run(case, arrays)
    terms = np.abs(a["d_qk"]).sum() * np.abs(a["q_heads"]).max() + 1
    assert np.abs(a["d_b_k"]).max() <= 1e-14 * terms


# Closed forms


def weights_of(rows: list, **options) -> np.ndarray:
    """Weights of a case that begins at one head's scores."""
    return compute(resolved({"parameters": {"scaled": [rows]} | options.pop("parameters", {})} | options))["weights"][0]


def test_closed_forms_of_the_softmax():
    logistic = 1 / (1 + np.exp(-0.7))
    near(weights_of([[1.7, 1.0]]), [[logistic, 1 - logistic]], 1e-15)
    near(weights_of([[0.7]], softmax="plus_one"), [[logistic]], 1e-15)
    near(weights_of([[0.7]], parameters={"sinks": [1.4]}), [[1 - logistic]], 1e-15)
    near(weights_of([[np.log(1), np.log(2), np.log(5)]]), [[1 / 8, 2 / 8, 5 / 8]], 1e-15)
    exactly(weights_of([[2.0, 3.0, 3.0]], softmax="hardmax"), [[0, 1, 0]])
    exactly(weights_of([[1000.0, 0.0]]), [[1, 0]])
    exactly(weights_of([[1000.0, 1000.0]], softmax="plus_one"), [[0.5, 0.5]])
    near(weights_of([[6.0, 0.0]], softcap=2), [[1 / (1 + np.exp(-2 * np.tanh(3))), 1 / (1 + np.exp(2 * np.tanh(3)))]], 1e-15)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("scores", "options", "weights"),
    [
        (["Infinity", 1.0], {}, [np.nan, np.nan]),
        ([1.0, 1.0], {"parameters": {"sinks": ["Infinity"]}}, [np.nan, np.nan]),
        (["Infinity", 1.0], {"mask": {"add": [["-Infinity", 0]]}}, [np.nan, np.nan]),
        ([1.0, 1.0], {"mask": {"add": [["Infinity", 0]], "key_add": ["-Infinity", 0]}}, [np.nan, np.nan]),
        ([-1e308, 1.0], {"mask": {"add": [[-1e308, 0]]}}, [0, 1]),
        ([1.0, 1.0], {"mask": {"add": [[-1e308, 0]], "key_add": [-1e308, 0]}}, [0, 1]),
        (["-Infinity", "-Infinity"], {"parameters": {"sinks": ["-Infinity"]}}, [0, 0]),
    ],
    ids=["score", "sink", "score and bias", "two biases", "large score and bias", "large biases", "empty row"],
)
def test_infinities_leave_no_warnings_in_the_logs(scores, options, weights):
    exactly(weights_of([scores], **options), [weights])


def test_closed_forms_of_masks_with_equal_scores():
    zeros = [[0.0] * 4] * 4
    lower = np.tril(np.ones((4, 4)))
    near(weights_of(zeros, mask={"causal": "top_left"}), lower / lower.sum(axis=-1, keepdims=True), 1e-15)
    near(weights_of([[0.0] * 4] * 2, mask={"causal": "bottom_right"}), [[1 / 3, 1 / 3, 1 / 3, 0], [1 / 4] * 4], 1e-15)
    exactly(weights_of(zeros, mask={"window": {"left": 0, "right": 0}}), np.eye(4))
    halves = [[0.5, 0.5, 0, 0]] * 2 + [[0, 0, 0.5, 0.5]] * 2
    exactly(weights_of(zeros, mask={"documents": [1, 1, 2, 2]}), halves)
    exactly(weights_of(zeros, mask={"documents": [2, 2, 1, 1]}), halves)
    exactly(weights_of([[0.0, 0.0]], mask={"key_lengths": [0]}), [[0, 0]])
    exactly(weights_of([[0.0, 0.0]], mask={"key_lengths": [0], "empty_row": "uniform"}), [[0.5, 0.5]])
    exactly(weights_of([[0.0, 0.0]], mask={"key_lengths": [0], "empty_row": "nan"}), [[np.nan, np.nan]])
    exactly(weights_of([[0.0, 5.0]], mask={"key_lengths": [0], "fill": "finfo_min"}), [[0.5, 0.5]])


def test_closed_forms_of_positions():
    near(weights_of([[0.0, 0.0]] * 2, alibi={"slopes": "geometric"})[1], [1 / (1 + np.exp(2**-8)), 1 / (1 + np.exp(-(2**-8)))], 1e-15)
    turned = compute(
        resolved(
            {
                "rotary": {"pairing": "half"},
                "scale": "none",
                "positions": {"queries": [3], "keys": [1]},
                "parameters": {"q_heads": [[[1.0, 0.0]]], "k_heads": [[[1.0, 0.0]]], "v_heads": [[[1.0]]]},
            }
        )
    )
    near(turned["qk"], [[[np.cos(2)]]], 1e-15)
    near(turned["q_rot"], [[[np.cos(3), np.sin(3)]]], 1e-15)


def test_closed_form_of_the_softmax_gradient():
    logistic = 1 / (1 + np.exp(-0.7))
    case = resolved(
        {
            "scale": "none",
            "backward": "ones",
            "parameters": {"q_heads": [[[1.0]]], "k_heads": [[[0.7], [0.0]]], "v_heads": [[[3.0], [1.0]]]},
        }
    )
    slope_of_first = 2 * logistic * (1 - logistic)  # d/ds of 3 p + (1 - p), with p the logistic of s
    near(compute(case)["d_qk"], [[[slope_of_first, -slope_of_first]]], 1e-15)
