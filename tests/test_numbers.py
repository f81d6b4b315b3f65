"""The two articles' numbers, and closed forms that need no reference.

tests/data holds the articles' parameters and right values, computed once outside this project and typed in here.
"""

import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shipped import shipped
from strategies import resolved

from worked_attention.referee.claims import check_claim
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import split_heads
from worked_attention.stages.weights import softmax
from worked_attention.stages.whole import compute

LIMITS = {"max_array_mb": 256}


def data(name: str) -> dict:
    return json.loads((Path(__file__).parent / "data" / f"{name}.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def handworked() -> dict[str, dict[str, np.ndarray]]:
    cases = shipped("handworked")["cases"]
    return {name: compute(case) for name, case in cases.items()}


@pytest.fixture(scope="module")
def tutorial() -> dict[str, tuple[dict, dict[str, np.ndarray]]]:
    cases = shipped("tutorial")["cases"]
    return {name: (case, compute(case)) for name, case in cases.items()}


def same(ours: np.ndarray, theirs: list, digits: int = 12) -> None:
    assert ours.shape == np.shape(theirs)
    np.testing.assert_allclose(ours.astype(float), theirs, rtol=0, atol=0.5001 * 10.0**-digits)


# The hand-worked case


def test_the_parameters_are_the_articles(handworked):
    for name, value in data("handworked")["parameters"].items():
        if name != "num_heads":
            assert handworked["two_heads"][name].tolist() == value


@pytest.mark.parametrize("name", ["q", "k", "v", "concat", "output"])
def test_every_value_to_twelve_digits(handworked, name):
    same(handworked["two_heads"][name], data("handworked")[name])


@pytest.mark.parametrize(("ours", "theirs"), [("qk", "raw"), ("scaled", "scaled"), ("weights", "weights"), ("contexts", "context")])
def test_every_value_of_each_head_to_twelve_digits(handworked, ours, theirs):
    same(handworked["two_heads"][ours], [head[theirs] for head in data("handworked")["per_head"]])


PRINTED = {
    "q1": ("q", (0,)),
    "k": ("k", ()),
    "head0_raw": ("qk", (0, 0)),
    "head0_scaled": ("scaled", (0, 0)),
    "head0_weights": ("weights", (0, 0)),
    "head0_values": ("v_heads", (0,)),
    "head0_context": ("contexts", (0, 0)),
    "head1_context": ("contexts", (1, 0)),
    "concat": ("concat", (0,)),
    "output": ("output", (0,)),
}


@pytest.mark.parametrize("printed", PRINTED)
def test_the_printed_values_to_four_decimals(handworked, printed):
    assert set(PRINTED) == set(data("handworked")["printed_first_query"])
    array, at = PRINTED[printed]
    rounded = [float(Decimal(v).quantize(Decimal("0.0001"), ROUND_HALF_UP)) for v in handworked["two_heads"][array][at].ravel().tolist()]
    assert rounded == np.ravel(data("handworked")["printed_first_query"][printed]).tolist()


def test_shapes_and_counts_of_the_article():
    case = shipped("handworked")["cases"]["two_heads"]
    for names, shape in data("handworked")["shapes"].items():
        for name in names.split(",") if isinstance(shape, list) else []:
            assert case["shapes"][{"raw": "qk"}.get(name, name)] == shape
    assert case["parameter_count"] == data("handworked")["shapes"]["parameter_count"] == 80
    assert case["multiply_adds"]["projections"] == 3 * 3 * 4 * 4
    assert case["multiply_adds"]["scores"] == case["multiply_adds"]["contexts"] == 2 * 3 * 3 * 2
    assert case["multiply_adds"]["outputs"] == 3 * 4 * 4
    assert case["bytes"]["weights"] == 2 * 3 * 3 * 8


# The variants of the hand-worked case


def test_permuted_tokens_give_the_same_rows_in_the_new_order(handworked):
    order = [2, 0, 1]
    np.testing.assert_allclose(handworked["permuted_tokens"]["output"], handworked["two_heads"]["output"][order], rtol=0, atol=1e-15)


def test_a_sequence_in_a_batch_gives_what_it_gives_alone(handworked):
    for name in ("q_heads", "weights", "contexts", "output"):
        np.testing.assert_allclose(handworked["batched"][name][0], handworked["two_heads"][name], rtol=0, atol=1e-15)


def test_without_output_projection_the_output_is_concat(handworked):
    assert np.array_equal(handworked["without_output_projection"]["output"], handworked["two_heads"]["concat"])


def test_one_head_divides_by_two(handworked):
    a = handworked["one_head"]
    np.testing.assert_allclose(a["scaled"], a["q"] @ a["k"].T[None] / 2, rtol=0, atol=1e-15)


def test_without_bias_is_linear(handworked):
    a = handworked["without_bias"]
    np.testing.assert_allclose(a["q"], a["x"] @ a["w_q"].T, rtol=0, atol=1e-15)
    assert not any(name.startswith("b_") for name in a)


# The tutorial


def test_identity_attention(tutorial):
    theirs, (_, ours) = data("tutorial")["identity_attention"], tutorial["identity_attention"]
    same(ours["x"], theirs["x"])
    same(ours["qk"][0], theirs["raw"])
    same(ours["weights"][0], theirs["weights"])
    same(ours["output"], theirs["output"])


def test_seeded_projection(tutorial):
    theirs, (case, ours) = data("tutorial")["seeded_projection"], tutorial["seeded_projection"]
    assert {array.dtype.name for array in ours.values()} == {"float32"}
    same(ours["x"], theirs["x"], digits=7)
    same(ours["q"][0], theirs["q_row0"], digits=6)
    same(ours["weights"][0, 0], theirs["weights_row0"], digits=6)
    same(ours["output"][0], theirs["output_row0"], digits=6)
    assert case["dims"]["d_k"] == 6


def test_seeded_multihead(tutorial):
    case, ours = tutorial["seeded_multihead"]
    assert ours["output"].shape == (4, 8)
    assert ours["weights"].shape == (2, 4, 4)
    assert case["parameter_count"] == 4 * 8 * 8


def test_seeded_multihead_is_drawn_as_the_articles_code_draws(tutorial):
    """Four bias-free Linear layers, made before the input is drawn; heads by view and transpose, softmax over the keys."""
    _, ours = tutorial["seeded_multihead"]
    torch.manual_seed(0)
    w_q, w_k, w_v, w_o = (torch.nn.Linear(8, 8, bias=False) for _ in range(4))
    x = torch.randn(4, 8)
    with torch.no_grad():
        q, k, v = (layer(x).view(4, 2, 4).transpose(0, 1) for layer in (w_q, w_k, w_v))
        weights = torch.softmax(q @ k.transpose(-2, -1) / 4**0.5, dim=-1)
        output = w_o((weights @ v).transpose(0, 1).reshape(4, 8))
    np.testing.assert_array_equal(ours["x"], x.numpy())
    np.testing.assert_allclose(ours["output"], output.numpy(), rtol=0, atol=2e-7)


@pytest.mark.parametrize(("figure", "wrong"), [("figure_1_2", 8), ("figure_3_2", 13)])
def test_the_figures_weights_and_their_errata(tutorial, figure, wrong):
    theirs, (case, ours) = data("tutorial")[figure], tutorial[figure]
    same(ours["scaled"][0], theirs["scores"])
    same(ours["weights"][0], theirs["right"])
    checked = [value for claim in case["claims"] for value in check_claim(claim, ours[claim["array"]])]
    assert [float(value["printed"]) for value in checked] == np.ravel(theirs["printed"]).tolist()
    assert sum(not value["agrees"] for value in checked) == wrong
    right = np.ravel(theirs["right"]).tolist()
    for value, exact in zip(checked, right, strict=True):
        assert value["agrees"] == (abs(float(value["printed"]) - exact) <= 0.005)
        assert value["right"] == pytest.approx(exact, abs=1e-12)


def layer(**sizes) -> dict:
    names = ["x", "w_q", "w_k", "w_v", "w_o"]
    heads = sizes.pop("heads", 1)
    return resolved({"heads": heads, "sizes": sizes, "parameters": {name: {"grid": {}} for name in names}, "dtype": "float32"})


def test_counts_of_the_articles():
    counts = data("tutorial")["counts"]
    assert layer(Lq=2, d_model=512, heads=8)["parameter_count"] == counts["parameters d_model 512, 4 matrices, no bias"] == 4 * 512**2
    for length in (4096, 32768):
        assert np.prod(layer(Lq=length, d_model=4)["shapes"]["qk"]) == counts[f"scores at L={length}, one head"]
    for name in ("transformer-base", "transformer-big"):
        model = counts[name]
        assert layer(Lq=2, d_model=model["d_model"], heads=model["h"])["dims"]["d_k"] == model["d_k"]


# Closed forms


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-700, 700), min_size=1, max_size=9), st.floats(-1e3, 1e3))
def test_rows_sum_to_one_and_a_constant_changes_nothing(row, constant):
    scores = np.array([[row]])
    assert softmax(scores).sum() == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(softmax(scores + constant), softmax(scores), rtol=0, atol=1e-12)


def test_uniform_scores_give_the_mean_of_the_values():
    case = resolved({"parameters": {"q": {"grid": {}}, "k": [[0.5, 0.5]] * 5, "v": {"normal": {"seed": 1}}}, "sizes": {"Lq": 3, "d_v": 4}})
    made = compute(case)
    np.testing.assert_allclose(made["output"], np.broadcast_to(made["v"].mean(axis=0), (3, 4)), rtol=0, atol=1e-15)


def test_one_key_gives_its_value():
    case = resolved({"parameters": {"q": {"grid": {}}, "k": [[3, -2]], "v": [[7, 8, 9]]}, "sizes": {"Lq": 4}})
    assert compute(case)["output"].tolist() == [[7, 8, 9]] * 4


def test_a_key_bias_changes_nothing(handworked):
    suite = shipped("handworked")["cases"]["two_heads"]
    moved = compute({**suite, "parameters": {**suite["parameters"], "b_k": [1, -2, 3, 0.5]}})
    assert not np.allclose(moved["scaled"], handworked["two_heads"]["scaled"])
    np.testing.assert_allclose(moved["output"], handworked["two_heads"]["output"], rtol=0, atol=1e-15)


def test_heads_split_and_merge_back():
    x = np.arange(24.0).reshape(1, 4, 6)
    assert split_heads(x, 3)[0, 1, 2].tolist() == [14, 15]
    assert np.array_equal(merge_heads(split_heads(x, 3)), x)
