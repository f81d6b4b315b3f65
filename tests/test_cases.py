"""Resolved cases are complete: every option of the schema is there, with its default where the suite does not say it."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from shipped import shipped

from worked_attention.cases.resolve import resolve
from worked_attention.cases.suites import UNLIMITED

SCHEMA = yaml.safe_load((ROOT / "workflow/scripts/worked_attention/schemas/suite.schema.yaml").read_text("utf-8"))["$defs"]
OPTIONS = SCHEMA["case"]["properties"]
ELSEWHERE = {
    "extends",
    "sweep",
    "sizes",
    "positions",
    "parameters",
    "claims",
}  # merged; written out; `dims`; `query_positions`, ...; as given; a list
LIMITS = UNLIMITED | {"max_array_mb": 256}
SUITES = sorted((ROOT / "config" / "suites").glob("*.yaml"))
HEADS = {"q_heads": [[[1, 0, 2, 1]]], "k_heads": [[[1, 0, 2, 1]]], "v_heads": [[[1, 0, 2, 1]]]}


def resolved(**raw: object) -> dict:
    """The case that says `raw`; a complaint fails the test."""
    said = []
    case = resolve({"parameters": HEADS, **raw}, "s", "c", Path(), LIMITS, lambda where, message: said.append((where, message)))
    assert not said
    return case


def missing(rules: dict, given: dict, path: str = "") -> Iterator[str]:
    """Dotted names of the options in `rules` that `given` lacks; what is None lacks nothing."""
    for name, rule in rules.items():
        if name not in given:
            yield path + name
        elif isinstance(given[name], dict):
            yield from missing(rule["properties"], given[name], f"{path}{name}.")


def lacking(case: dict) -> set[str]:
    """Options that a resolved case lacks; what `mask` does not say it need not have, and its arrays are parameters."""
    unsaid = {f"mask.{name}" for name, rule in OPTIONS["mask"]["properties"].items() if "default" not in rule}
    found = set(missing({name: rule for name, rule in OPTIONS.items() if name not in ELSEWHERE}, case)) - unsaid
    for name, spec in case["parameters"].items():
        for form, options in spec.items() if isinstance(spec, dict) else ():
            if isinstance(options, dict):
                found |= set(missing(SCHEMA["parameter"]["properties"][form]["properties"], options, f"{name}.{form}."))
    return found


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_shipped_cases_have_every_option(path: Path):
    for case in shipped(path.stem)["cases"].values():
        assert lacking(case) == set(), case["name"]


def test_a_missing_option_is_seen():
    case = resolved(rotary={"pairing": "half", "scaling": {"rule": "linear", "factor": 2}}, mask={"window": {"left": 1}})
    assert lacking(case) == set()
    wrong = copy.deepcopy(case)
    del wrong["softcap"], wrong["rotary"]["angles"], wrong["rotary"]["scaling"]["low"], wrong["mask"]["window"]["right"]
    assert lacking(wrong) == {"softcap", "rotary.angles", "rotary.scaling.low", "mask.window.right"}


def test_defaults_are_those_of_the_guide():
    case = resolved(
        rotary={"pairing": "half"},
        alibi={"slopes": "geometric"},
        qk_norm={"kind": "rms"},
        mask={"causal": "bottom_right", "window": {"left": 1}},
    )
    assert case["rotary"] == {"pairing": "half", "base": 10000, "dims": 4, "angles": "float64", "scaling": None}
    assert case["alibi"] == {"slopes": "geometric", "form": "distance"}
    assert case["qk_norm"] == {"kind": "rms", "eps": 1e-6, "zero_vector": "zero"}
    window = {"left": 1, "right": None, "align": "bottom_right"}
    assert case["mask"] == {
        "causal": "bottom_right",
        "prefix": 0,
        "diagonal": "padded",
        "window": window,
        "fill": "-inf",
        "empty_row": "zero",
    }
    assert (case["dtype"], case["precision"]) == ("float64", dict.fromkeys(("accumulate", "softmax", "scores"), "float64"))
    assert (case["heads"], case["kv_heads"], case["scale"], case["softmax"], case["extra_key"]) == (1, 1, "1/sqrt(d_k)", "plain", "none")
    assert (case["title"], case["look"], case["tokens"], case["key_tokens"]) == ("c", "", ["1"], ["1"])
    for absent in ("softcap", "dropout", "sinusoidal", "t5", "backward", "torch_draws"):
        assert case[absent] is None


@pytest.mark.parametrize(
    ("scaling", "rest"),
    [
        ({"rule": "linear", "factor": 2}, {"original_length": None, "beta_slow": None, "beta_fast": None, "low": None, "high": None}),
        ({"rule": "yarn", "factor": 2, "original_length": 8}, {"beta_slow": 1, "beta_fast": 32, "low": None, "high": None}),
        ({"rule": "llama3", "factor": 2, "original_length": 8}, {"beta_slow": None, "beta_fast": None, "low": 1, "high": 4}),
    ],
)
def test_a_scaling_rule_has_its_own_defaults(scaling: dict, rest: dict):
    assert resolved(rotary={"pairing": "half", "scaling": scaling})["rotary"]["scaling"] == scaling | rest


def test_case_and_suite_carry_a_format_number():
    suite = shipped("handworked")
    assert suite["format"] == 1
    assert all(case["format"] == 1 for case in suite["cases"].values())


@pytest.mark.parametrize(("sizes", "batch"), [({}, []), ({"B": 2}, [2])])
def test_shapes_of_masks_and_tables_that_are_no_lists(sizes: dict, batch: list[int]):
    """As config/README.md says: a mask for all heads without a batch, for each with one; a table always for each head."""
    drawn = {name: {"normal": {"seed": 1}} for name in ("q_heads", "k_heads", "v_heads", "bias_table")}
    case = resolved(
        heads=3, sizes={"Lq": 4, "Lk": 5, "d_k": 2, **sizes}, parameters=drawn, mask={"add": {"grid": {}}, "key_add": {"grid": {}}}
    )
    assert case["shapes"]["bias_table"] == [*batch, 3, 4, 5]
    assert case["shapes"]["mask_add"] == ([2, 3, 4, 5] if batch else [4, 5])
    assert case["shapes"]["mask_key_add"] == [*batch, 5]


def test_a_diagonal_of_its_own_and_a_vector_of_zeros_are_sayable():
    case = resolved(
        mask={"causal": "bottom_right", "key_lengths": [1], "diagonal": "own"}, qk_norm={"kind": "l2", "eps": 0, "zero_vector": "nan"}
    )
    assert case["mask"]["diagonal"] == "own" and case["qk_norm"]["zero_vector"] == "nan"
    windowed = resolved(mask={"window": {"left": 1, "align": "bottom_right"}, "key_lengths": [1], "diagonal": "own"})
    assert windowed["mask"]["diagonal"] == "own"
