"""Where a score is too large for a dtype: the case says whether it is infinite, and who does otherwise follows another convention."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from shipped import all_shipped
from strategies import resolved

from worked_attention.files.artifacts import objection
from worked_attention.referee.arithmetics import Ours, compared
from worked_attention.referee.bounds.contracts import CONTRACTS, contract, roundoffs
from worked_attention.referee.bounds.rounding import UNIT
from worked_attention.referee.bounds.whole import bounds, centres
from worked_attention.referee.compare import compare_case, own_gates
from worked_attention.referee.diagnosis import Diagnoser
from worked_attention.referee.judge import judge_case
from worked_attention.referee.report import case_verdict, judge_all
from worked_attention.referee.submissions import Sent, Submission
from worked_attention.referee.truth.whole import truth
from worked_attention.references import torch_flash, torch_manual, torch_sdpa
from worked_attention.stages.dtypes import DTYPES
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
FOLDER = ROOT / "config" / "suites"
SUITES = all_shipped()
KEPT, WIDE = (SUITES["precision"]["cases"][name] for name in ("scores_kept", "scores_wide"))
NAN, FIRST, JUNK = [np.nan, np.nan], [1.0, 0.0], [123.0, -7.0]
KINDS = {name: bfloat16 if name == "bfloat16" else np.dtype(name) for name in DTYPES}


def given_of(case: dict) -> dict:
    made = compute(case, FOLDER)
    return {name: made[name] for name in case["arrays"]["parameters"]}


def verdict(case: dict, sent: dict, **declared: str) -> tuple[str, str | None]:
    """(verdict, convention) on arrays of a case by one who declares these conventions."""
    given = {name: array if array.dtype == bool else array.astype(np.float64) for name, array in given_of(case).items()}
    sent = {name: np.asarray(array).reshape(case["shapes"][name]) for name, array in sent.items()}
    found = case_verdict(case, given, Sent(sent), declared, Diagnoser())
    return found["verdict"], found["convention"]


# The option


def test_scores_are_kept_in_what_the_case_says():
    """80000 / sqrt(2) and 79800 / sqrt(2), which float32 holds and float16 does not."""
    kept, wide = compute(KEPT), compute(WIDE)
    assert np.isposinf(kept["qk"]).all() and np.isnan(kept["weights"]).all() and np.isnan(kept["output"]).all()
    assert wide["qk"].tolist() == [[[80000.0, 79800.0]]] and wide["output"].tolist() == [[1.0, 0.0]]
    np.testing.assert_allclose(wide["scaled"], [[[80000 / 2**0.5, 79800 / 2**0.5]]], rtol=1e-6)
    assert {name: wide[name].dtype.name for name in ("qk", "scaled", "masked", "weights", "output")} == {
        **dict.fromkeys(("qk", "scaled", "masked"), "float32"),
        **dict.fromkeys(("weights", "output"), "float16"),
    }
    assert (KEPT["bytes"]["scores"], WIDE["bytes"]["scores"]) == (3 * 2 * 2, 3 * 2 * 4)


def test_an_array_in_another_dtype_than_scores_have_is_refused():
    made = compute(WIDE)
    scores = {name: made[name] for name in WIDE["arrays"]["scores"]}
    assert objection(WIDE, "scores", scores) is None
    assert objection(WIDE, "scores", scores | {"qk": made["qk"].astype(np.float16)}) == "qk is float16, should be float32"
    assert objection(KEPT, "scores", scores) == "masked is float32, should be float16, qk is float32, should be float16, " + (
        "scaled is float32, should be float16"
    )


@pytest.mark.parametrize("scores", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_combination_is_right_by_truth_and_torch(dtype: str, scores: str):
    options = {
        "softcap": 3,
        "alibi": {"slopes": "geometric", "form": "distance"},
        "mask": {"causal": "top_left"},
        "heads": 2,
        "backward": "ones",
    }
    sizes = {"sizes": {"Lq": 4, "d_model": 6}, "parameters": {"x": {"normal": {"seed": 1}}}}
    case = resolved({"dtype": dtype, "precision": {"scores": scores}, **options, **sizes})
    ours = compute(case)
    assert (
        ours["masked"].dtype.name == ours["bias"].dtype.name == scores and ours["output"].dtype.name == ours["d_masked"].dtype.name == dtype
    )
    true = {name: middle for name, (middle, _) in truth(case, ours).items()}
    assert compare_case(ours, true, own_gates(case, ours))["verdict"] != "fail"
    assert compare_case(ours, true | {"qk": 1.2 * true["qk"]}, own_gates(case, ours))["verdict"] == "fail"
    found = compared(Ours(case, ours, {"rule": "certified"}), torch_manual.run(case, given_of(case)), None)
    assert found["verdict"] in ("pass", "undecided") and found["first_divergence"] is None


# The judge


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("case", "output", "said"),
    [
        (KEPT, NAN, ("right", None)),
        (KEPT, FIRST, ("convention", "scores: float32")),
        (KEPT, JUNK, ("wrong", None)),
        (KEPT, [0.0, 1.0], ("wrong", None)),
        (KEPT, [np.nan, 0.0], ("wrong", None)),
        (WIDE, FIRST, ("right", None)),
        (WIDE, NAN, ("convention", "scores: float16")),
        (WIDE, JUNK, ("wrong", None)),
        (WIDE, [0.0, 1.0], ("wrong", None)),
    ],
)
def test_who_keeps_what_the_case_computes_wide_follows_a_convention(dtype: str, case: dict, output: list, said: tuple):
    assert verdict(case, {"output": np.array([output], dtype)}) == said


@pytest.mark.parametrize("name", ["scores_kept", "scores_wide", "overflow"])
def test_ours_is_right(name: str):
    case = SUITES["precision"]["cases"][name]
    made = compute(case)
    assert verdict(
        case, {name: made[name] for stage in ("scores", "weights", "contexts", "outputs") for name in case["arrays"][stage]}
    ) == (
        "right",
        None,
    )


@pytest.mark.parametrize(
    ("dtype", "large", "wider"), [("float16", 200.0, "float32"), ("float32", 1e20, "float64"), ("bfloat16", 1e20, "float64")]
)
@pytest.mark.parametrize("second", [None, JUNK, NAN])
def test_an_overflowing_row_frees_no_other(dtype: str, large: float, wider: str, second: list | None):
    """Row 0 overflows: kept it is NaN, wide it has all its weight on the first key; row 1 is the same in both."""
    keys = [[large, large], [large, 0.99 * large]] if dtype == "float16" else [[large, large], [0.5, 1.0]]
    heads = {"q_heads": [[[large, large], [1.0, 0.5]]], "k_heads": [keys], "v_heads": [[[1, 0], [0, 1]]]}
    case = resolved({"dtype": dtype, "sizes": {"Lq": 2, "Lk": 2, "d_k": 2, "d_v": 2}, "parameters": heads})
    right = FIRST if dtype != "float16" else (lambda low: [1 / (1 + low), low / (1 + low)])(np.exp(-1 / 2**0.5))  # 300 and 299
    word = {"right": "right", "convention": "convention"} if second is None else {"right": "wrong", "convention": "wrong"}
    send = partial(np.array, dtype=KINDS[dtype])
    kept, other = verdict(case, {"output": send([NAN, second or right])}), verdict(case, {"output": send([FIRST, second or right])})
    assert kept == (word["right"], None), kept
    assert other == (word["convention"], f"scores: {wider}" if second is None else None), other
    assert verdict(case, {"output": send([JUNK, second or right])}) == ("wrong", None)


def test_an_overflowing_sequence_frees_no_other():
    q, v = [[[200, 200]], [[1, 2]]], [[[1, 0], [0, 1]]] * 2
    case = resolved({"dtype": "float16", "parameters": {"q": q, "k": [[[200, 200], [200, 199]], [[1, 1], [1, 0]]], "v": v}})
    right = [1 / (1 + np.exp(-(2**0.5))), 1 / (1 + np.exp(2**0.5))]  # scores 3 / sqrt(2) and 1 / sqrt(2)
    for second, words in ((right, ("right", "convention", "wrong")), ([0.9, 0.3], ("wrong", "wrong", "wrong"))):
        found = [verdict(case, {"output": np.array([[first], [second]], np.float16)})[0] for first in (NAN, FIRST, JUNK)]
        assert found == list(words)


@pytest.mark.parametrize(("more", "wrong"), [(14496.0, {"wide"}), (15.0, set())])
def test_a_score_that_may_overflow_or_not_calls_neither_wrong(more: float, wrong: set):
    """float16 becomes infinite at 65520: 65504 + 14496 surely does, 65504 + 15 may or may not, as the sum is rounded."""
    case = resolved(
        {"dtype": "float16", "scale": "none", "parameters": {"q": [[1, 1]], "k": [[65504, more], [0, 0]], "v": [[1, 0], [0, 1]]}}
    )
    answers = {"kept": NAN, "wide": FIRST}
    found = {name: judge_case(case, given_of(case), {"output": np.array([answer])})["verdict"] for name, answer in answers.items()}
    assert {name for name, word in found.items() if word == "wrong"} == wrong, found
    assert judge_case(case, given_of(case), {"output": np.array([JUNK])})["verdict"] == ("wrong" if wrong else "undecided")


def test_without_overflow_no_choice_makes_a_wrong_answer_a_convention():
    case = resolved({"dtype": "float16", "parameters": {"q": [[2, 2]], "k": [[2, 2], [2, 1.5]], "v": [[1, 0], [0, 1]]}})
    right = compute(case)["output"]
    assert verdict(case, {"output": right}, scores="float32") == ("right", None)
    for bad in (FIRST, NAN, JUNK):
        assert verdict(case, {"output": np.array([bad], np.float16)}, scores="float32") == ("wrong", None)


def test_a_declared_choice_is_named(tmp_path: Path):
    place = tmp_path / "mine" / "precision" / "scores_kept"
    place.mkdir(parents=True)
    np.save(place / "output.npy", np.array([FIRST]))
    (tmp_path / "mine" / "conventions.json").write_text(json.dumps({"scores": "float64"}), "utf-8")
    chosen = {"precision": SUITES["precision"]}
    found = judge_all(Submission(tmp_path / "mine", chosen, {"precision": FOLDER}), chosen)["cases"]["precision/scores_kept"]
    assert (found["verdict"], found["convention"]) == ("convention", "scores: float64")


# Comparisons


@pytest.mark.parametrize("reference", [torch_sdpa, torch_flash])
def test_a_fused_kernel_computes_wide(reference):
    given = given_of(KEPT)
    assert reference.supports(KEPT) is reference.supports(WIDE) is None
    found = compared(Ours(KEPT, compute(KEPT), {"rule": "certified"}), reference.run(KEPT, given), reference.convention(KEPT))
    assert (found["verdict"], found["reason"]) == ("convention", "follows scores: float32")
    found = compared(Ours(WIDE, compute(WIDE), {"rule": "certified"}), reference.run(WIDE, given), reference.convention(WIDE))
    assert found["verdict"] == "pass"


@pytest.mark.parametrize("case", [KEPT, WIDE])
def test_a_wrong_reference_fails_where_scores_overflow(case: dict):
    ours = Ours(case, compute(case), {"rule": "certified"})
    assert compared(ours, torch_manual.run(case, given_of(case)), None)["verdict"] == "pass"
    for wrong in (JUNK, [0.0, 1.0], [np.nan, 0.0]):
        assert compared(ours, {"output": np.array([wrong], np.float16)}, None)["verdict"] == "fail"


# Under- and overflow inside a stage: what an honest implementation may lose, and a wrong one


def stored(case: dict, name: str, got: np.ndarray) -> str:
    return judge_case(case, given_of(case), {name: np.asarray(got).reshape(case["shapes"][name])})["verdict"]


def test_a_quotient_that_underflows_in_a_softcap():
    """float16, softcap 50, score 1e-4: 1.01328e-4 where x/50 is rounded to float16, 1.00017e-4 where it is not."""
    case = resolved({"dtype": "float16", "softcap": 50, "parameters": {"scaled": [[[1e-4]]]}})
    for right in (1.01328e-4, 1.00017e-4):
        assert stored(case, "capped", np.float16(right)) == "right"
    for wrong in (1.1e-4, 0.9e-4, 0.0, -1e-4):
        assert stored(case, "capped", np.float16(wrong)) == "wrong"


def test_a_softcap_that_divides_to_nothing():
    """float32, softcap 1e38, score 0.01: x/c = 1e-40 has few digits, and none at all where subnormal numbers are flushed to 0."""
    case = resolved({"dtype": "float32", "softcap": 1e38, "parameters": {"scaled": [[[0.01]]]}})
    few = np.float32(1e38) * np.tanh(np.float32(0.01) / np.float32(1e38))
    for honest in (few, np.float32(0.0)):
        assert stored(case, "capped", honest) != "wrong"
    assert stored(case, "capped", np.float32(0.0)) != "right" and stored(case, "capped", np.float32(50.0)) == "wrong"


@pytest.mark.parametrize(
    ("dtype", "size", "kind"),
    [("float32", 1e20, "rms"), ("bfloat16", 1e20, "rms"), ("float64", 1e200, "rms"), ("float32", 1e-25, "l2"), ("float64", 1e-200, "l2")],
)
def test_a_norm_whose_squares_are_lost(dtype: str, size: float, kind: str):
    """x = (size, 2 size): 0 where squares overflow, infinite where they underflow, (1, 2) over its norm where they are scaled."""
    norm = {"kind": kind, "eps": 0} if kind == "l2" else {"kind": kind}
    parameters = {"q": [[size, 2 * size]], "k": [[1, 2]], "v": [[1, 0]]}
    case = resolved({"dtype": dtype, "qk_norm": norm, "parameters": parameters})
    right = np.array([1.0, 2.0]) / np.sqrt(5 / 2 if kind == "rms" else 5)
    lost = np.zeros(2) if size > 1 else np.full(2, np.inf)
    kind_of = KINDS[dtype]
    assert stored(case, "q_norm", right.astype(kind_of)) == "right"
    assert stored(case, "q_norm", lost.astype(kind_of)) == "undecided"
    for wrong in (0 * right, -right, 1.1 * right, right[::-1]):
        assert stored(case, "q_norm", wrong.astype(kind_of)) != "right"
    ordinary = resolved({"dtype": dtype, "qk_norm": norm, "parameters": parameters | {"q": [[1, 2]]}})
    for wrong in (0 * right, -right, 1.1 * right, right[::-1]):
        assert stored(ordinary, "q_norm", wrong.astype(kind_of)) == "wrong"


def test_bounds_of_a_norm_hold_just_before_its_squares_are_lost():
    """float32 squares of 1e-18 are subnormal and flushed to 0 by some; the bound covers both, and is no larger than it need be by much."""
    for size, most in ((1e-15, 1e-5), (1e-18, 0.1)):
        case = resolved(
            {"dtype": "float32", "qk_norm": {"kind": "l2", "eps": 0}, "parameters": {"q": [[size, 2 * size]], "k": [[1, 2]], "v": [[1, 0]]}}
        )
        ours = compute(case)
        exact = centres(case, ours)
        bound = bounds(case, exact, *roundoffs(case))["q_norm"]
        x = ours["q_heads"]
        honest = x / np.sqrt((x * x).sum(axis=-1, keepdims=True))
        assert (np.abs(honest - exact["q_norm"]) <= bound).all() and bound.max() < most, (size, bound)


# Evidence


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5])
def test_weights_of_large_scores_are_no_sum_that_cancels(factor: float):
    """Scores near 900 in bfloat16 say nothing of the weights; so zeros, measured by the scores, were right."""
    case = resolved(
        {"dtype": "bfloat16", "scale": "none", "parameters": {"q": [[30, 1]], "k": [[30, 0], [30, 1.5]], "v": [[1, 0], [0, 1]]}}
    )
    right = compute(case)["weights"].astype(float)
    assert stored(case, "weights", right.astype(bfloat16)) != "wrong"
    assert stored(case, "weights", (factor * right).astype(bfloat16)) != "right"


def test_no_contract_is_looser_because_scores_are_wide():
    """Under every contract of float16 the bounds of a wide case are finite, though its scores are beyond float16."""
    exact = centres(WIDE, compute(WIDE))
    for name in CONTRACTS:
        assert np.isfinite(bounds(WIDE, exact, UNIT["float32"], contract(name, "float16"))["masked"]).all(), name
