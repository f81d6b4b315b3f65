"""What an implementation is handed, ready for a kernel, and the forms in which it may answer."""

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT
from shipped import all_shipped

from worked_attention.referee.caller import answer, answered, npy
from worked_attention.referee.diagnosis import Diagnoser
from worked_attention.referee.handed import READY, handed
from worked_attention.referee.judge import judge_case
from worked_attention.referee.report import case_verdict, judge_all
from worked_attention.referee.submissions import Submission, received
from worked_attention.stages import parameters
from worked_attention.stages.catalogue import TABLES
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute

FOLDER = ROOT / "config" / "suites"
SUITES = all_shipped()
CASES = [case for suite in SUITES.values() for case in suite["cases"].values() if not case["torch_draws"]]
ONE = SUITES["handworked"]["cases"]["two_heads"]
LARGE = 64  # tokens
WAVES = (("cos", "sin"), ("sin", "cos"))


def verdict(case: dict, attention, **attributes) -> dict:
    """What the judge says of a function `attention`."""
    given = parameters.stage(case, FOLDER)
    header, made = answered(SimpleNamespace(attention=attention, **attributes), case, handed(case, given))
    sent = received(header["word"], header["text"], {name: npy(array) for name, array in made.items()})
    return case_verdict(case, given, sent, {}, Diagnoser())


def mean_of_values(case: dict, arrays: dict) -> np.ndarray:
    """The contexts from `query`, `key`, `value`, `keep` and `bias` alone, in float64: a kernel that knows of nothing before it."""
    if not {"query", "value"} <= set(arrays) or case["softmax"] != "plain" or "sinks" in arrays or case["dropout"] or case["softcap"]:
        raise NotImplementedError
    query, key, value = (arrays[name].astype(np.float64) for name in ("query", "key", "value"))
    shared = case["heads"] // case["kv_heads"]
    key, value = np.repeat(key, shared, -3), np.repeat(value, shared, -3)
    scores = np.einsum("...id,...jd->...ij", query, key) * case["scale_factor"] + arrays.get("bias", 0.0)
    keep = arrays.get("keep", np.True_)
    if not np.broadcast_to(keep, scores.shape).any(-1).all() or case["mask"]["fill"] != "-inf":
        raise NotImplementedError  # what a row without keys is, is another question
    scores = np.where(keep, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("...ij,...jd->...id", e / e.sum(-1, keepdims=True), value)


def small(case: dict) -> bool:
    return case["dims"]["Lq"] * case["dims"]["Lk"] <= LARGE**2 and case["dtype"] == "float64"


def test_the_ready_arrays_are_all_that_a_kernel_needs():
    words = Counter(verdict(case, mean_of_values)["verdict"] for case in CASES if small(case))
    assert set(words) <= {"right", "unsupported", "convention"} and words["convention"] <= 1 and words["right"] > 300, words


@pytest.mark.parametrize(
    ("option", "spoil"),
    [
        ("rotary", lambda a: a | {"query": np.roll(a["query"], 1, -2)}),
        ("past_k", lambda a: a | {"key": a["key"][..., ::-1, :]}),
        ("keep", lambda a: {name: array for name, array in a.items() if name != "keep"}),
        ("bias", lambda a: a | {"bias": -a["bias"]}),
    ],
)
def test_a_kernel_that_takes_other_arrays_is_wrong(option: str, spoil):
    case = next(case for case in CASES if small(case) and (case.get(option) or option in case["shapes"]) and not case["softcap"])
    assert verdict(case, mean_of_values)["verdict"] == "right"
    assert verdict(case, lambda case, arrays: mean_of_values(case, spoil(arrays)))["verdict"] == "wrong"


def test_every_ready_array_stands_in_some_case():
    found = {name for case in CASES if small(case) for name in handed(case, parameters.stage(case, FOLDER))}
    assert set(READY) <= found


def test_slopes_and_buckets_and_angles_are_those_of_the_papers():
    printed = {8: 0.5 ** np.arange(1, 9), 4: 0.25 ** np.arange(1, 5), 2: [1 / 16, 1 / 256]}  # Press et al. 2022, section 3
    told = set()
    for case in filter(small, CASES):
        arrays = handed(case, parameters.stage(case, FOLDER))
        if case["rotary"] and not case["rotary"]["scaling"]:
            dims, base = case["rotary"]["dims"], case["rotary"]["base"]
            assert arrays["inv_freq"] == pytest.approx([base ** (-2 * i / dims) for i in range(dims // 2)])
            assert arrays["key_cos"] ** 2 + arrays["key_sin"] ** 2 == pytest.approx(np.ones_like(arrays["key_cos"]))
        if case["alibi"] and case["heads"] in printed:
            assert np.array_equal(arrays["slopes"], printed[case["heads"]])
            told.add(case["heads"])
        if "buckets" in arrays:
            assert arrays["buckets"].min() >= 0 and arrays["buckets"].max() < len(arrays["t5_table"])
            distance = np.subtract.outer(case["query_positions"], case["context_positions"])
            assert (arrays["buckets"][distance == 0] == 0).all()
    assert told


def own(case: dict) -> tuple[dict, dict]:
    """(parameters, computed arrays) of a case."""
    given, made = parameters.stage(case, FOLDER), compute(case, FOLDER)
    return given, {name: array for name, array in made.items() if name not in given}


TABLED = {"rotary": "projections", "alibi": "scores", "t5_table": "scores"}  # where the tables of these options are made


def with_tables(option: str) -> dict:
    return next(case for case in CASES if small(case) and (case.get(option) or option in case["shapes"]) and case["heads"] > 1)


@pytest.mark.parametrize(
    ("option", "name", "spoil"),
    [
        ("rotary", "inv_freq", lambda a: a["inv_freq"] / 2),
        *(("rotary", f"{word}_{wave}", lambda a, name=f"{word}_{other}": a[name]) for word in ("query", "key") for wave, other in WAVES),
        ("alibi", "slopes", lambda a: a["slopes"] * 2),
        ("alibi", "slopes", lambda a: a["slopes"] * (1 + 1e-5)),
        ("t5_table", "buckets", lambda a: a["buckets"] + 1),
        ("t5_table", "buckets", lambda a: a["buckets"] + 1e-9),
    ],
)
def test_a_wrong_table_is_wrong_at_its_stage(option: str, name: str, spoil):
    case = with_tables(option)
    given, sent = own(case)
    assert judge_case(case, given, sent)["verdict"] == "right"
    for beside in (sent, {}):
        found = judge_case(case, given, beside | {name: spoil(sent)})
        assert (found["verdict"], found["worst"]["array"], found["first_wrong_stage"]) == ("wrong", name, TABLED[option])


@pytest.mark.parametrize("option", TABLED)
def test_who_sends_no_tables_is_not_asked_for_them(option: str):
    """The same verdicts of right and of wrong arrays, and a right table vouches for no stage but what it says itself."""
    case = with_tables(option)
    given, sent = own(case)
    bare = {name: array for name, array in sent.items() if name not in TABLES}
    assert set(sent) - set(bare)
    late = {name: array for name, array in bare.items() if name in ("masked", "weights", "contexts", "output")}
    for arrays in (bare, bare | {"masked": sent["masked"] + 0.25 * (sent["masked"] > 0)}, late | {"masked": 1.5 * sent["masked"]}):
        alone = judge_case(case, given, arrays, Diagnoser())
        beside = judge_case(case, given, arrays | {name: sent[name] for name in TABLES if name in sent}, Diagnoser())
        assert alone["verdict"] == ("right" if arrays is bare else "wrong")
        told = ("verdict", "first_wrong_stage", "worst", "diagnosis", "contract", "evidence")
        assert {key: alone[key] for key in told} == {key: beside[key] for key in told}


def test_tables_that_are_handed_are_those_of_the_results():
    found = set()
    for case in filter(small, CASES):
        arrays, (_, made) = handed(case, parameters.stage(case, FOLDER)), own(case)
        there = {name for name in TABLES if name in made}
        assert there == {name for name in TABLES if name in arrays}
        assert all(np.array_equal(arrays[name], made[name]) for name in there)
        found |= there
    assert found == set(TABLES)


def output_of(case: dict) -> np.ndarray:
    return compute(case, FOLDER)["output"]


class Foreign:
    """An array of a library that speaks DLPack alone."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_forms_of_an_answer():
    right = output_of(ONE)
    assert verdict(ONE, lambda case, arrays: right[None])["verdict"] == "right", "a leading batch of one"
    assert verdict(ONE, lambda case, arrays: Foreign(right))["verdict"] == "right"
    assert verdict(ONE, lambda case, arrays: right[None] * 1.001)["verdict"] == "wrong"
    assert verdict(ONE, lambda case, arrays: Foreign(-right))["verdict"] == "wrong"
    assert verdict(ONE, mean_of_values)["stages"]["contexts"] == "right", "contexts alone are told from an output by their shape"
    turned = verdict(ONE, lambda case, arrays: right.T)
    assert (
        turned["verdict"] == "wrong"
        and turned["worst"]["reason"] == "has shape [4, 3], should have [3, 4], which its transpose by (1, 0) has"
    )
    other = verdict(ONE, lambda case, arrays: right[:2])
    assert other["worst"]["reason"] == "has shape [2, 4], should have [3, 4]"


def test_a_lone_array_of_a_stage_is_its_main_one():
    given = parameters.stage(ONE, FOLDER)
    made = answer(SimpleNamespace(scores=lambda case, arrays: arrays["q_heads"] @ arrays["k_heads"].swapaxes(-1, -2) / 2**0.5), ONE, given)
    assert list(made) == ["masked"]
    with pytest.raises(TypeError, match="projections should return a dict"):
        answer(SimpleNamespace(projections=lambda case, arrays: given["x"]), ONE, given)


def test_stages_go_on_from_what_was_made_and_are_handed_nothing_ready():
    seen = {}

    def scores(case, arrays):
        seen.update(arrays)
        return {}

    answer(SimpleNamespace(scores=scores), ONE, handed(ONE, parameters.stage(ONE, FOLDER)))
    assert "q_heads" in seen and not set(READY) & set(seen)


def test_tensors_on_request():
    torch = pytest.importorskip("torch")
    case = next(case for case in CASES if case["dtype"] == "bfloat16" and case["begins_at"] == "x")
    given, seen = parameters.stage(case, FOLDER), {}

    def attention(case, arrays):
        seen.update(arrays)
        raise NotImplementedError

    verdict(case, attention, ARRAYS="torch")
    assert seen["x"].dtype == torch.bfloat16 and seen["query"].dtype == torch.bfloat16
    assert np.array_equal(seen["x"].float().numpy(), given["x"].astype(np.float32))
    seen.clear()
    verdict(case, attention)
    assert seen["x"].dtype == np.float32 and np.array_equal(seen["query"], seen["query"].astype(bfloat16).astype(np.float32))
    with pytest.raises(ValueError, match="ARRAYS is 'jax', should be numpy or torch"):
        verdict(case, attention, ARRAYS="jax")


def test_the_example_of_a_kernel_in_torch():
    pytest.importorskip("torch")
    suites = {name: SUITES[name] for name in ("handworked", "masks", "heads")}
    found = judge_all(Submission(ROOT / "examples" / "attention_kernel.py", suites, dict.fromkeys(suites, FOLDER)), suites)
    assert set(found["counts"]) <= {"right", "unsupported", "convention", "undecided"}, json.dumps(found["counts"])
    assert found["counts"]["right"] > 60 and found["counts"].get("undecided", 0) <= 1  # a float mask of -1e9 in float32 leaves no digits


def test_a_kind_of_arrays_that_there_is_not_is_one_line(tmp_path: Path):
    path = tmp_path / "kernel.py"
    path.write_text('ARRAYS = "jax"\ndef attention(case, arrays):\n    return arrays["x"]\n', "utf-8")
    suites = {"handworked": SUITES["handworked"]}
    found = judge_all(Submission(path, suites, {"handworked": FOLDER}), suites)["cases"]["handworked/two_heads"]
    assert found["verdict"] == "failed" and re.fullmatch(
        r"raised ValueError: ARRAYS is 'jax', should be numpy or torch", found["problems"][0]
    )
