"""The library of known mistakes: every one is found at its stage and named, from all arrays or few, alone or in a pair."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from conftest import ROOT
from shipped import shipped

from worked_attention.referee.chain import STAGE, Arrays
from worked_attention.referee.diagnosis import Diagnoser
from worked_attention.referee.judge import judge_case
from worked_attention.referee.mistakes.entry import Mistake, Numbered
from worked_attention.referee.mistakes.library import KINDS, LIBRARY, NUMBERED
from worked_attention.referee.power import by_mistake
from worked_attention.stages.catalogue import STAGES
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute

FOLDER = ROOT / "config" / "suites"
SUITES = ("handworked", "heads", "masks", "scores", "positions", "softmax", "cache", "gradients", "field_cases_2")
LOADED = {suite: shipped(suite) for suite in SUITES}
CASES = {f"{suite}/{name}": case for suite in SUITES for name, case in LOADED[suite]["cases"].items()}
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@cache
def right(key: str) -> Arrays:
    return compute(CASES[key], FOLDER)


def parameters(key: str) -> Arrays:
    return {name: right(key)[name] for name in CASES[key]["arrays"]["parameters"]}


def verdict(key: str, sent: Arrays) -> dict:
    return judge_case(CASES[key], parameters(key), sent, Diagnoser())


def with_mistakes(key: str, *mistakes: Mistake) -> Arrays:
    """Every computed array of the case, with these mistakes in it."""
    made = parameters(key)
    for stage in STAGES[1:]:
        go = STAGE[stage]
        for mistake in mistakes:
            go = lambda case, arrays, go=go, mistake=mistake: mistake.run(stage, case, arrays, go)  # noqa: B023, E731
        made |= go(CASES[key], dict(made))
    return {name: array for name, array in made.items() if name not in parameters(key)}


def names(found: dict | None) -> list[str]:
    return [mistake["name"] for mistake in found["diagnosis"]["mistakes"]] if found and found["diagnosis"] else []


def trials(mistake: Mistake) -> Iterator[tuple[str, dict]]:
    """The verdicts on what this mistake makes of each case that it changes."""
    for key, case in CASES.items():
        sent = by_mistake(case, right(key), mistake)
        if sent is not None:
            yield key, verdict(key, sent)


def test_the_library_is_complete():
    assert {mistake.kind for mistake in [*LIBRARY.values(), *NUMBERED.values()]} == set(KINDS)
    assert all("{}" in family.sentence and family.remedy.endswith(".") for family in NUMBERED.values())
    assert {mistake.stage for mistake in LIBRARY.values()} == set(STAGES[1:])
    assert len({mistake.sentence for mistake in LIBRARY.values()}) == len(LIBRARY)
    assert all(mistake.sentence and mistake.remedy.endswith(".") for mistake in LIBRARY.values())
    assert all(set(mistake.changes) <= set(STAGES) for mistake in LIBRARY.values())


@quiet
@pytest.mark.parametrize("mistake", LIBRARY.values(), ids=LIBRARY)
def test_is_found_at_its_stage_and_named(mistake: Mistake):
    hits = ((key, found) for key, found in trials(mistake) if names(found) == [mistake.name])
    key, found = next(hits, (None, None))
    assert found, "named in no case"
    assert found["first_wrong_stage"] == mistake.stage, key
    ending = ", or " if found["diagnosis"]["also"] else " (within "
    assert found["diagnosis"]["sentence"].startswith(f"what you sent equals: {mistake.sentence}{ending}")
    assert found["verdict"] == "wrong" and found["worst"]["array"] in CASES[key]["arrays"][mistake.stage]


@quiet
@pytest.mark.parametrize("family", NUMBERED.values(), ids=NUMBERED)
def test_one_with_a_number_is_named_with_its_number(family: Numbered):
    made = ((key, mistake, by_mistake(case, right(key), mistake)) for key, case in CASES.items() for mistake in family.mistakes(case))
    assert any(sent is not None and names(verdict(key, sent)) == [mistake.name] for key, mistake, sent in made)


@quiet
@pytest.mark.parametrize(
    "name", ["divided_by_sqrt_d_model", "weights_transposed", "softmax_over_heads", "merged_without_transpose", "missing_b_o"]
)
def test_is_named_from_the_output_alone(name: str):
    sent = by_mistake(CASES["heads/multi_head"], right("heads/multi_head"), LIBRARY[name])
    found = verdict("heads/multi_head", {"output": sent["output"]})
    assert found["first_wrong_stage"] == "between parameters and outputs"
    assert names(found) == [name]


@quiet
def test_is_named_where_all_was_computed_in_float32():
    sent = by_mistake(CASES["heads/cross"], right("heads/cross"), LIBRARY["groups_tiled"])
    found = verdict("heads/cross", {name: array.astype(np.float32) for name, array in sent.items()})
    assert names(found) == ["groups_tiled"]
    assert found["first_wrong_stage"] == "scores"


@quiet
@pytest.mark.parametrize(
    ("key", "pair", "sent"),
    [
        ("heads/multi_head", ("divided_by_sqrt_d_model", "softmax_over_queries"), ("output",)),
        ("heads/multi_head", ("missing_b_q", "not_scaled"), ("output", "weights")),
        ("scores/alibi_causal", ("causal_ignored", "alibi_sign"), ("masked",)),
    ],
)
def test_pairs(key: str, pair: tuple[str, str], sent: tuple[str, ...]):
    made = with_mistakes(key, *(LIBRARY[name] for name in pair))
    found = verdict(key, {name: made[name] for name in sent})
    equal = [set(names(found))] + [{m.name for m in LIBRARY.values() if m.sentence in also} for also in found["diagnosis"]["also"]]
    assert set(pair) in equal


@quiet
def test_two_stages_each_with_a_mistake_are_told_apart():
    made = with_mistakes("heads/multi_head", LIBRARY["not_scaled"], LIBRARY["merged_without_transpose"])
    found = verdict("heads/multi_head", made)
    assert found["stages"] == {"projections": "right", "scores": "wrong", "weights": "right", "contexts": "wrong", "outputs": "right"}
    assert names(found) == ["not_scaled"]


def test_what_equals_no_mistake_is_not_named():
    sent = {"output": right("heads/multi_head")["output"] + np.linspace(0, 1, 24).reshape(3, 8)}
    found = verdict("heads/multi_head", sent)
    assert found["verdict"] == "wrong" and found["diagnosis"] is None


@quiet
def test_few_bits_do_not_make_everything_alike():
    """The input itself, sent as the output in bfloat16, resembles more than one mistake to one digit; all that is told is what it is."""
    for key in ("handworked/two_heads", "handworked/without_bias", "handworked/batched"):
        found = verdict(key, {"output": parameters(key)["x"].astype(bfloat16)})
        assert found["verdict"] == "wrong" and found["diagnosis"]["mistakes"] == []
        assert found["diagnosis"]["sentence"].startswith("your output equals our x (within ")


def test_the_article_on_two_heads():
    """d_model 4 with two heads: what divides by sqrt(d_model) is told so, and what else it equals here."""
    sent = by_mistake(CASES["handworked/two_heads"], right("handworked/two_heads"), LIBRARY["divided_by_sqrt_d_model"])
    found = verdict("handworked/two_heads", sent)
    assert found["diagnosis"]["sentence"].startswith("what you sent equals: divided by sqrt(d_model), or the scale applied twice, or ")
    assert "the scale applied twice" in found["diagnosis"]["also"]


@quiet
def test_attention_along_the_wrong_axis_is_named_from_what_torch_makes_of_it():
    """R11 and R12: queries, keys and values whose heads, or whose samples, stand where torch expects the tokens."""
    cases = shipped("field_cases")["cases"]
    for name, axis, mistake in (("r11_heads_first", 0, "attention_across_heads"), ("r12_two_sequences", 0, "attention_across_batch")):
        arrays = compute(cases[name], FOLDER)
        q, k, v = (torch.from_numpy(np.swapaxes(arrays[f"{n}_heads"], axis, -2).copy()) for n in "qkv")
        contexts = np.swapaxes(torch.nn.functional.scaled_dot_product_attention(q, k, v).numpy(), axis, -2)
        concat = np.swapaxes(contexts, -2, -3).reshape(*contexts.shape[:-3], contexts.shape[-2], -1)
        sent = {"concat": concat, "output": concat @ arrays["w_o"].T if "w_o" in arrays else concat}
        given = {parameter: arrays[parameter] for parameter in cases[name]["arrays"]["parameters"]}
        assert names(judge_case(cases[name], given, sent, Diagnoser())) == [mistake]
