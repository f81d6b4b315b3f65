"""The cases from the field: their claims, the wrong numbers that were seen, and that each right answer holds for its whole kind.

The suite field_cases holds the reports as cases, r01 to r62. Here are the tests of the same names, with other numbers and sizes, and the
facts about torch that some reports rest on, looked at again.
"""

import functools
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from shipped import shipped
from strategies import LIMITS, resolved
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from worked_attention.cases.resolve import resolve
from worked_attention.referee.claims import check_claim
from worked_attention.referee.compare import Gate, compare_arrays, compare_case, gates_of
from worked_attention.stages.parameters import grid, normal
from worked_attention.stages.positions import alibi_slopes, angles, frequencies, rotate
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.projections import split_heads
from worked_attention.stages.weights import softmax
from worked_attention.stages.whole import compute

CASES = shipped("field_cases")["cases"]
REPORTS = {
    *(1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29, 31, 32, 33, 34, 36),
    *(37, 38, 40, 41, 42, 43, 44, 45, 47, 48, 49, 50, 52, 54, 55, 56, 58, 59, 60, 61, 62),
}
EXACT, NEAR = 0, 1e-12
GATES = {"rule": "absolute", "float64": NEAR}


@functools.cache
def arrays_of(case: str) -> dict[str, np.ndarray]:
    """Every array of one of CASES."""
    return compute(CASES[case])


def arrays_from(parameters: dict, **options) -> dict[str, np.ndarray]:
    """Every array of a case with these options; arrays among the parameters are written out."""
    raw = {"parameters": {name: a.tolist() if isinstance(a, np.ndarray) else a for name, a in parameters.items()}, **options}
    return compute(resolved(raw))


def heads(queries: int, keys: int, count: int = 2, width: int = 4, kv_heads: int | None = None) -> dict[str, np.ndarray]:
    """Queries, keys and values per head, drawn."""
    sizes = {"q_heads": (count, queries, width), "k_heads": (kv_heads or count, keys, width), "v_heads": (kv_heads or count, keys, 3)}
    return {name: normal(shape, seed) for seed, (name, shape) in enumerate(sizes.items())}


def layer(batch: int = 2, tokens: int = 4, width: int = 6) -> dict[str, np.ndarray]:
    """Input and weights of a layer, drawn."""
    weights = {f"w_{name}": normal((width, width), seed, 0.5) for seed, name in enumerate("qkvo")}
    return {"x": normal((batch, tokens, width), 9), **weights}


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """The largest absolute difference."""
    assert a.shape == b.shape
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0))


# The suite


def test_every_claim_is_right():
    wrong = []
    for name, case in CASES.items():
        for claim in case["claims"]:
            checked = check_claim(claim, arrays_of(name)[claim["array"]])
            wrong += [(name, claim["array"], value) for value in checked if not value["agrees"]]
    assert not wrong


def test_every_case_claims_something_and_says_what_to_look_at():
    assert not [name for name, case in CASES.items() if not case["claims"] or not case["look"] or case["title"] == name]


def test_every_report_is_a_case_or_a_test():
    names = [*CASES, *(name.removeprefix("test_") for name in globals())]
    assert {int(found[1]) for name in names if (found := re.match(r"r(\d\d)_", name))} == REPORTS


WRONG = [  # what faulty code printed: case, array, leading indices, numbers
    ("r01_square_weights", "weights", [0], ".127435 .872565 .997826 .002174"),
    ("r01_square_weights", "weights", [0], "0 1 .005642 .994358"),
    ("r01_square_weights", "weights", [0], ".000014 .999986 .025159 .974841"),
    ("r02_float_padding", "weights", [0], ".007035 .992965 .055807 .944193"),
    ("r06_block_rows", "output", [0], ".319807 -.063627 .214256 -.278417"),
    ("r08_query_bias", "output", [0], "-.108473 .043982 .105570 -.285165"),
    ("r09_merged_heads", "concat", [], "1 2 3 4 5 6 7 8"),
    ("r10_split", "q_heads", [0], "0 1 2 3 4 5"),
    ("r10_attention", "output", [0], "-.10997 -.471965 -.223393 -.218309"),
    ("r11_heads_first", "output", [0], "-.049646 -.583629 .033124 -.652603"),
    ("r14_root_of_head_width", "output", [0], "-.592826 .157174 1.045975 -.954025"),
    ("r14_root_of_head_width", "output", [0], "-.709595 .040405 1.107682 -.892318"),
    ("r14_root_of_head_width", "output", [0], "-.670229 .079771 1.083384 -.916616"),
    ("r18_true_blocks", "output", [], ".438961 -.876753 -.5 .25 0 0"),
    ("r20_top_left", "output", [], ".006575 -.527408 .075569 -.217558"),
    ("r20_bottom_right", "output", [], "-.75 0 .033124 -.652603"),
    ("r20_one_query_bottom_right", "output", [], "-.75 0"),
    ("r21_more_queries_bottom_right", "output", [0], "-.75 0"),
    ("r22_band", "output", [4], ".096124 -.284027"),
    ("r24_empty_row_zero", "output", [0], "-.166667 -.333333"),
    ("r24_empty_row_zero", "output", [0], "NaN NaN"),
    ("r24_empty_row_uniform", "output", [0], "0 0"),
    ("r24_empty_row_nan", "output", [0], "0 0"),
    ("r32_fill_of_infinity", "weights", [0, 0], "0 0 1"),
    ("r32_half_replaced", "output", [0], "-.110046 -.471924"),
    ("r34_nan_in_blocked_value", "output", [0], "0 1 2 3"),
    ("r34_nan_in_blocked_key", "output", [0], "NaN NaN NaN NaN"),
    ("r34_nan_query", "output", [0], "0 0 0 0"),
    ("r36_kept_keys_underflow", "weights", [0, 0], "NaN NaN NaN"),
    ("r37_along_keys", "weights", [0], ".119203 .047426 .880797 .952574"),
    ("r37_one_query", "weights", [0], "1 1"),
    ("r38_cap_then_mask", "weights", [0, 0], ".959205 .020398 .020398"),
    ("r38_cap_then_mask", "scaled", [0, 0], "1.850692 1.696567 -1.908091"),
    ("r40_plus_one", "weights", [0], ".399486 .146963 .054065"),
    ("r41_sink", "weights", [0], ".665241 .244728 .090031"),
    ("r41_sink_of_each_head", "contexts", [0], "-.75 0 .033124 -.652603 -.381798 .026635"),
    ("r45_half", "q_rot", [0, 0], "-1.14264 1.922076 2.959851 4.0298"),
    ("r45_three_tokens_half", "output", [0], "-.442657 .307343 1.057343 -.942657"),
    ("r47_angles_in_float64", "q_rot", [0, 0, 1], ".306711"),
    ("r48_interleaved_slopes", "contexts", [4, 3], ".395323 .112788"),
    ("r49_eight_heads", "bias", [0, 0], "0 -1 -2 -3"),
    ("r50_window_with_itself", "output", [4], ".094619 -.050935"),
    ("r52_blocks_of_heads", "contexts", [1], ".183881 -.319901 .26657 -.388808"),
    ("r52_blocks_of_heads", "contexts", [2], ".098858 -.707382 0 -.625"),
    ("r54_decoding_step", "output", [0], "-.427201 .322799 1.072799 -.927201"),
    ("r54_decoding_step", "output", [0], "-.458536 .291464 1.041464 -.958536"),
    ("r55_second_chunk", "output", [], "-.75 0 .098858 -.707382"),
]


@pytest.mark.parametrize(("case", "array", "at", "printed"), WRONG)
def test_wrong_numbers_do_not_agree(case, array, at, printed):
    ours = arrays_of(case)[array]
    six_decimals = [f"{float(text):.6f}".replace("nan", "NaN") for text in printed.split()]
    values = np.array(six_decimals, dtype=object).reshape(ours[tuple(at)].shape).tolist()
    assert not all(value["agrees"] for value in check_claim({"array": array, "at": at, "values": values}, ours))


# A. Projections


def test_r01_the_first_array_that_differs_is_named():
    case = CASES["r01_square_weights"]
    ours = arrays_of("r01_square_weights")
    parameters = {name: ours[name] for name in case["arrays"]["parameters"]}
    slips = {"q": {"w_q": ours["w_q"].T}, "k": {"w_k": ours["w_k"].T}, "v": {"w_v": ours["w_v"].T}}
    for array, slip in slips.items():
        theirs = arrays_from(parameters | slip, heads=2)
        assert compare_case(ours, theirs, gates_of(case, ours, GATES))["first_divergence"] == {"stage": "projections", "array": array}
    one_head = arrays_from(parameters)  # another number of heads first shows in the split
    assert compare_case(ours, one_head, gates_of(case, ours, GATES))["first_divergence"] == {"stage": "projections", "array": "q_heads"}


def test_r05_a_transposed_square_weight_differs_and_an_oblong_one_is_refused():
    ours = arrays_of("r05_square_weight")
    assert apart(ours["q"], ours["x"] @ ours["w_q"]) == 1.71875
    said = []
    parameters = {"x": ours["x"].tolist(), **{f"w_{name}": ours["w_q"][:3].T.tolist() for name in "qkv"}}
    assert resolve({"parameters": parameters}, "s", "c", Path(), LIMITS, lambda *problem: said.append(problem)) is None
    assert said[0][0] == ("parameters", "w_q")


@pytest.mark.parametrize(("count", "width"), [(1, 2), (2, 3), (3, 4)])
def test_r06_both_orders_of_packed_rows(count, width):
    packed = normal((3 * count * width, 5), 1)
    blocks = packed.reshape(3, count, width, 5)
    by_head = packed.reshape(count, 3, width, 5).swapaxes(0, 1)
    x = normal((4, 5), 2)
    for rows in (blocks, by_head):
        weights = {f"w_{name}": rows[i].reshape(-1, 5) for i, name in enumerate("qkv")}
        made = arrays_from({"x": x, **weights}, heads=count)
        for head in range(count):
            assert apart(made["k_heads"][head], x @ rows[1, head].T) < NEAR
    assert (apart(blocks, by_head) > 0) == (count > 1)


def test_r06_the_rows_by_head_are_those_of_the_grid():
    rows = grid((12, 4), a=5, c=2, m=13, den=8).reshape(2, 3, 2, 4)
    blocks, by_head = arrays_of("r06_block_rows"), arrays_of("r06_rows_by_head")
    for i, name in enumerate("qkv"):
        assert apart(by_head[f"w_{name}"], rows[:, i].reshape(4, 4)) == EXACT
    assert apart(blocks["output"], by_head["output"]) == pytest.approx(0.452077, abs=1e-6)


def test_r07_a_value_of_another_width_is_refused_by_name():
    said = []
    shapes = {"x": (2, 4), "x_k": (3, 3), "x_v": (3, 4), "w_q": (4, 4), "w_k": (4, 3), "w_v": (4, 5), "w_o": (4, 4)}
    raw = {"heads": 2, "parameters": {name: grid(shape).tolist() for name, shape in shapes.items()}}
    assert resolve(raw, "s", "c", Path(), LIMITS, lambda *problem: said.append(problem)) is None
    assert said[0][0] in (("parameters", "w_v"), ("parameters", "x_v")) and "d_vv" in said[0][1]


BIAS_CANCELS = [
    {},
    {"heads": 3},
    {"scale": -0.7},
    {"mask": {"causal": "top_left"}},
    {"alibi": {"slopes": "geometric"}},
    {"softmax": "hardmax"},
]
BIAS_SHOWS = [
    {"softcap": 1},
    {"extra_key": "zero"},
    {"bias_kv": True},
    {"sinks": [0, 1]},
    {"softmax": "plus_one"},
    {"rotary": {"pairing": "half", "dims": 2}},
    {"qk_norm": {"kind": "rms"}},
]


@pytest.mark.parametrize("options", BIAS_CANCELS + BIAS_SHOWS, ids=str)
def test_r08_a_key_bias_cancels_where_each_query_sees_it_with_every_key(options):
    shows = options in BIAS_SHOWS
    options, width = {"heads": 2, **options}, 12
    more = {"sinks": options.pop("sinks")} if "sinks" in options else {}
    if options.pop("bias_kv", False):
        more |= {"bias_k": normal((width,), 5), "bias_v": normal((width,), 6)}
    given = layer(width=width) | more
    bias = normal((width,), 7)
    moved = apart(arrays_from(given, **options)["output"], arrays_from(given | {"b_k": bias}, **options)["output"])
    assert moved > 1e-3 if shows else moved < NEAR
    assert apart(arrays_from(given, **options)["output"], arrays_from(given | {"b_q": bias}, **options)["output"]) > 1e-3


# B. Heads


@pytest.mark.parametrize(("count", "tokens", "width"), list(itertools.product((1, 2, 3), (1, 3), (1, 2))))
def test_r09_r10_a_head_is_its_own_columns_there_and_back(count, tokens, width):
    x = np.arange(2.0 * tokens * count * width).reshape(2, tokens, count * width)
    made = arrays_from({"x": x}, heads=count, mask={"keep": np.eye(tokens, dtype=int).tolist()})
    for head in range(count):
        assert apart(made["v_heads"][:, head], x[..., head * width : (head + 1) * width]) == EXACT
    assert apart(made["output"], x) == EXACT  # each token sees itself


def test_r10_faulty_split_and_merge_are_another_number_except_for_one_head():
    x = normal((3, 4), 1)
    reshaped = {count: x.reshape(count, -1, 4 // count) for count in (1, 2)}
    assert apart(reshaped[1], split_heads(x, 1)) == EXACT
    assert apart(reshaped[2], split_heads(x, 2)) > 0.1


def test_r11_changing_one_head_leaves_the_others_alone():
    given = heads(3, 3, count=3)
    before = arrays_from(given, heads=3)["contexts"]
    for name in given:
        changed = {**given, name: given[name] + (np.arange(3) == 1)[:, None, None] * normal(given[name].shape, 8)}
        after = arrays_from(changed, heads=3)["contexts"]
        assert apart(before[[0, 2]], after[[0, 2]]) < NEAR and apart(before[1], after[1]) > 1e-3


def test_r12_sequences_do_not_see_each_other():
    ours = arrays_of("r12_two_sequences")
    given = {name: ours[name] for name in ("x", "w_q", "w_k", "w_v", "w_o")}
    changed = arrays_from(given | {"x": ours["x"] + np.array([0, 1])[:, None, None]}, heads=2)
    assert apart(ours["output"][0], changed["output"][0]) < NEAR and apart(ours["output"][1], changed["output"][1]) > 0.1
    across = arrays_from(given | {"x": ours["x"].swapaxes(0, 1)}, heads=2)["output"].swapaxes(0, 1)  # the fault: attention over the batch
    assert apart(ours["output"], across) == pytest.approx(1.807, abs=5e-4)
    one = arrays_from(given | {"x": ours["x"][:1].swapaxes(0, 1)}, heads=2)
    assert apart(one["output"], one["v"] @ ours["w_o"].T) < NEAR  # with one sequence every token would see only itself


def attention_of_torch(parameters: dict[str, np.ndarray], count: int, batch_first: bool, **call) -> tuple[np.ndarray, np.ndarray]:
    """Output and weights of torch.nn.MultiheadAttention on the parameters of a layer."""
    p = {name: torch.from_numpy(np.array(parameters[name])) for name in ("x", "w_q", "w_k", "w_v", "w_o")}
    module = torch.nn.MultiheadAttention(p["x"].shape[-1], count, bias=False, batch_first=batch_first, dtype=torch.float64).eval()
    module.load_state_dict({"in_proj_weight": torch.cat([p["w_q"], p["w_k"], p["w_v"]]), "out_proj.weight": p["w_o"]})
    x = p["x"] if batch_first else p["x"].transpose(0, 1)
    with torch.no_grad():
        output, weights = module(x, x, x, **call)
    return (output if batch_first else output.transpose(0, 1)).numpy(), weights.numpy()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("blocked", [None, [[0, 0, 1], [0, 0, 0]], [[0, 1, 0], [0, 0, 1]]])
def test_r13_both_layouts_of_torch_with_padding(batch_first, blocked):
    given = layer(tokens=3)
    ours = arrays_from(given, heads=2, mask={"key_block": blocked} if blocked else {})
    padding = {"key_padding_mask": torch.tensor(blocked).bool()} if blocked else {}
    output, weights = attention_of_torch(given, 2, batch_first, average_attn_weights=False, **padding)
    assert apart(ours["output"], output) < NEAR and apart(ours["weights"], weights) < NEAR


# C. Scale


@pytest.mark.parametrize(("count", "width"), [(1, 1), (1, 4), (2, 2), (4, 3), (3, 5)])
def test_r14_r15_r17_scales_are_these_multiples_of_each_other(count, width):
    given = heads(3, 4, count, width)
    right = arrays_from(given, heads=count)
    assert apart(right["scaled"], right["qk"] / width**0.5) < NEAR
    assert apart(right["scaled"] / count**0.5, arrays_from(given, heads=count, scale="1/sqrt(d_model)")["scaled"]) < NEAR
    assert apart(right["scaled"] * width, arrays_from(given, heads=count, scale=width**0.5)["scaled"]) < NEAR
    assert apart(right["qk"], arrays_from(given, heads=count, scale="none")["scaled"]) == EXACT


def test_r14_a_larger_divisor_flattens():
    rows = (arrays_of(f"r14_root_of_{which}_width")["weights"] for which in ("head", "whole"))
    right, slip = (-(w * np.log(w)).sum(axis=-1) for w in rows)
    assert (slip > right).all()


def test_r17_the_scale_goes_by_the_keys_not_by_the_values():
    ours = arrays_of("r17_wider_values")
    given = {name: ours[name] for name in ("q_heads", "k_heads", "v_heads")}
    assert apart(ours["contexts"], arrays_from(given, heads=2, scale=3**-0.5)["contexts"]) == pytest.approx(0.0501, abs=5e-5)


# D. Masks


def test_r18_keep_is_block_turned_over():
    for seed in range(5):
        keep = (normal((3, 4), seed) > 0).astype(int)
        given = heads(3, 4)
        kept = arrays_from(given, heads=2, mask={"keep": keep.tolist()})
        blocked = arrays_from(given, heads=2, mask={"block": (1 - keep).tolist()})
        assert apart(kept["contexts"], blocked["contexts"]) == EXACT
        assert not kept["weights"][:, keep == 0].any()


@pytest.mark.parametrize("tokens", range(1, 9))
def test_r19_the_look_ahead_mask_of_each_length(tokens):
    keep = arrays_from(heads(tokens, tokens), heads=2, mask={"causal": "top_left"})["keep"][0]
    assert keep.tolist() == [[j <= i for j in range(tokens)] for i in range(tokens)]
    helper = torch.nn.Transformer.generate_square_subsequent_mask(tokens)
    assert np.array_equal(np.where(keep, 0, -np.inf), helper.numpy())


@pytest.mark.filterwarnings("ignore:Lower right causal bias")
@pytest.mark.parametrize(("queries", "keys"), list(itertools.product((1, 2, 5), (1, 2, 5))))
def test_r20_r21_both_alignments_are_rows_of_the_square_mask(queries, keys):
    most = max(queries, keys)
    square = np.tri(most, dtype=bool)
    given = heads(queries, keys)
    made = {align: arrays_from(given, heads=2, mask={"causal": align}) for align in ("top_left", "bottom_right")}
    assert np.array_equal(made["top_left"]["keep"][0], square[:queries, :keys])
    assert np.array_equal(made["bottom_right"]["keep"][0], square[-queries:, -keys:])
    q, k, v = (torch.from_numpy(given[name])[None] for name in ("q_heads", "k_heads", "v_heads"))
    lower_right = scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(queries, keys))[0].numpy()
    assert apart(made["bottom_right"]["contexts"], lower_right) < NEAR
    assert apart(made["top_left"]["contexts"], scaled_dot_product_attention(q, k, v, is_causal=True)[0].numpy()) < NEAR
    empty = ~made["bottom_right"]["keep"][0].any(axis=-1)
    assert empty.sum() == max(queries - keys, 0) and not made["bottom_right"]["contexts"][:, empty].any()
    assert made["top_left"]["keep"].any(axis=-1).all()


OPTIONS = {
    "softcap": {"softcap": 2},
    "hardmax": {"softmax": "hardmax"},
    "plus_one": {"softmax": "plus_one"},
    "rotary": {"rotary": {"pairing": "half"}},
    "alibi": {"alibi": {"slopes": "interleaved"}},
    "qk_norm": {"qk_norm": {"kind": "l2"}},
    "no_scale": {"scale": "none"},
    "float32": {"dtype": "float32"},
    "float16": {"dtype": "float16"},
    "backward": {"backward": "ones"},
    "finite_fill": {"mask": {"fill": "finfo_min"}},
    "bfloat16": {"dtype": "bfloat16"},
    "plain": {},
}
BESIDES = {"nothing": {}, "sinks": {"sinks": [1, -1]}, "dropout": {"dropout_keep": np.ones((2, 4, 4), dtype=int)}}
TOGETHER = [(option, more) for option in OPTIONS for more in BESIDES if not ("softmax" in OPTIONS[option] and more == "sinks")]


@pytest.mark.parametrize("masked", [{"causal": "top_left"}, {"causal": "bottom_right"}, {"window": {"left": 1, "right": 0}}], ids=str)
@pytest.mark.parametrize(("option", "more"), TOGETHER)
def test_r22_no_other_option_drops_the_mask(masked, option, more):
    options = OPTIONS[option] | {"mask": masked | OPTIONS[option].get("mask", {})} | ({"dropout": 0.5} if more == "dropout" else {})
    given = heads(4, 4) | BESIDES[more]
    later = (np.arange(4) == 3)[:, None]
    changed = given | {name: given[name] + 2 * later for name in ("k_heads", "v_heads")}
    before, after = (arrays_from(each, heads=2, **options)["contexts"] for each in (given, changed))
    assert apart(before[:, :3], after[:, :3]) == EXACT
    assert apart(before[:, 3], after[:, 3]) > 1e-3


def test_r24_only_the_empty_row_depends_on_the_convention():
    made = {kind: arrays_of(f"r24_empty_row_{kind}") for kind in ("zero", "nan", "uniform", "finite_fill")}
    for arrays in made.values():
        assert apart(arrays["weights"][0, 1], made["zero"]["weights"][0, 1]) == EXACT
    assert made["zero"]["weights"][0, 0].tolist() == [0, 0, 0] and np.isnan(made["nan"]["weights"][0, 0]).all()
    assert apart(made["uniform"]["weights"][0, 0], np.full(3, 1 / 3)) < NEAR
    with pytest.raises(ValueError, match="no key left"):
        arrays_from(heads(2, 3), heads=2, mask={"keep": [[0, 0, 0], [1, 1, 1]], "empty_row": "error"})


def test_r24_torch_contradicts_itself():
    given = layer(batch=1, tokens=3)
    blocked = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 0, 0]]).bool()
    assert np.isnan(attention_of_torch(given, 2, True, attn_mask=blocked)[0][0, 0]).all()
    q, k, v = (torch.from_numpy(a)[None] for a in heads(3, 3).values())
    assert not scaled_dot_product_attention(q, k, v, attn_mask=~blocked)[0, :, 0].any()


def test_r25_a_boolean_mask_is_the_same_as_one_of_zeros_and_minus_infinity():
    for seed in range(5):
        keep = normal((3, 4), seed) > 0
        given = heads(3, 4)
        added = [[0 if seen else "-Infinity" for seen in row] for row in keep]
        masks = {"keep": keep.astype(int).tolist()}, {"add": added}
        boolean, floats = (arrays_from(given, heads=2, mask=mask) for mask in masks)
        assert apart(boolean["contexts"], floats["contexts"]) == EXACT and np.isfinite(boolean["contexts"]).all()


@pytest.mark.parametrize("lengths", list(itertools.product((1, 2, 4), repeat=2)))
def test_r26_padding_blocks_columns_never_rows(lengths):
    weights = arrays_from(layer(), heads=2, mask={"causal": "top_left", "key_lengths": list(lengths)})["weights"]
    assert apart(weights.sum(axis=-1), np.ones((2, 2, 4))) < NEAR
    for sequence, length in enumerate(lengths):
        assert not weights[sequence, :, :, length:].any()


SHIFT_SHOWS = ({"softmax": "plus_one"}, {"sinks": [1, 2]})


@pytest.mark.parametrize("options", [{}, {"softmax": "hardmax"}, {"softcap": 2}, {"mask": {"causal": "top_left"}}, *SHIFT_SHOWS], ids=str)
@pytest.mark.parametrize("constant", [0.25, -3, 100])
def test_r02_r03_r27_floats_are_added_and_a_constant_is_not_seen(options, constant):
    options = dict(options)
    given = heads(3, 4) | ({"sinks": options.pop("sinks")} if "sinks" in options else {})
    mask = options.pop("mask", {})
    plain = arrays_from(given, heads=2, mask=mask, **options)
    shifts = {"add": np.full((3, 4), constant).tolist()}, {"key_add": [constant] * 4}
    for shift in shifts:
        shifted = arrays_from(given, heads=2, mask=mask | shift, **options)
        moved = apart(plain["contexts"], shifted["contexts"])
        assert moved > 1e-3 if "sinks" in given or options.get("softmax") == "plus_one" else moved < NEAR
    if "sinks" not in given and "softmax" not in options:
        padded = arrays_from(given, heads=2, mask=mask | {"key_add": [0, constant, 1, -1]}, **options)
        assert apart(padded["weights"].sum(axis=-1), np.ones((2, 3))) < NEAR


@pytest.fixture
def encoder():
    """Runs one layer of torch's encoder, in evaluation and without gradients, by the fast path or not."""
    fast_before = torch.backends.mha.get_fastpath_enabled()

    def run(fast: bool, layers: int = 1, tokens: int = 3, **masks) -> torch.Tensor:
        torch.manual_seed(0)
        one = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0, batch_first=True, dtype=torch.float64)
        module = one if layers == 1 else torch.nn.TransformerEncoder(one, layers)
        torch.backends.mha.set_fastpath_enabled(fast)
        with torch.no_grad():
            return module.eval()(torch.from_numpy(grid((2, tokens, 4))), **masks)

    yield run
    torch.backends.mha.set_fastpath_enabled(fast_before)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_r27_the_fast_path_of_torch_reads_floats_as_yes_or_no(encoder):
    padding = {"src_key_padding_mask": torch.tensor([[0, 0, 1.0], [0, 0, 0]], dtype=torch.float64)}
    distance = (torch.arange(3)[:, None] - torch.arange(3)).abs().double()
    assert (encoder(True, **padding) - encoder(False, **padding)).abs().max() > 0.1
    assert (encoder(True, src_mask=-0.25 * distance) - encoder(False, src_mask=-0.25 * distance)).abs().max() > 0.1
    constant = {"src_mask": torch.full((3, 3), 0.25, dtype=torch.float64)}
    assert (encoder(False, **constant) - encoder(False)).abs().max() < NEAR  # the slow path is right: it adds


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_r28_only_rows_of_real_tokens_are_comparable(encoder):
    padding = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1]]).bool()
    fast, slow = (encoder(path, layers=2, tokens=4, src_key_padding_mask=padding) for path in (True, False))
    assert fast.shape == slow.shape == (2, 4, 4)
    assert (fast - slow)[~padding].abs().max() < NEAR and (fast - slow)[padding].abs().max() > 0.1


def test_r28_what_padding_holds_does_not_reach_real_rows():
    given = layer()
    mask = {"key_lengths": [2, 3]}
    padding = np.arange(4) >= np.array([[2], [3]])
    before = arrays_from(given, heads=2, mask=mask)["output"]
    after = arrays_from(given | {"x": given["x"] + 5 * padding[..., None]}, heads=2, mask=mask)["output"]
    assert apart(before[~padding], after[~padding]) < NEAR


def test_r29_each_sequence_keeps_its_own_mask():
    ours = arrays_of("r29_mask_by_sequence")
    given = {name: ours[name] for name in ("x", "w_q", "w_k", "w_v", "w_o")}
    for sequence in range(2):
        block = ours["mask_block"][sequence, 0].astype(int).tolist()
        alone = arrays_from(given | {"x": ours["x"][sequence]}, heads=2, mask={"block": block})
        assert apart(alone["output"], ours["output"][sequence]) < NEAR
    tiled = np.broadcast_to(ours["mask_block"][:, 0], (2, 2, 3, 3)).astype(int).tolist()  # the fault: mask of head h is that of sequence h
    assert apart(arrays_from(given, heads=2, mask={"block": tiled})["output"], ours["output"]) == pytest.approx(1.930, abs=5e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("fill", ["finfo_min", "-inf"])
def test_r31_masks_are_filled_once_whatever_the_type(dtype, fill):
    mask = {"causal": "top_left", "key_block": [1, 0, 0], "window": {"left": 1}, "keep": [[0, 0, 0], [1, 1, 1], [1, 1, 1]], "fill": fill}
    made = arrays_from(heads(3, 3), heads=2, dtype=dtype, mask=mask)
    lowest = {"float64": np.finfo("f8").min, "float32": np.finfo("f4").min, "float16": -65504.0, "bfloat16": -3.3895313892515355e38}[dtype]
    assert set(made["masked"][~made["keep"]].tolist()) == {lowest if fill == "finfo_min" else -np.inf}
    assert np.isfinite(made["contexts"].astype(float)).all()
    assert apart(made["weights"][:, 1:], made["weights"][:, 1:] * made["keep"][:, 1:]) == EXACT


def test_r32_r33_what_a_fill_becomes_in_each_type():
    assert float(np.float64(-1e9).astype(bfloat16)) == -998244352
    with np.errstate(over="ignore"):
        assert np.float64(-1e5).astype(np.float16) == -np.inf and np.float64(np.finfo("f8").min).astype(np.float32) == -np.inf
        assert np.finfo("f4").min + np.finfo("f4").min == -np.inf


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_r34_nan_behind_the_mask(dtype):
    given, mask = heads(3, 4), {"keep": [[1, 1, 0, 1]] * 3}
    clean = arrays_from(given, heads=2, dtype=dtype, mask=mask)["contexts"]
    holes = {name: given[name].tolist() for name in ("q_heads", "k_heads", "v_heads")}
    holes["k_heads"][1][2][0] = "NaN"
    assert apart(clean, arrays_from(given | {"k_heads": holes["k_heads"]}, heads=2, dtype=dtype, mask=mask)["contexts"]) == EXACT
    holes["v_heads"][1][2][0] = "NaN"
    through = np.isnan(arrays_from(given | {"v_heads": holes["v_heads"]}, heads=2, dtype=dtype, mask=mask)["contexts"])
    assert through[1, :, 0].all() and through.sum() == 3
    holes["q_heads"][0][1][0] = "NaN"
    through = np.isnan(arrays_from(given | {"q_heads": holes["q_heads"]}, heads=2, dtype=dtype, mask=mask)["contexts"])
    assert through[0, 1].all() and through.sum() == 3


def test_r34_a_fused_kernel_of_torch_hides_nan():
    q = torch.arange(8.0, dtype=torch.float64).view(1, 1, 2, 4)
    hole = q.index_fill(-2, torch.tensor(0), torch.nan)
    for backend, hidden in ((SDPBackend.FLASH_ATTENTION, True), (SDPBackend.MATH, False)):
        with sdpa_kernel(backend):
            assert scaled_dot_product_attention(hole, q, q)[0, 0, 0].isnan().logical_not().all() == hidden


def test_r32_torch_adds_a_fill_in_float32():
    ours = arrays_of("r32_half_added")
    q, k, v = (torch.from_numpy(ours[name].copy()).half()[None] for name in ("q_heads", "k_heads", "v_heads"))
    added = torch.tensor([[-65504.0] * 3, [0] * 3]).half()
    assert apart(ours["contexts"], scaled_dot_product_attention(q, k, v, attn_mask=added)[0].numpy()) < 1e-3


def test_r36_masking_afterwards_is_the_same_once_divided():
    for seed in range(5):
        scores, keep = 3 * normal((2, 3, 5), seed), normal((3, 5), seed + 9) > -0.5
        keep[:, 0] = True
        before = softmax(np.where(keep, scores, -np.inf))
        after = softmax(scores) * keep
        assert after.sum(axis=-1).max() <= 1 and apart(before, after / after.sum(axis=-1, keepdims=True)) < NEAR
    kept = softmax(np.array([[[3.0, 1, 2]]]))[0, 0, [0, 2]].sum()
    assert kept == pytest.approx(0.909969, abs=1e-6)
    assert not (softmax(np.array([[[0.0, 1, 800]]])) * [1, 1, 0]).any()  # nothing left to divide by


# E. Softmax


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 4), (3, 3), (5, 2)])
def test_r37_weights_of_each_query_sum_to_one(queries, keys):
    made = arrays_from(heads(queries, keys), heads=2)["weights"]
    assert apart(made.sum(axis=-1), np.ones((2, queries))) < NEAR
    assert queries == 1 or apart(made.sum(axis=-2), np.ones((2, keys))) > 1e-3


@pytest.mark.parametrize("cap", [0.5, 2, 50])
def test_r38_a_blocked_key_gets_nothing_whatever_the_cap(cap):
    made = arrays_from(heads(3, 4), heads=2, softcap=cap, scale=4, mask={"causal": "top_left"})
    assert not made["weights"][~made["keep"]].any()
    assert apart(made["scaled"], 4 * made["qk"]) == EXACT and np.abs(made["capped"]).max() <= cap
    assert (made["masked"] == np.where(made["keep"], made["capped"], -np.inf)).all()


def test_r40_the_one_is_shifted_with_the_scores():
    scores = normal((2, 3, 4), 1)
    for shift in (-5, 0, 3):
        weights = arrays_from({"scaled": scores + shift}, heads=2, softmax="plus_one")["weights"]
        e = np.exp(scores + shift)
        assert apart(weights, e / (1 + e.sum(axis=-1, keepdims=True))) < NEAR
    for far, total in ((1000, 1), (-1000, 0)):
        assert arrays_from({"scaled": scores + far}, heads=2, softmax="plus_one")["weights"].sum(axis=-1) == pytest.approx(total)


def test_r41_a_sink_is_a_key_whose_weight_is_thrown_away():
    given, sinks = heads(3, 4), [2, -1]
    made = arrays_from(given | {"sinks": sinks}, heads=2, mask={"causal": "top_left"})
    column = np.broadcast_to(np.array(sinks)[:, None, None], (2, 3, 1))
    assert apart(made["weights"], softmax(np.concatenate([made["masked"], column], axis=-1))[..., :-1]) < NEAR
    assert (made["weights"].sum(axis=-1) < 1).all()
    sums = arrays_of("r41_sink_of_each_head")["weights"].sum(axis=-1)
    assert apart(sums, np.array([[0.193805, 0.172068, 0.310438], [0.506932, 0.89087, 0.932701]])) < 1e-6
    ignored = arrays_from(given | {"sinks": [-1e4, -1e4]}, heads=2)["contexts"]
    assert apart(ignored, arrays_from(given, heads=2)["contexts"]) < NEAR


def test_r42_weights_are_those_before_dropout():
    made = arrays_of("r42_training")
    assert apart(made["weights"], arrays_of("r42_evaluation")["weights"]) == EXACT
    averaged = made["dropped"].sum(axis=-1).mean(axis=1).ravel()  # the report shows the mean over heads
    assert apart(averaged, np.array([1.25, 1.25, 1.25, 0.650899, 0.625, 0.701625])) < 1e-6
    module = torch.nn.MultiheadAttention(4, 2, dropout=0.2, bias=False, batch_first=True, dtype=torch.float64)
    x = torch.from_numpy(np.array(made["x"]))
    with torch.no_grad():
        for train in (True, False):
            sums = module.train(train)(x, x, x)[1].sum(dim=-1)
            assert (apart(sums.numpy(), np.ones((2, 3))) < NEAR) == (not train)


def test_r43_dropout_is_given_so_that_two_runs_are_one():
    q, k, v = (torch.from_numpy(a)[None] for a in heads(4, 4).values())
    torch.manual_seed(0)
    first, second = (scaled_dot_product_attention(q, k, v, dropout_p=0.5) for _ in range(2))
    assert not torch.equal(first, second)  # torch draws anew each time
    case = CASES["r42_training"]
    assert all(np.array_equal(a, b) for a, b in zip(compute(case).values(), compute(case).values(), strict=True))


def test_r44_the_mean_over_heads_is_another_array():
    ours = arrays_of("r44_per_head")
    assert apart(ours["weights"][:, 0], ours["weights"][:, 1]) == pytest.approx(0.356, abs=5e-4)
    averaged = attention_of_torch(ours, 2, True)[1]
    assert averaged.shape == (2, 3, 3) and apart(averaged, ours["weights"].mean(axis=1)) < NEAR
    hand = arrays_of("r01_square_weights")["weights"].mean(axis=0)  # R01 gives this mean, too
    assert apart(hand, np.array([[0.000375, 0.999625], [0.073635, 0.926365]])) < 1e-6


# F. Positions


@pytest.mark.parametrize("width", [2, 4, 8])
def test_r45_one_pairing_is_the_other_with_columns_reordered(width):
    x, positions = normal((2, 3, width), 1), np.array([0, 1, 7])
    turned = angles(positions, frequencies(width, 10000.0, None)[0], np.dtype("float64"))
    order = np.arange(width).reshape(-1, 2).T.ravel()
    half = rotate(x[..., order], np.cos(turned), np.sin(turned), "half")
    assert apart(half, rotate(x, np.cos(turned), np.sin(turned), "interleaved")[..., order]) == EXACT
    given = heads(3, 3, width=width)
    reordered = given | {name: given[name][..., order] for name in ("q_heads", "k_heads")}
    neighbours = arrays_from(given, heads=2, rotary={"pairing": "interleaved"})
    assert apart(neighbours["qk"], arrays_from(reordered, heads=2, rotary={"pairing": "half"})["qk"]) < NEAR


def test_r45_both_pairings_see_differences_of_positions_only():
    for pairing, width in itertools.product(("half", "interleaved"), (2, 6)):
        given = heads(3, 4, width=width)
        near, far = (arrays_from(given, heads=2, rotary={"pairing": pairing}, positions={"offset": n}) for n in (0, 50))
        assert apart(near["qk"], far["qk"]) < NEAR and apart(near["q_rot"], far["q_rot"]) > 0.1


@pytest.mark.parametrize(("dtype", "error"), [("float32", 6.5e-5), ("float16", 0.7819), ("bfloat16", 1.997)])
def test_r47_errors_of_the_cosine_at_2048_tokens(dtype, error):
    theta = frequencies(32, 10000.0, None)[0]
    exact, rounded = (np.cos(angles(np.arange(2048), theta, np.dtype(kind))).astype(np.dtype(kind)) for kind in ("float64", dtype))
    assert apart(exact, rounded) == pytest.approx(error, rel=1e-2 if dtype == "float32" else 3e-4)
    assert apart(exact, np.cos(np.outer(np.arange(2048), 10000.0 ** (-np.arange(16) / 16)))) < 1e-9


@pytest.mark.parametrize("count", range(1, 21))
def test_r48_slopes_of_any_number_of_heads(count):
    below = 2 ** (count.bit_length() - 1)
    rule, plain = alibi_slopes(count, "interleaved"), alibi_slopes(count, "geometric")
    assert apart(plain, 2.0 ** (-8 * np.arange(1, count + 1) / count)) < NEAR
    assert apart(rule[:below], alibi_slopes(below, "geometric")) == EXACT
    assert apart(rule[below:], alibi_slopes(2 * below, "geometric")[::2][: count - below]) == EXACT
    assert len(set(rule)) == count and (apart(rule, plain) == 0) == (count == below)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_r49_the_forms_of_the_bias_agree_under_causal_only(count):
    given = heads(4, 4, count)
    forms = ("distance", "relative", "key_index")

    def contexts(mask: dict, **more) -> list[np.ndarray]:
        options = {"heads": count, "mask": mask, **more}
        return [arrays_from(given, alibi={"slopes": "interleaved", "form": form}, **options)["contexts"] for form in forms]

    distance, relative, key_index = contexts({"causal": "top_left"})
    assert apart(distance, relative) < NEAR and apart(distance, key_index) < NEAR
    assert apart(*(c for c in contexts({"causal": "top_left"}, dtype="float16")[1:])) < 0.01
    distance, relative, key_index = contexts({})
    assert apart(relative, key_index) < NEAR and apart(distance, key_index) > 1e-3
    slope = alibi_slopes(count, "interleaved")
    assert slope[0] == (0.5 if count == 8 else 2.0 ** (-8 / 2 ** (count.bit_length() - 1)))


def test_r49_gaps_of_the_report():
    causal, both = arrays_of("r49_distance"), arrays_of("r49_distance_both_ways")
    given = {name: causal[name] for name in ("q_heads", "k_heads", "v_heads")}
    turned = arrays_from(given | {"bias_table": -causal["bias"]}, heads=2, mask={"causal": "top_left"})
    assert apart(causal["contexts"], turned["contexts"]) == pytest.approx(0.0541, abs=5e-5)
    assert apart(both["contexts"], arrays_of("r49_key_index_both_ways")["contexts"]) == pytest.approx(0.0575, abs=5e-5)


@pytest.mark.parametrize("left", range(4))
def test_r50_a_window_counts_keys_to_the_left(left):
    for tokens in (1, 3, 6):
        keep = arrays_from(heads(tokens, tokens), heads=2, mask={"causal": "top_left", "window": {"left": left}})["keep"][0]
        assert keep.tolist() == [[i - left <= j <= i for j in range(tokens)] for i in range(tokens)]
        assert (keep.sum() == np.tri(tokens).sum()) == (tokens <= left + 1)  # a short sequence hides it


# G. Grouped heads and the cache


@pytest.mark.parametrize(("count", "kv_heads"), [(2, 1), (4, 2), (6, 2), (6, 3), (3, 3)])
def test_r52_a_group_is_a_block_of_query_heads(count, kv_heads):
    given = heads(3, 4, count, kv_heads=kv_heads)
    grouped = arrays_from(given, heads=count, kv_heads=kv_heads)["contexts"]
    each = {name: given[name][[head * kv_heads // count for head in range(count)]] for name in ("k_heads", "v_heads")}
    assert apart(grouped, arrays_from(given | each, heads=count)["contexts"]) == EXACT
    q, k, v = (torch.from_numpy(given[name])[None] for name in ("q_heads", "k_heads", "v_heads"))
    assert apart(grouped, scaled_dot_product_attention(q, k, v, enable_gqa=True)[0].numpy()) < NEAR
    tiled = {name: given[name][[head % kv_heads for head in range(count)]] for name in each}
    hidden = kv_heads in (1, count)  # one key head, or one for each query head
    assert (apart(grouped, arrays_from(given | tiled, heads=count)["contexts"]) < NEAR) == hidden


CACHED = {
    "plain": {},
    "half": {"rotary": {"pairing": "half"}},
    "interleaved": {"rotary": {"pairing": "interleaved", "dims": 2}},
    "alibi": {"alibi": {"slopes": "interleaved"}},
    "window": {"mask": {"window": {"left": 2, "align": "bottom_right"}}},
    "softcap": {"softcap": 1},
    "plus_one": {"softmax": "plus_one"},
    "qk_norm": {"qk_norm": {"kind": "rms"}, "rotary": {"pairing": "half"}},
    "grouped": {"kv_heads": 1},
}


@pytest.mark.parametrize("options", CACHED.values(), ids=CACHED)
@pytest.mark.parametrize("chunks", [[1, 1, 1, 1, 1], [3, 2], [2, 1, 2], [4, 1]], ids=str)
def test_r54_r55_r56_decoding_is_the_full_run(options, chunks):
    options = {"kv_heads": 2, **options, "mask": {"causal": "bottom_right", **options.get("mask", {})}}
    given = heads(5, 5, kv_heads=options["kv_heads"])
    full = arrays_from(given, heads=2, **options)
    past, start, rows = {}, 0, []
    for size in chunks:
        new = {name: given[name][:, start : start + size] for name in ("q_heads", "k_heads", "v_heads")}
        made = arrays_from(new | past, heads=2, **options)
        rows.append(made["contexts"])
        keys = made.get("present_k", made.get("k_rot", made.get("k_norm", made["k_heads"])))
        past = {"past_k": keys, "past_v": made.get("present_v", made["v_heads"])}
        start += size
    assert apart(np.concatenate(rows, axis=1), full["contexts"]) < NEAR


def test_r54_another_position_is_another_number():
    right = arrays_of("r54_decoding_step")
    assert apart(right["output"][0], arrays_of("r54_full_run")["output"][2]) < NEAR
    assert apart(right["past_k"], arrays_of("r54_full_run")["k_rot"][:, :2]) < NEAR
    for slip in ("position_zero", "query_one_too_far"):
        assert apart(right["output"], arrays_of(f"r54_{slip}")["output"]) > 1e-3


# H. Numbers


def test_r58_errors_of_each_precision():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((4, 128, 64)) for _ in range(3))

    def contexts(dtype: str, q=q, k=k, v=v) -> np.ndarray:
        sizes, names = {"Lq": 128, "Lk": 128, "d_k": 64}, ("q_heads", "k_heads", "v_heads")
        case = resolved({"heads": 4, "dtype": dtype, "sizes": sizes, "parameters": dict.fromkeys(names, {"grid": {}})})
        arrays = {name: a.astype(dtype) for name, a in zip(names, (q, k, v), strict=True)}
        return compute_from(case, arrays)["contexts"]

    for dtype, most in (("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 1e-2)):
        rounded = [a.astype(np.dtype(dtype)).astype(np.float64) for a in (q, k, v)]
        ours = contexts(dtype)
        error = apart(ours, contexts("float64", *rounded))
        assert most / 1e4 < error < most
        if dtype == "bfloat16":
            assert apart(ours, contexts("float64")) > error  # rounding the inputs is not the kernel's error


def compute_from(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every array of the case, from these parameters in place of its own."""
    from worked_attention.stages import contexts, outputs, projections, scores, weights

    for stage in (projections, scores, weights, contexts, outputs):
        arrays = arrays | stage.stage(case, arrays)
    return arrays


def test_r59_the_comparison_is_absolute_symmetric_and_strict():
    def verdict(a, b, gate=1e-12) -> str:
        near = Gate(gate, source=1.0)  # numbers of about 1 that cancelled
        both = {compare_arrays(x, y, near)["verdict"] for x, y in ((np.array(a), np.array(b)), (np.array(b), np.array(a)))}
        assert len(both) == 1
        return both.pop()

    assert verdict([6.9e-18, -3.5e-18], [0.0, 0.0]) == "pass"
    relative = {"rtol": 1e-4, "atol": 1.9776e-5}  # of the second number, so that the order decides
    assert np.isclose(0.142219, 0.142253, **relative) and not np.isclose(0.142253, 0.142219, **relative)
    assert verdict([0.142253], [0.142219], 3.3e-5) == "fail" and verdict([0.142253], [0.142219], 3.5e-5) == "pass"
    assert verdict([1e-9], [2e-9]) == "fail"
    assert verdict(np.ones((2, 3)), np.ones(3)) == "fail"
    assert verdict([np.nan, 1], [np.nan, 1]) == "pass"
    assert verdict([np.nan, 1], [1, np.nan]) == verdict([np.nan], [0.0]) == "fail"
    assert verdict([np.inf], [-np.inf]) == "fail" and verdict([np.inf], [1e308]) == "fail"
    last = np.zeros(100)
    last[99] = 1e-3
    assert verdict(np.zeros(100), last) == "fail"  # every element counts, not the first rows


@pytest.mark.parametrize("threads", ["1", "2"])
def test_r60_the_number_of_threads_stays_within_the_gate(threads, tmp_path):
    script = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        import numpy as np
        a = np.random.default_rng(0).standard_normal((3, 64, 64))
        from worked_attention.stages.scores import products
        np.save(sys.argv[2], products(a, a))
    """
    file = tmp_path / "products.npy"
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    command = [sys.executable, "-c", script, str(ROOT / "workflow" / "scripts"), str(file)]
    subprocess.run(command, env={**os.environ, **variables}, check=True)
    a = np.random.default_rng(0).standard_normal((3, 64, 64))
    assert apart(np.load(file), np.einsum("hid,hjd->hij", a, a)) < NEAR


def test_r61_a_row_alone_or_padded_stays_within_the_gate():
    given = heads(9, 7, width=64)
    full, near = arrays_from(given, heads=2)["contexts"], Gate(NEAR)
    rows = [arrays_from(given | {"q_heads": given["q_heads"][:, i : i + 1]}, heads=2)["contexts"] for i in range(9)]
    assert compare_arrays(full, np.concatenate(rows, axis=1), near)["verdict"] == "pass"
    padded = {name: np.concatenate([given[name], normal((2, 4, given[name].shape[-1]), 5)], axis=1) for name in ("k_heads", "v_heads")}
    assert compare_arrays(full, arrays_from(given | padded, heads=2, mask={"key_lengths": [7]})["contexts"], near)["verdict"] == "pass"
    order = [3, 1, 4, 0, 6, 2, 5]
    permuted = given | {name: given[name][:, order] for name in ("k_heads", "v_heads")}
    assert compare_arrays(full, arrays_from(permuted, heads=2)["contexts"], near)["verdict"] == "pass"


def test_r62_a_seed_needs_its_shape_and_type_but_a_grid_does_not():
    def draw(*shape: int, dtype=torch.float32) -> torch.Tensor:
        return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(10))

    assert not torch.equal(draw(16)[:15], draw(15))
    assert not torch.allclose(draw(16, dtype=torch.float64).float(), draw(16))
    assert apart(arrays_of("r62_seed_ten")["x"], draw(1, 3).numpy()) == EXACT
    assert np.array_equal(grid((16,))[:15], grid((15,))) and np.array_equal(grid((4, 4)).ravel(), grid((16,)))
    assert np.array_equal(normal((3, 5), 10), normal((3, 5), 10))
