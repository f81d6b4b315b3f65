"""Half precision as config/README says it: operands are widened and results rounded once; nothing is lost where a number fits.

Right values come from float64 and from fractions, rounded once at the end.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import resolved

from worked_attention.stages import backward, projections, scores
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute

HEADS = ("q_heads", "k_heads", "v_heads")


def case(q, k, v, **options) -> dict:
    """A case that begins at the heads."""
    parameters = dict(zip(HEADS, (q, k, v), strict=True)) | options.pop("parameters", {})
    return resolved({"scale": "none", "parameters": parameters, **options})


def once(x: np.ndarray, dtype) -> np.ndarray:
    """float64 rounded once."""
    return x.astype(np.float64).astype(dtype)


# Sums and gradients


def test_a_bias_gradient_in_bfloat16_does_not_stick_at_256():
    ones = {"sizes": {"Lq": 300, "Lk": 1, "d_out": 1}, "dtype": "bfloat16", "backward": "ones"}
    made = compute(case({"grid": {"m": 1}}, [[[0]]], [[[1]]], **ones, parameters={"w_o": [[1]], "b_o": [0]}))
    assert float(made["d_b_o"][0]) == 300


def test_sums_of_gradients_follow_precision_accumulate():
    ones = {"sizes": {"Lq": 300, "Lk": 1, "d_out": 1}, "dtype": "bfloat16", "backward": "ones", "precision": {"accumulate": "bfloat16"}}
    made = compute(case({"grid": {"m": 1}}, [[[0]]], [[[1]]], **ones, parameters={"w_o": [[1]], "b_o": [0]}))
    assert float(made["d_b_o"][0]) == 256  # which is what was asked for


def test_the_gradient_of_a_norm_in_float16_is_not_lost():
    given = {"dtype": "float16", "backward": "ones", "qk_norm": {"kind": "rms"}, "scale": "1/sqrt(d_k)"}
    made = compute(case([[[200, 180]]], [[[1, 2], [2, -1]]], [[[1], [5]]], **given))
    wide = compute(case([[[200, 180]]], [[[1, 2], [2, -1]]], [[[1], [5]]], **given | {"dtype": "float64"}))
    assert float(np.abs(wide["d_q_heads"]).max()) == pytest.approx(0.004, rel=0.1)
    np.testing.assert_allclose(made["d_q_heads"].astype(float), wide["d_q_heads"], rtol=0.02)


# Under- and overflow inside a stage


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 1e20), ("bfloat16", 1e20), ("float64", 1e200), ("float32", 1e-25), ("float64", 1e-200)]
)
@pytest.mark.parametrize("kind", ["rms", "l2"])
def test_a_norm_neither_over_nor_underflows(dtype, size, kind):
    x = np.array([[3.0, 4.0]]).astype(bfloat16 if dtype == "bfloat16" else dtype)
    scaled = (x.astype(np.float64) * size).astype(x.dtype)
    right = np.array([[3.0, 4.0]]) / (5 / 2**0.5 if kind == "rms" else 5)
    made = projections.norm(scaled, {"kind": kind, "eps": 0.0, "zero_vector": "zero"})
    np.testing.assert_allclose(made.astype(float), right, rtol=0.01 if dtype == "bfloat16" else 1e-6)


@pytest.mark.parametrize(("choice", "right"), [("zero", [0.0, 0.0]), ("nan", [np.nan, np.nan])])
def test_a_vector_of_zeros_under_a_norm_is_as_the_case_says(choice, right):
    made = projections.norm(np.zeros((1, 2)), {"kind": "l2", "eps": 0.0, "zero_vector": choice})
    np.testing.assert_array_equal(made, [right])


def test_a_zero_query_under_a_norm_weighs_its_keys_alike():
    made = compute(case([[[0, 0]]], [[[1, 0], [0, 2]]], [[[1], [2]]], qk_norm={"kind": "l2", "eps": 0}))
    assert made["output"].tolist() == [[1.5]]


def test_a_small_score_under_a_softcap_in_float16_is_rounded_once():
    score = np.float16(1e-4)
    assert scores.softcap(np.array([score]), 50.0)[0] == once(50 * np.tanh(np.array([float(score)]) / 50), np.float16)[0]


def test_a_row_that_overflows_is_no_empty_row():
    made = compute(case([[[300]]], [[[-300], [-301]]], [[[1], [1]]], dtype="float16"))
    assert np.isnan(made["weights"]).all() and np.isnan(made["output"]).all()  # kept in float16 both scores are -infinity


# Rounded once


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float16, bfloat16]))
def test_softcap_is_rounded_once(seed, dtype):
    x = once(np.random.default_rng(seed).normal(0, 20, 200), dtype)
    right = once(np.float32(30) * np.tanh(x.astype(np.float32) / np.float32(30)), dtype)
    np.testing.assert_array_equal(scores.softcap(x, 30.0), right)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["float16", "bfloat16"]), st.sampled_from(["half", "interleaved"]))
def test_a_rotation_loses_at_most_one_rounding(seed, dtype, pairing):
    kind = bfloat16 if dtype == "bfloat16" else np.float16
    x = once(np.random.default_rng(seed).normal(0, 1, (1, 3, 4)), kind)
    options = {"pairing": pairing, "base": 10000, "dims": 4, "angles": "float64", "scaling": None}
    from worked_attention.stages.positions import rotary

    wide = rotary(x.astype(np.float64), np.arange(3), options)
    ulp = np.abs(np.spacing(once(wide, kind).astype(np.float16 if dtype == "float16" else np.float32)))
    step = ulp.astype(float) * (1 if dtype == "float16" else 2**16)  # a bfloat16 has 16 bits fewer than a float32
    assert (np.abs(rotary(x, np.arange(3), options).astype(float) - wide) <= 0.51 * step + 1e-7).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_projection_with_bias_is_rounded_once(seed):
    rng = np.random.default_rng(seed)
    x, w, b = (rng.integers(-64, 64, shape).astype(np.float16) / np.float16(8) for shape in ((2, 5), (3, 5), (3,)))
    exact = [[sum(Fraction(float(a)) * Fraction(float(c)) for a, c in zip(row, col, strict=True)) for col in w] for row in x]
    right = [[np.float16(float(value + Fraction(float(bias)))) for value, bias in zip(row, b, strict=True)] for row in exact]
    np.testing.assert_array_equal(projections.project(x, w, b, "float32"), right)


# Arrays keep the dtype of the case


@pytest.mark.parametrize("accumulate", ["float16", "bfloat16", "float64"])
def test_arrays_keep_the_dtype_of_the_case(accumulate):
    options = {"dtype": "float32", "precision": {"accumulate": accumulate}, "sizes": {"Lq": 3, "d_k": 2}, "backward": "ones"}
    made = compute(case({"grid": {}}, {"grid": {"a": 5}}, {"grid": {"a": 3}}, **options, parameters={"w_o": {"grid": {}}}))
    assert {array.dtype.name for array in made.values()} == {"float32"}


def test_torch_draws_in_bfloat16():
    torch = pytest.importorskip("torch")
    given = resolved({"dtype": "bfloat16", "sizes": {"Lq": 2, "d_model": 4}, "torch_draws": {"seed": 0, "order": ["x"]}})
    torch.manual_seed(0)
    right = torch.randn(2, 4, dtype=torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(compute(given)["x"].astype(np.float32), right)


# Longer contexts


def test_yarn_divides_every_pair_that_turns_less_than_once():
    """With an original length below 2 pi even the first pair turns less than once, and all are divided."""
    from worked_attention.stages.positions import frequencies

    scaling = {"rule": "yarn", "factor": 4.0, "original_length": 6, "beta_fast": 32, "beta_slow": 1}
    theta = frequencies(8, 10000.0, None)[0]
    np.testing.assert_array_equal(frequencies(8, 10000.0, scaling)[0], theta / 4)


def test_the_norms_gradient_is_that_of_its_formula():
    """Against central differences in float64."""
    rng = np.random.default_rng(0)
    x, dy, gain = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)), rng.normal(size=5)
    for kind in ("rms", "l2"):
        options = {"kind": kind, "eps": 1e-3, "zero_vector": "zero"}
        found = backward.norm(dy, x, options, gain)
        for i, j in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[i, j] = 1e-6
            slope = ((projections.norm(x + step, options, gain) - projections.norm(x - step, options, gain)) / 2e-6 * dy).sum()
            assert found[i, j] == pytest.approx(slope, abs=1e-8)
