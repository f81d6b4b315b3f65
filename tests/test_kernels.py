"""What a file may say of its function `attention`: what it `CAN` take and the order of its `AXES`; and names of what kernels do."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped

from worked_attention.referee.caller import answered, npy
from worked_attention.referee.diagnosis import Diagnoser
from worked_attention.referee.handed import handed
from worked_attention.referee.kernels import AXES, NEEDS
from worked_attention.referee.mistakes.library import LIBRARY
from worked_attention.referee.report import case_verdict
from worked_attention.referee.submissions import received
from worked_attention.stages import parameters
from worked_attention.stages.precision import bfloat16

FOLDER = ROOT / "config" / "suites"
SUITES = {name: shipped(name)["cases"] for name in ("handworked", "heads", "masks", "scores", "softmax", "field_cases")}
CASES = [case for cases in SUITES.values() for case in cases.values() if not case["torch_draws"]]
EVERYTHING = ("keep", "bias", "scale", "groups", "widths", "softcap", "sinks")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def verdict(case: dict, attention, **said) -> dict:
    """What the judge says of a function `attention` beside which `said` stands."""
    given = parameters.stage(case, FOLDER)
    header, made = answered(SimpleNamespace(attention=attention, **said), case, handed(case, given))
    sent = received(header["word"], header["text"], {name: npy(array) for name, array in made.items()})
    return case_verdict(case, given, sent, {}, Diagnoser(pairs=0))


def attend(case: dict, arrays: dict, heads: int = 1, added: bool = False) -> np.ndarray:
    """A kernel of everything, whose axis `heads` is that of heads; with `added`, it adds its mask in place of filling."""
    query, key, value = (np.moveaxis(arrays[name].astype(np.float64), heads, 1) for name in ("query", "key", "value"))
    shared = query.shape[1] // key.shape[1]
    scores = query @ np.repeat(key, shared, 1).swapaxes(-1, -2) * case["scale_factor"]
    if case["softcap"]:
        scores = case["softcap"] * np.tanh(scores / case["softcap"])
    scores = scores + arrays.get("bias", 0.0)
    if "keep" in arrays:
        scores = scores + np.where(arrays["keep"], 0.0, -np.inf) if added else np.where(arrays["keep"], scores, -np.inf)
    sinks = arrays["sinks"][:, None, None] if "sinks" in arrays else -np.inf
    largest = np.maximum(scores.max(-1, keepdims=True), sinks)
    largest = np.where(largest == -np.inf, 0.0, largest)
    e = np.exp(scores - largest)
    total = e.sum(-1, keepdims=True) + np.exp(sinks - largest)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total != 0)
    return np.moveaxis(weights @ np.repeat(value, shared, 1), 1, heads)


@pytest.mark.parametrize(("axes", "heads"), [("bhld", 1), ("blhd", 2)])
def test_a_kernel_that_says_what_it_can(axes: str, heads: int):
    words = Counter(verdict(case, lambda *a: attend(*a, heads=heads), CAN=EVERYTHING, AXES=axes)["verdict"] for case in CASES)
    assert set(words) <= {"right", "convention", "undecided", "unsupported"} and words["right"] > 180, words
    other = {1: 2, 2: 1}[heads]
    spoiled = verdict(SUITES["heads"]["grouped"], lambda *a: attend(*a, heads=other).swapaxes(1, 2), CAN=EVERYTHING, AXES=axes)
    assert spoiled["verdict"] in ("wrong", "failed")


LACKING = {  # each word: a case that needs it
    "keep": "masks/causal_top_left",
    "bias": "scores/bias_table",
    "scale": "scores/not_scaled",
    "groups": "heads/grouped",
    "widths": "heads/wide_values",
    "softcap": "scores/softcap",
    "sinks": "softmax/sinks",
    "plus_one": "softmax/plus_one",
    "hardmax": "softmax/hardmax",
    "none": "softmax/none",
    "dropout": "softmax/dropout",
    "fill": "masks/fill_1e9",
}


def test_every_word_has_a_case_here():
    assert set(LACKING) == set(NEEDS)


@pytest.mark.parametrize("word", NEEDS)
def test_a_case_that_needs_more_is_not_asked(word: str):
    suite, name = LACKING[word].split("/")
    case = SUITES[suite][name]

    def never(case, arrays):
        raise AssertionError("it was asked")

    found = verdict(case, never, CAN=[other for other in NEEDS if other != word])
    assert found["verdict"] == "unsupported" and found["problems"] == [f"needs {word}"]
    with pytest.raises(AssertionError, match="it was asked"):
        verdict(case, never, CAN=list(NEEDS))


def test_what_is_no_kernel_is_not_asked():
    begins_at_scores = next(case for case in CASES if case["begins_at"] == "scaled")
    assert verdict(begins_at_scores, None, CAN=list(NEEDS))["problems"] == ["has no queries, keys and values"]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"CAN": ("sofcap",)}, r"CAN names text \(sofcap\).*softcap"),
        ({"CAN": "keep"}, r"CAN is text \(keep\), should be a list of words"),
        ({"AXES": "bldh"}, rf"AXES is text \(bldh\), should be {' or '.join(AXES)}"),
        ({"AXES": ["b"]}, "AXES is"),
    ],
)
def test_what_is_said_wrongly_is_refused(said: dict, message: str):
    with pytest.raises(ValueError, match=message):
        verdict(SUITES["handworked"]["two_heads"], attend, **said)


def layer(case: dict, arrays: dict) -> np.ndarray:
    """A layer from x to the output, with a batch."""
    made = {}
    for name, x in (("query", "x"), ("key", "x_kv"), ("value", "x_kv")):
        projected = arrays.get(x, arrays["x"]) @ arrays[f"w_{name[0]}"].T + arrays.get(f"b_{name[0]}", 0.0)
        made[name] = projected.reshape(*projected.shape[:2], case["heads" if name == "query" else "kv_heads"], -1).swapaxes(1, 2)
    contexts = attend(case, arrays | made).swapaxes(1, 2)
    return contexts.reshape(*contexts.shape[:2], -1) @ arrays["w_o"].T + arrays.get("b_o", 0.0)


def test_a_layer():
    words = Counter(verdict(case, layer, CAN=("layer", *EVERYTHING), AXES="bhld")["verdict"] for case in CASES)
    assert set(words) <= {"right", "convention", "unsupported"} and words["right"] > 30, words
    assert verdict(SUITES["handworked"]["two_heads"], lambda *a: -layer(*a), CAN=["layer"], AXES="bhld")["verdict"] == "wrong"


def test_contexts_with_a_batch_of_one_are_contexts():
    case = SUITES["handworked"]["two_heads"]
    found = verdict(case, lambda case, arrays: attend(case, arrays | {n: arrays[n][None] for n in ("query", "key", "value")}))
    assert found["verdict"] == "right" and found["stages"]["contexts"] == "right"


# Names of what libraries do


def test_numbers_of_bfloat16_in_wide_arrays_are_told():
    case = SUITES["heads"]["multi_head"]
    coarse = verdict(case, lambda *a: attend(*a).astype(bfloat16).astype(np.float32), CAN=EVERYTHING, AXES="bhld")
    assert coarse["verdict"] == "wrong" and "all numbers are those of bfloat16, and right in" in coarse["diagnosis"]["sentence"]
    for spoil in (lambda x: (1.1 * x).astype(bfloat16).astype(np.float32), lambda x: x * 1.001):  # wrong there, too; not of bfloat16
        found = verdict(case, lambda *a, spoil=spoil: spoil(attend(*a)), CAN=EVERYTHING, AXES="bhld")
        assert found["verdict"] == "wrong" and "bfloat16" not in str(found["diagnosis"])


@pytest.mark.parametrize("key", ["scores/zero_query_is_nan", "field_cases/r34_nan_in_blocked_key"])
def test_nan_from_behind_a_mask_has_one_name(key: str):
    suite, name = key.split("/")
    found = verdict(SUITES[suite][name], lambda *a: attend(*a, added=True), CAN=EVERYTHING, AXES="bhld")
    assert [mistake["name"] for mistake in found["diagnosis"]["mistakes"]] == ["mask_added"] and not found["diagnosis"]["also"]
    assert verdict(SUITES[suite][name], attend, CAN=EVERYTHING, AXES="bhld")["verdict"] == "right"


def test_nothing_but_nan_has_no_name():
    case = SUITES["masks"]["causal_top_left"]  # which many a mistake could make of nothing but NaN
    found = verdict(case, lambda *a: np.full_like(attend(*a), np.nan), CAN=EVERYTHING, AXES="bhld")
    assert found["verdict"] == "wrong" and found["diagnosis"] is None


def by_bias(name: str, bias: np.ndarray) -> dict:
    return verdict(SUITES["scores"][name], lambda case, arrays: {"bias": np.broadcast_to(bias, arrays["bias"].shape)})


def test_alibi_to_the_end_and_a_softcap_behind_the_bias_have_names():
    slopes = np.array([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])  # of six heads (Press et al. 2022, and their code)
    i, j = np.ogrid[:3, :5]
    assert by_bias("alibi", -slopes[:, None, None] * np.abs(i - j))["verdict"] == "right"
    found = by_bias("alibi", -slopes[:, None, None] * np.abs(i + 2 - j))
    assert [mistake["name"] for mistake in found["diagnosis"]["mistakes"]] == ["alibi_to_the_end"]

    def capped_last(case, arrays):
        cap, plain = case["softcap"], case | {"softcap": None}
        scores = np.repeat(arrays["key"], 2, -3) @ arrays["query"].swapaxes(-1, -2) * case["scale_factor"]
        scores = cap * np.tanh((scores.swapaxes(-1, -2) + arrays["bias"]) / cap)
        return attend(plain | {"scale_factor": 0.0}, {n: arrays[n][None] for n in ("query", "key", "value")} | {"bias": scores})

    found = verdict(SUITES["scores"]["softcap_before_bias"], capped_last)
    assert LIBRARY["softcap_after_bias"].sentence in found["diagnosis"]["sentence"]
