"""Sweeps: what is written in a few lines is what somebody would write out by hand, and each case has a name of its own."""

import re
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from worked_attention.cases.strict_yaml import Problems
from worked_attention.cases.suites import load_suite
from worked_attention.cases.sweeps import expanded

LIMITS = {"max_array_mb": 256, "max_sweep_cases": 200}
OWN = ("suite", "name", "title", "look", "extends", "sweep")  # in which the cases of a sweep differ from those written by hand
BASE = """\
cases:
  base:
    heads: 2
    sizes: {Lq: 3, d_model: 4}
    mask: {window: {left: 1, right: 1}}
    parameters: {x: {grid: {}}, w_q: {normal: {seed: 1, std: 0.1}}, w_k: {normal: {seed: 2}}, w_v: {normal: {seed: 3}}}
"""


def load(path: Path, text: str) -> dict:
    path.write_text(BASE + text, "utf-8")
    return load_suite(path, LIMITS)


def numbers(case: dict) -> dict:
    """All of a case that numbers come from."""
    return {key: value for key, value in case.items() if key not in OWN}


@pytest.mark.parametrize("suite", ["scaling", "costs", "rounding"])
def test_a_shipped_sweep_is_what_was_written_by_hand(suite: str):
    """The files in tests/data are the suites as they stood before there were sweeps, a case for each combination."""
    swept = load_suite(ROOT / "config" / "suites" / f"{suite}.yaml", LIMITS)
    by_hand = load_suite(ROOT / "tests" / "data" / f"{suite}_by_hand.yaml", LIMITS)
    assert list(map(numbers, swept["cases"].values())) == list(map(numbers, by_hand["cases"].values()))
    assert swept["skipped"] == by_hand["skipped"] == {}


BY_HAND = """\
  grid_heads_1_no_causal_left_2:
    extends: base
    title: "Grid: heads = 1, no causal, left = 2"
    look: The same look.
    heads: 1
    mask: {window: {left: 2, right: 1}}
  grid_heads_1_no_causal_no_left:
    extends: grid_heads_1_no_causal_left_2
    title: "Grid: heads = 1, no causal, no left"
    look: The same look.
    mask: {window: {right: 1}}
  grid_heads_1_causal_top_left_left_2:
    extends: grid_heads_1_no_causal_left_2
    title: "Grid: heads = 1, causal = top_left, left = 2"
    look: The same look.
    mask: {causal: top_left}
  grid_heads_1_causal_top_left_no_left:
    extends: grid_heads_1_no_causal_left_2
    title: "Grid: heads = 1, causal = top_left, no left"
    look: The same look.
    mask: {causal: top_left, window: {right: 1}}
"""


def test_a_sweep_is_its_cases_written_out(tmp_path: Path):
    """Options in mappings of mappings change nothing beside them; the others extend the first, which extends what the sweep extends."""
    sweep = "  grid:\n    extends: base\n    title: Grid\n    look: The same look.\n    sweep:\n      heads: [1]\n"
    sweep += "      mask.causal: [null, top_left]\n      mask.window.left: [2, null]\n"
    last = "  last: {extends: grid_heads_1_causal_top_left_no_left, scale: none}\n"
    swept = load(tmp_path / "one.yaml", sweep + last)["cases"]
    written = load(tmp_path / "two.yaml", BY_HAND + last)["cases"]
    assert list(swept) == list(written) and len(swept) == 6
    for name, case in swept.items():
        assert {**case, "suite": "", "sweep": None} == {**written[name], "suite": ""}, name
    choices = {"heads": 1, "mask.causal": "top_left", "mask.window.left": None}
    assert swept["grid_heads_1_causal_top_left_no_left"]["sweep"] == {"name": "grid", "choices": choices}


def test_seeds_and_arrays_are_choices(tmp_path: Path):
    """A seed of one parameter keeps its std; an array has no short name and is counted."""
    text = "  s: {extends: base, sweep: {parameters.w_q.normal.seed: [5, 6]}}\n"
    text += f"  t: {{extends: base, sweep: {{parameters.w_q: [null, {[[0.125] * 4] * 4}], parameters.w_k: [null, {{grid: {{}}}}]}}}}\n"
    with pytest.raises(Problems, match=r"t_no_w_q_no_w_k: parameters.w_q: is missing"):
        load(tmp_path / "s.yaml", text)
    text = text.replace("[null, [[", "[{grid: {a: 2}}, [[").replace("[null, {grid", "[{grid: {den: 8}}, {grid")
    cases = load(tmp_path / "s.yaml", text)["cases"]
    assert cases["s_seed_6"]["parameters"]["w_q"] == {"normal": {"seed": 6, "std": 0.1, "mean": 0}}
    assert [name for name in cases if name.startswith("t")] == [
        "t_w_q_grid_a_2_w_k_grid_den_8",
        "t_w_q_grid_a_2_w_k_grid",
        "t_w_q_2_w_k_grid_den_8",
        "t_w_q_2_w_k_grid",
    ]
    assert cases["t_w_q_2_w_k_grid"]["parameters"]["w_q"] == [[0.125] * 4] * 4


def test_numbers_keep_their_sign_in_a_name(tmp_path: Path):
    cases = load(tmp_path / "s.yaml", "  s: {extends: base, sweep: {scale: [-0.5, 0.5, 1e-20, 1e+20, none, 1/d_k]}}\n")["cases"]
    names = ["minus_0_5", "0_5", "1e_minus_20", "1e20", "none", "1_d_k"]
    assert list(cases)[1:] == [f"s_scale_{name}" for name in names]
    assert [case["scale"] for case in cases.values()][1:] == [-0.5, 0.5, 1e-20, 1e20, "none", "1/d_k"]


def test_choices_that_would_be_called_alike(tmp_path: Path):
    """Two choices of one sweep cannot be renamed."""
    with pytest.raises(Problems, match="called s_tokens_a_b, as is that of tokens: a b; leave one of the two choices to a case of its own"):
        load(tmp_path / "s.yaml", "  s: {extends: base, sweep: {tokens: [[a, b], [a-b]]}}\n")


def test_what_makes_no_sense_is_left_out_where_a_sweep_says_so(tmp_path: Path):
    """Three heads do not divide a width of 4; with widths of their own they need not. The first that is left is the one to extend."""
    sweep = "  s: {extends: base, sweep: {heads: [3, 2], sizes.d_k: [null, 2], sizes.d_v: [null, 3]SKIP}}\n"
    with pytest.raises(Problems) as problems:
        load(tmp_path / "s.yaml", sweep.replace("SKIP", ""))
    first = str(problems.value).splitlines()[0]
    assert re.search(r"s.yaml:7: case s_heads_3_no_d_k_no_d_v: heads: 3 heads .* \(in the combination heads: 3, sizes.d_k: null, ", first)
    suite = load(tmp_path / "s.yaml", sweep.replace("SKIP", ", skip: invalid"))
    kept = ["s_heads_3_d_k_2_d_v_3", "s_heads_2_no_d_k_no_d_v", "s_heads_2_no_d_k_d_v_3", "s_heads_2_d_k_2_no_d_v", "s_heads_2_d_k_2_d_v_3"]
    assert list(suite["cases"]) == ["base", *kept]
    assert [suite["cases"][name]["extends"] for name in kept] == ["base", *[kept[0]] * 4]
    assert list(suite["skipped"]) == ["s_heads_3_no_d_k_no_d_v", "s_heads_3_no_d_k_d_v_3", "s_heads_3_d_k_2_no_d_v"]
    assert all(why.startswith("heads: 3 heads do not divide d_model = 4") for why in suite["skipped"].values())


def test_what_is_too_large_is_not_left_out(tmp_path: Path):
    """Or a suite would have other cases under other limits, and its archive lack some elsewhere. 4 heads of 40 by 40: 51,200 bytes."""
    path = tmp_path / "s.yaml"
    path.write_text(f"{BASE}  s: {{extends: base, sweep: {{sizes.Lq: [3, 40], heads: [2, 4], skip: invalid}}}}\n", "utf-8")
    assert len(load_suite(path, LIMITS)["cases"]) == 5
    with pytest.raises(Problems, match=r"case s_lq_40_heads_4: .*51,200 bytes.*, more than limits.max_array_mb"):
        load_suite(path, LIMITS | {"max_array_mb": 0.03})


def test_figures_name_the_cases_of_a_sweep(tmp_path: Path):
    path = tmp_path / "s.yaml"
    text = "  s: {extends: base, sweep: {heads: [1, 2]}}\n"
    path.write_text(f"figures: [s_heads_2]\n{BASE}{text}", "utf-8")
    assert load_suite(path, LIMITS)["figures"] == ["s_heads_2"]
    path.write_text(f"figures: [s]\n{BASE}{text}", "utf-8")
    with pytest.raises(Problems, match="figures.0: no case s in this suite"):
        load_suite(path, LIMITS)


WORDS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.lists(st.integers(-9, 9), max_size=3),
    st.dictionaries(st.sampled_from(["pairing", "base"]), st.integers(-9, 9), max_size=2),
)
SWEEPS = st.dictionaries(
    st.sampled_from(["heads", "scale", "mask.causal", "sizes.d_k", "rotary.base", "sinusoidal.base", "parameters.x.normal.seed"]),
    st.lists(WORDS, min_size=1, max_size=4),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z0-9_]{1,6}", fullmatch=True), SWEEPS, min_size=1, max_size=3))
def test_every_name_is_its_own_or_refused(sweeps: dict):
    """Of any choices: a case for each combination, with a name that a case may have, or a complaint about one; the same each time."""
    said = []
    raw = {name: {"title": "T", "sweep": sweep} for name, sweep in sweeps.items()}
    cases, combinations = expanded(raw, 64, lambda where, message: said.append((where, message)))
    assert list(cases) == list(combinations) and all(re.fullmatch(r"[a-z0-9_]{1,100}", name) for name in cases)
    assert all(combinations[name].name == name for name in cases)
    assert expanded(raw, 64, lambda where, message: None) == (cases, combinations)
    for name, sweep in sweeps.items():
        refused = [message for where, message in said if where[1] == name]
        own = [combination for combination in combinations.values() if combination.sweep == name]
        product = 1
        for choices in sweep.values():
            product *= len(choices)
        if not any("would make" in message or "twice" in message or "lies within" in message for message in refused):
            assert len(own) + len(refused) == product


@settings(max_examples=100, deadline=None)
@given(SWEEPS)
def test_a_sweep_reads_from_yaml_as_it_is_meant(sweep: dict):
    """What a person writes into the file arrives: each choice stands at its dotted place, and nothing else is there."""
    raw = {"s": yaml.safe_load(yaml.safe_dump({"sweep": sweep}))}
    said = []
    cases, combinations = expanded(raw, 64, lambda where, message: said.append(message))
    for name, combination in combinations.items():
        made = combination.applied(cases[name])
        for option, value in combination.choices.items():
            inner = made
            for part in option.split("."):
                inner = inner.get(part) if isinstance(inner, dict) else None
            assert inner == value
