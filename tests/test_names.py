"""What is said of a wrong stage: equal names together, pairs and relations only where they are sure, and never at the cost of a verdict."""

import sys
from functools import cache

import numpy as np
import pytest
from conftest import ROOT
from shipped import all_shipped

from worked_attention.referee.diagnosis import Diagnoser
from worked_attention.referee.judge import judge_case
from worked_attention.referee.mistakes.entry import Mistake, Numbered
from worked_attention.referee.mistakes.library import LIBRARY, NUMBERED
from worked_attention.referee.relations import Pair, related
from worked_attention.referee.report import table
from worked_attention.stages.catalogue import STAGES
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute, from_parameters

sys.path.insert(0, str(ROOT / "benchmarks"))
from spoiled import spoiled

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
FOLDER = ROOT / "config" / "suites"
CASES = {
    f"{suite}/{name}": case
    for suite, content in all_shipped().items()
    for name, case in content["cases"].items()
    if not case["torch_draws"]
}
Arrays = dict[str, np.ndarray]


@cache
def right(key: str) -> Arrays:
    return compute(CASES[key], FOLDER)


def given(key: str) -> Arrays:
    return {name: right(key)[name] for name in CASES[key]["arrays"]["parameters"]}


def judged(key: str, sent: Arrays, **options) -> dict:
    return judge_case(CASES[key], given(key), sent, Diagnoser(**options))


def names(found: dict) -> list[str]:
    return [mistake["name"] for mistake in found["diagnosis"]["mistakes"]] if found["diagnosis"] else []


def after(key: str, start: str, changed: Arrays) -> Arrays:
    """Every array from the stage behind `start` on, made from `changed` ones."""
    from worked_attention.referee.chain import STAGE

    made = right(key) | changed
    for stage in STAGES[STAGES.index(start) + 1 :]:
        made |= STAGE[stage](CASES[key], made)
    return {name: array for name, array in made.items() if name not in given(key)}


# Equal candidates


def test_equal_weights_in_empty_rows_are_told_as_that_first():
    """Nobody fills with -1e4 where equal weights stand in an empty row; but a fill of -1e9 gives the same, so that both are told."""
    keys = [key for key, case in CASES.items() if case["mask"]["empty_row"] == "zero" and case["softmax"] == "plain" and empty_rows(key)]
    assert len(keys) >= 5
    for key in keys:
        weights = from_parameters(CASES[key] | {"mask": CASES[key]["mask"] | {"empty_row": "uniform"}}, given(key))["weights"]
        sent = {
            name: array for name, array in after(key, "weights", {"weights": weights}).items() if name in ("contexts", "concat", "output")
        }
        sent = sent or {"weights": weights}
        if all(np.array_equal(array, right(key)[name]) for name, array in sent.items()):  # dropout takes what is in the empty rows
            continue
        found = judged(key, sent)
        assert names(found)[0] == "empty_row_uniform", key


def empty_rows(key: str) -> bool:
    return "keep" in right(key) and bool((right(key)["masked"] == -np.inf).all(axis=-1).any())


def finite(case: dict) -> bool:
    """Whether blocked scores are a finite number, in the dtype of the case, too."""
    return "keep" in case["shapes"] and case["mask"]["fill"] != "-inf" and case["dtype"] != "float16"


@pytest.mark.parametrize("key", [key for key, case in CASES.items() if finite(case) and not right(key)["keep"].all()])
def test_minus_infinity_in_place_of_a_finite_number_is_told_as_that_first(key: str):
    case = CASES[key]
    sent = from_parameters(case | {"mask": case["mask"] | {"fill": "-inf"}}, given(key))
    sent = {name: sent[name] for name in case["arrays"]["scores"] if name in ("scaled", "masked")}
    assert names(judged(key, sent)) == ["fill_minus_infinity"]


@pytest.mark.parametrize(
    "key",
    ["masks/fill_finfo_min", "masks/fill_finfo_min_float32", "masks/fill_finfo_min_bfloat16", "field_cases/r24_empty_row_finite_fill"],
)
@pytest.mark.parametrize("last", ["weights", "contexts", "output"])
def test_minus_infinity_and_then_nan_is_told_as_that_first(key: str, last: str):
    """Rows that are blocked altogether, filled with -inf in place of a finite number, are NaN after e / sum(e); so they are if exponentials
    are not shifted, which is told after it."""
    masked = np.where(right(key)["keep"], right(key)["masked"].astype(np.float64), -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(masked - masked.max(axis=-1, keepdims=True))
    weights = (e / e.sum(axis=-1, keepdims=True)).astype(right(key)["weights"].dtype)
    sent = after(key, "weights", {"weights": weights})
    assert np.isnan(weights.astype(np.float64)).any() and np.isfinite(right(key)["output"].astype(np.float64)).all()
    found = judged(key, {last: sent[last]})
    assert names(found) == ["fill_minus_infinity", "empty_row_nan"], found["diagnosis"]
    assert found["diagnosis"]["sentence"].startswith("what you sent equals: blocked scores filled with -inf ")


def test_nan_beside_scores_that_were_sent_right_is_no_other_fill():
    key = "masks/fill_finfo_min"
    empty = ~right(key)["keep"].any(axis=-1, keepdims=True)
    sent = after(key, "weights", {"weights": np.where(empty, np.nan, right(key)["weights"])})
    found = judged(key, {name: sent[name] for name in ("masked", "weights", "output")})
    assert found["first_wrong_stage"] == "weights" and "fill_minus_infinity" not in names(found)


def test_equal_candidates_are_told_on_the_terminal():
    sent = from_parameters(CASES["handworked/two_heads"] | {"scale_factor": 0.5}, given("handworked/two_heads"))
    found = judged("handworked/two_heads", {"scaled": sent["scaled"]}) | {"problems": []}
    text = table({"counts": {"wrong": 1}, "cases": {"handworked/two_heads": found}, "missing": {}, "notes": []})
    assert "divided by sqrt(d_model), or the scale applied twice, or divided by d_k" in text


# Pairs


def test_a_window_too_long_on_the_right_is_no_pair():
    key = "field_cases_2/window_to_the_right"
    case = CASES[key]
    mask = case["mask"] | {"window": case["mask"]["window"] | {"right": 4}}
    sent = from_parameters(case | {"mask": mask}, given(key))
    assert names(judged(key, {"output": sent["output"]})) == ["window_one_long_right"]


def test_positions_that_do_not_restart_are_told_to_restart():
    key = "field_cases_2/packed_reset"
    sent = from_parameters(CASES[key] | {"query_positions": [0, 1, 2, 3, 4], "key_positions": [0, 1, 2, 3, 4]}, given(key))
    found = judged(key, {name: sent[name] for name in ("q_rot", "k_rot", "output")})
    assert names(found) == ["positions_counted_on"]
    assert "counted from 0 again" not in " ".join([found["diagnosis"]["sentence"], *found["diagnosis"]["also"]])
    assert "Count positions on" not in found["diagnosis"]["remedy"]


def test_two_mistakes_of_one_kind_are_no_pair():
    """Two masks on top of each other fit too many patterns of a small table: the cells are told, or nothing."""
    key, seen = "field_cases_2/window_to_the_right", 0
    told = {}  # what is said of each output; many pairs give the same one
    masks = [m for m in LIBRARY.values() if m.kind == "masks" and m.applies(CASES[key])]
    for one in masks:
        for other in masks:
            if one.name in ("mask_ignored", "window_ignored") or other.name == "window_ignored":  # the other has nothing to change
                continue
            made = other.run("scores", CASES[key], dict(right(key)), lambda case, arrays, one=one: one.run("scores", case, arrays))
            output = after(key, "scores", made)["output"]
            if output.tobytes() not in told:
                told[output.tobytes()] = judged(key, {"output": output})
            found = told[output.tobytes()]
            assert len(names(found)) < 2, (one.name, other.name)
            seen += not names(found) and found["verdict"] == "wrong"
    assert seen


# What is sent beside the scores


@pytest.mark.parametrize(
    "name", ["mask_inverted", "causal_ignored", "causal_without_self", "padding_ignored", "window_one_long", "documents_ignored"]
)
def test_the_right_keep_beside_wrong_scores_hides_no_name(name: str):
    mistake, seen = LIBRARY[name], 0
    for key, case in CASES.items():
        if (
            case["suite"] not in ("masks", "field_cases_2")
            or case["torch_draws"]
            or case["dtype"] != "float64"
            or not mistake.applies(case)
        ):
            continue
        masked = mistake.run("scores", case, dict(right(key)))["masked"]
        if np.array_equal(masked, right(key)["masked"], equal_nan=True):
            continue
        told = judged(key, {"keep": right(key)["keep"], "masked": masked})
        alone = judged(key, {"masked": masked})
        assert names(told) == names(alone), key
        seen += name in names(told) or mistake.sentence in told["diagnosis"]["also"]
    assert seen


def test_the_scaled_bias_beside_scores_that_use_it_hides_no_name():
    key = "scores/alibi_causal"
    bias = right(key)["bias"] * CASES[key]["scale_factor"]
    masked = np.where(right(key)["keep"], right(key)["scaled"] + bias, -np.inf)
    for sent in ({"bias": bias, "masked": masked}, {"bias": right(key)["bias"], "masked": masked}, {"masked": masked}):
        assert "bias_scaled" in names(judged(key, sent)), list(sent)


def test_a_wrong_mask_or_bias_is_no_fault_of_the_projections():
    sent = {"keep": ~right("masks/causal_top_left")["keep"]}
    assert judged("masks/causal_top_left", sent)["first_wrong_stage"] == "scores"
    assert judged("scores/alibi_causal", {"bias": -right("scores/alibi_causal")["bias"]})["first_wrong_stage"] == "scores"


# Mistakes of range


def in_float32(shift) -> dict:
    """The verdict on weights that somebody computes in float32 with this shift, for scores that are large."""
    key = "field_cases_2/constant"
    case = CASES[key] | {"scale_factor": 400.0}
    scaled = from_parameters(case, given(key))["scaled"].astype(np.float32)
    e = np.exp(scaled - shift(scaled))
    sent = {"scaled": scaled, "masked": scaled, "weights": e / e.sum(axis=-1, keepdims=True)}
    return judge_case(case, given(key), sent, Diagnoser())


def test_mistakes_of_range_are_named_where_they_do_harm():
    assert names(in_float32(lambda s: s.max(axis=-1, keepdims=True))) == []
    assert in_float32(lambda s: s.max(axis=-1, keepdims=True))["verdict"] == "right"
    assert names(in_float32(lambda s: np.float32(0))) == ["no_maximum_float32"]
    assert names(in_float32(lambda s: s.max())) == ["global_maximum_float32"]


# No verdict is lost


@pytest.mark.parametrize("error", [AttributeError, TypeError, RuntimeError, AssertionError, ZeroDivisionError])
def test_an_exception_in_a_trial_costs_that_trial(monkeypatch: pytest.MonkeyPatch, error: type[Exception]):
    def fail(case: dict, arrays: Arrays, go) -> Arrays:
        raise error("in a trial")

    def refuse(case: dict) -> bool:
        raise error("before a trial")

    for stage in STAGES[1:]:
        for name, applies in ((f"fails_in_{stage}", lambda case: True), (f"fails_before_{stage}", refuse)):
            monkeypatch.setitem(LIBRARY, name, Mistake(name, "none", name, "Nothing.", applies, {stage: fail}))
        monkeypatch.setitem(NUMBERED, stage, Numbered(stage, "none", "{}", "Nothing.", refuse, lambda n, stage=stage: {stage: fail}))
    sent = from_parameters(CASES["handworked/two_heads"] | {"scale_factor": 0.7071067811865475**4}, given("handworked/two_heads"))
    found = judged("handworked/two_heads", {"output": sent["output"] + 1})
    assert found["verdict"] == "wrong" and found["first_wrong_stage"] == "between parameters and outputs"


@pytest.mark.parametrize("key", ["positions/rotary_after_norm", "cache/from_x"])
def test_cases_that_once_lost_their_verdict(key: str):
    assert judged(key, {"output": right(key)["output"] + 1})["verdict"] == "wrong"


@pytest.mark.parametrize("key", [key for key in CASES if not key.startswith(("costs/", "reach/"))])
def test_no_mistake_that_applies_fails(key: str):
    """Every mistake that says it applies can be made; the trials would hide it if it could not."""
    case = CASES[key]
    if max(case["shapes"]["masked"]) > 64:
        pytest.skip("large")
    wide = case | {"dtype": "float64", "precision": {"accumulate": "float64", "softmax": "float64", "scores": "float64"}}
    wide |= {"mask": wide["mask"] | {"empty_row": "zero"}}
    arrays = {name: array if array.dtype == bool else array.astype(np.float64) for name, array in given(key).items()}
    arrays = from_parameters(wide, arrays)
    for mistake in [*(m for m in LIBRARY.values() if m.applies(wide)), *(m for n in NUMBERED.values() for m in n.mistakes(wide))]:
        made = {name: arrays[name] for s in STAGES[: STAGES.index(mistake.stage)] for name in case["arrays"][s]}
        for stage in STAGES[STAGES.index(mistake.stage) : STAGES.index(max(mistake.changes, key=STAGES.index)) + 1]:
            made |= mistake.run(stage, wide, dict(made))
            assert set(made) >= set(case["arrays"][stage]), (mistake.name, stage)


@pytest.mark.parametrize("key", [key for i, key in enumerate(CASES) if i % 24 == 5])
def test_a_spoiled_array_is_told_and_has_no_name(key: str):
    """Random numbers added to one array of a stage: a verdict, and no known mistake. All cases: benchmarks/spoiled.py."""
    assert spoiled(CASES[key], right(key)) == []


# Relations: each with what it tells, and a near miss that it must not


def pair(key: str, name: str, got: np.ndarray, u: float = 2.0**-24) -> Pair:
    return Pair(CASES[key], name, got, right(key)[name], u, right(key))


def told(key: str, name: str, got: np.ndarray, u: float = 2.0**-24) -> str:
    """The first relation, in words; empty if there is none."""
    return next((relation.sentence for relation in related(pair(key, name, got, u))), "")


TWO, GROUPS, CAUSAL = "handworked/two_heads", "field_cases_2/llama_gqa_permute", "masks/causal_top_left"


@pytest.mark.parametrize("number", [0.6123, -1.0, 1e6])
def test_a_ratio(number: float):
    scaled = right(TWO)["scaled"]
    assert told(TWO, "scaled", scaled * number) == f"is {number:.6g} times ours"
    assert told(TWO, "scaled", scaled * number + 1e-3 * abs(number) * np.eye(3)) == ""
    assert told(TWO, "scaled", np.where(np.arange(3) == 1, scaled, scaled * number)) == ""


def test_a_ratio_of_few_numbers_is_chance():
    """Two numbers always have one that makes the first of the other's; in half precision a dozen nearly have."""
    key = "field_cases_2/sentinel_5e4"
    assert told(key, "output", right(key)["output"] * 3.0) == ""
    half = 2.0**-8
    output = right(TWO)["output"]
    assert output.size == 12
    assert told(TWO, "output", output.astype(bfloat16).astype(float) * 0.5, half) == "is 0.5 times ours"
    assert told(TWO, "output", output * 0.5 * (1 + 0.1 * np.sin(np.arange(12)).reshape(3, 4)), half) == ""


def test_an_order_of_rows_heads_and_columns():
    q, contexts, output = right(TWO)["q"], right(GROUPS)["contexts"], right(GROUPS)["output"]
    assert told(GROUPS, "output", output[[2, 0, 1]]) == "is ours with its queries in the order 2, 0, 1"
    assert told(GROUPS, "contexts", contexts[[0, 2, 4, 1, 3, 5]]) == "is ours with its heads in the order 0, 2, 4, 1, 3, 5"
    assert told(TWO, "q", q[:, ::-1]) == "is ours with its columns in the order 3, 2, 1, 0"
    assert told(GROUPS, "output", output[[2, 0, 1]] + 1e-4 * np.eye(3, 12)) == ""
    assert told(GROUPS, "output", output[[2, 0, 0]]) == ""
    assert told(TWO, "output", output) == ""  # nothing is moved


def test_a_transpose_and_other_axes():
    weights, q_heads = right(TWO)["weights"], right(TWO)["q_heads"]
    assert told(TWO, "weights", np.swapaxes(weights, -1, -2)) == "is ours with queries and keys transposed"
    assert (
        told(TWO, "q_heads", np.moveaxis(q_heads, 0, 1))
        == "is ours with its axes as [queries, heads, columns] in place of [heads, queries, columns]"
    )
    assert told(TWO, "weights", np.swapaxes(weights, -1, -2) + 1e-3 * np.eye(3)) == ""
    assert told(TWO, "q_heads", np.moveaxis(q_heads, 0, 1) + 1e-3) == ""


def test_a_constant_in_each_row_is_harmless():
    masked = right(CAUSAL)["masked"]
    rows = np.arange(1.0, 1 + masked.shape[-2])[:, None]
    assert "by a constant in each row (1, ...), which the softmax does not see: harmless" in told(CAUSAL, "masked", masked + rows)
    assert told(CAUSAL, "masked", masked + rows * np.arange(masked.shape[-1])) == ""
    assert told("softmax/sinks", "masked", right("softmax/sinks")["masked"] + 1.0) == ""  # a sink does see it
    assert "harmless" not in told("scores/softcap", "scaled", right("scores/softcap")["scaled"] + 1.0)  # and so does a softcap


def test_another_array_of_the_case():
    assert told(TWO, "scaled", right(TWO)["qk"] + 0.0) == "equals our qk"
    assert told(TWO, "weights", right(TWO)["masked"] + 0.0) == "equals our scaled"  # without a mask they are the same
    assert told(TWO, "scaled", right(TWO)["qk"] + 1e-3) == ""
    assert told(TWO, "scaled", right(TWO)["weights"] + 0.0) == ""  # what comes later may be made of it


def test_a_number_in_blocked_cells():
    masked, keep = right(CAUSAL)["masked"], right(CAUSAL)["keep"]
    assert told(CAUSAL, "masked", np.where(keep, masked, -12345.0)) == "is ours but for blocked scores, which are -12345 in place of -inf"
    assert told(CAUSAL, "masked", np.where(keep, masked + 1e-3 * np.arange(masked.size).reshape(masked.shape), -12345.0)) == ""
    assert told(CAUSAL, "masked", np.where(keep, masked, -12345.0 - np.arange(masked.shape[-1]))) == ""


def test_cells_of_the_mask():
    keep, masked = right(CAUSAL)["keep"].copy(), right(CAUSAL)["masked"].copy()
    keep[..., 2, 0] = False
    assert told(CAUSAL, "keep", keep) == "is what ours would be if key 0 were blocked, too, for query 2 (counted from 0)"
    masked[..., 2, 0] = -np.inf
    assert told(CAUSAL, "masked", masked) == "is what ours would be if key 0 were blocked, too, for query 2 (counted from 0)"
    scores = right(CAUSAL)["scaled"]
    masked[..., 0, 1] = scores[..., 0, 1]
    sentence = "is what ours would be if key 1 were seen, too, for query 0, key 0 were blocked, too, for query 2 (counted from 0)"
    assert told(CAUSAL, "masked", masked) == sentence
    e = np.exp(masked - masked.max(axis=-1, keepdims=True))
    assert told(CAUSAL, "weights", e / e.sum(axis=-1, keepdims=True)) == sentence
    assert told(CAUSAL, "weights", e / (e.sum(axis=-1, keepdims=True) + 1e-2)) == ""
    masked[..., 0, 1] += 1e-3
    assert told(CAUSAL, "masked", masked) == ""
    draw = np.random.default_rng(1)
    assert told(CAUSAL, "keep", draw.random(keep.shape) < 0.5) == ""


def test_a_factor_of_the_scores_behind_an_output():
    key = "field_cases_2/constant"
    case = CASES[key]
    output = from_parameters(case | {"scale_factor": 1.37 * case["scale_factor"]}, given(key))["output"]
    found = judged(key, {"output": output})
    assert found["diagnosis"]["sentence"].startswith("what you sent is what follows from scores 1.37 times ours (within ")
    assert judged(key, {"output": output + 1e-4 * np.eye(3, 4)})["diagnosis"] is None
