"""The suites that show one theme each: every option is in them, they are right by a second route, and decoding equals the full run."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shipped import shipped
from strategies import booleans, resolved, rotary

from worked_attention.cases.strict_yaml import Document
from worked_attention.cases.suites import load_config
from worked_attention.referee.claims import check_claim
from worked_attention.referee.compare import compare_case, gates_of
from worked_attention.references import torch_manual
from worked_attention.references.torch_tools import DTYPES, tensor
from worked_attention.stages.dtypes import HALF
from worked_attention.stages.whole import compute

FOLDER = ROOT / "config" / "suites"
THEMES = ("heads", "masks", "positions", "scores", "softmax", "cache", "precision", "gradients")
CONFIG = load_config(ROOT / "config" / "config.yaml", {})
CASES = {(theme, name): case for theme in THEMES for name, case in shipped(theme)["cases"].items()}
SCHEMA = Document(ROOT / "workflow" / "scripts" / "worked_attention" / "schemas" / "suite.schema.yaml", "schema").data
CASE = SCHEMA["$defs"]["case"]

every_case = pytest.mark.parametrize("case", CASES.values(), ids=["-".join(key) for key in CASES])
quiet = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # two cases are about that


# Every option, and every value of an option, is in a suite


def followed(schema: dict, path: tuple) -> tuple[dict, tuple]:
    """The schema behind a $ref, under the name of what it refers to (so that a form counts for all parameters)."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return (SCHEMA["$defs"][name], (name,)) if name in ("parameter", "claim") else (schema, path)


def words(schema: dict) -> list:
    """The values that an option chooses from; none if it is free."""
    pattern = schema.get("pattern", "")
    return schema.get("enum", [] if "[" in pattern else re.sub(r"^\^\(|\)\$$|\\", "", pattern).split("|") if pattern else [])


def possible(schema: dict, path: tuple = ()) -> Iterator[tuple]:
    """Every (place, value or kind of value) that the schema allows."""
    yield path, "is there"
    schema, path = followed(schema, path)
    for word in words(schema):
        yield path, word
    if isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            if not (kind == "string" and words(schema)):
                yield path, kind
    for key, inner in schema.get("properties", {}).items():
        yield from possible(inner, (*path, key))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from possible(schema["additionalProperties"], (*path, "*"))
    if "$ref" in schema.get("items", {}):
        yield from possible(schema["items"], path)


def said(schema: dict, value: object, path: tuple = ()) -> Iterator[tuple]:
    """Every (place, value or kind of value) that `value` says."""
    yield path, "is there"
    schema, path = followed(schema, path)
    if value in words(schema):
        yield path, value
    elif isinstance(schema.get("type"), list):
        yield path, {str: "string", int: "number", float: "number", list: "array", dict: "object"}[type(value)]
    if isinstance(value, dict):
        free = schema.get("additionalProperties") or None
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key)
            if inner is not None and (known or free):
                yield from said(known or free, inner, (*path, key if known else "*"))
        if "then" in schema:
            yield from said(schema["then"], value, path)
    if isinstance(value, list) and "$ref" in schema.get("items", {}):
        for item in value:
            yield from said(schema["items"], item, path)


def test_every_option_and_every_value_is_shown():
    cases = [case for name in (*THEMES, "tutorial") for case in Document(FOLDER / f"{name}.yaml", name).data["cases"].values()]
    elsewhere = {place for place in possible(CASE) if "sweep" in place[0] or "tensor" in place[0]}  # test_sweeps, test_bad_input
    missing = set(possible(CASE)) - elsewhere - {place for case in cases for place in said(CASE, case)}
    assert not missing, sorted(map(str, missing))


@every_case
def test_says_what_to_look_at(case):
    assert case["title"] != case["name"]
    assert case["look"].endswith(".")


def test_few_cases_are_drawn():
    drawn = [len(shipped(theme)["figures"]) for theme in THEMES]
    assert max(drawn) <= 3 and sum(drawn) >= 8


# Every case is right


@quiet
@every_case
def test_agrees_with_torch(case):
    arrays = compute(case, FOLDER)
    if torch_manual.supports(case):
        pytest.skip(torch_manual.supports(case))
    theirs = torch_manual.run(case, {name: arrays[name] for name in case["arrays"]["parameters"]})
    result = compare_case(arrays, theirs, gates_of(case, arrays, CONFIG["gates"]))
    assert result["verdict"] == "pass", result["first_divergence"]
    assert result["arrays"]["weights"]["verdict"] == "pass"


@quiet
@every_case
def test_claims(case):
    arrays = compute(case, FOLDER)
    for claim in case["claims"]:
        for value in check_claim(claim, arrays[claim["array"]]):
            assert value["agrees"], (claim["array"], value)


def test_every_theme_has_claims():
    assert {theme for (theme, _), case in CASES.items() if case["claims"]} == set(THEMES)


@pytest.mark.parametrize("name", [name for (_, name), case in CASES.items() if case["precision"]["accumulate"] in HALF])
def test_sums_rounded_term_by_term(name):
    case = CASES["precision", name]
    arrays = compute(case)
    groups = case["heads"] // case["kv_heads"]
    q, k, v, weights = (tensor(arrays[array]) for array in ("q_heads", "k_heads", "v_heads", "weights"))
    k, v = k.repeat_interleave(groups, dim=0), v.repeat_interleave(groups, dim=0)
    for a, b, ours in ((q, k.mT, arrays["qk"]), (weights, v, arrays["contexts"])):
        a, b = (x.to(DTYPES[case["precision"]["accumulate"]]) for x in (a, b))
        total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
        for t in range(a.shape[-1]):
            total = total + a[..., t, None] * b[..., None, t, :]
        assert torch.equal(total.to(DTYPES[case["dtype"]]), tensor(ours))


# Decoding in chunks gives the numbers of the full run


OPTIONS = {  # by name; what depends on the sizes is added in `decodings`
    "alibi": [
        {"slopes": slopes, "form": form} for slopes in ("interleaved", "geometric") for form in ("distance", "relative", "key_index")
    ],
    "t5": [{"direction": direction, "longest": longest} for direction in ("both", "left") for longest in (5, 128)],
    "qk_norm": [{"kind": "rms"}, {"kind": "l2", "eps": 0.01}],
    "softcap": [0.5, 5],
    "scale": ["none", "1/d_k", -0.4],
    "softmax": ["plus_one", "hardmax", "none"],
    "extra_key": ["zero"],
    "dropout": [0.25],
}
BEGINNINGS = {"x": ["x", "w_q", "w_k", "w_v", "b_k"], "qkv": ["q", "k", "v"], "heads": ["q_heads", "k_heads", "v_heads"]}


@st.composite
def decodings(draw) -> tuple[dict, list[int]]:
    """A causal case as a suite would say it, and where it is cut: the first chunk holds the prefix, the others 1 to 3 tokens."""

    def sometimes() -> bool:
        return draw(st.integers(0, 2)) == 0

    length, kv_heads, batch = draw(st.integers(2, 6)), draw(st.integers(1, 2)), draw(st.sampled_from([None, 2]))
    heads, d_k, begin = kv_heads * draw(st.integers(1, 3)), draw(st.sampled_from([2, 4, 6])), draw(st.sampled_from(list(BEGINNINGS)))
    raw = {
        "heads": heads,
        "kv_heads": kv_heads,
        "sizes": {"Lq": length, "d_model": 5, "d_k": d_k, "d_v": draw(st.integers(1, 3)), "buckets": 8},
    }
    if batch:
        raw["sizes"]["B"] = batch
    raw |= {option: draw(st.sampled_from(values)) for option, values in OPTIONS.items() if sometimes()}
    if draw(st.booleans()):
        raw["rotary"] = draw(rotary(d_k))
    if begin == "x" and sometimes():
        raw["sinusoidal"] = {}
    if not {"alibi", "t5"} & set(raw) and sometimes():
        raw["positions"] = {"offset": draw(st.integers(1, 9))}
    raw["mask"] = mask = {"causal": "bottom_right"}
    if sometimes():
        mask["window"] = {"left": draw(st.integers(0, 3)), "align": "bottom_right"}
    if sometimes():
        mask["prefix"] = draw(st.integers(1, length))
    if sometimes():
        mask["documents"] = [1 + (i >= length // 2) for i in range(length)]
    if sometimes():
        mask["key_lengths"] = draw(st.lists(st.integers(1, length), min_size=batch or 1, max_size=batch or 1))
    if sometimes():
        mask |= {"block": booleans(draw, [length, length]), "empty_row": draw(st.sampled_from(["zero", "nan"]))}
    names = BEGINNINGS[begin] + ["t5_table"] * ("t5" in raw) + ["g_q", "g_k"] * ("qk_norm" in raw)
    names += ["bias_table"] * sometimes() + ["sinks"] * ("softmax" not in raw and sometimes()) + ["bias_k", "bias_v"] * sometimes()
    seed = draw(st.integers(0, 10**6))
    raw["parameters"] = {name: {"normal": {"seed": seed + i}} for i, name in enumerate(names)}
    if "dropout" in raw:
        keys = length + ("extra_key" in raw) + ("bias_k" in names)
        raw["parameters"]["dropout_keep"] = booleans(draw, [batch] * bool(batch) + [heads, length, keys])
    cuts = [0, min(length, max(mask.get("prefix", 1), draw(st.integers(1, 3))))]
    while cuts[-1] < length:
        cuts.append(min(length, cuts[-1] + draw(st.integers(1, 3))))
    return raw, cuts


def seen(whole: dict[str, np.ndarray], length: int, stop: int) -> list[int]:
    """Columns of the full run's weights that a chunk which ends at `stop` has, too: keys so far, and those that the layer appends."""
    return [j for j in range(whole["weights"].shape[-1]) if j < stop or j >= length]


def chunk(raw: dict, whole: dict[str, np.ndarray], past: dict[str, np.ndarray], start: int, stop: int) -> dict:
    """The case for the tokens from `start` to `stop` alone, behind a cache of those before; `whole`: the full run's arrays."""
    cut = {name: whole[name].tolist() for name in raw["parameters"]}
    for name in {"x", "q", "k", "v", "q_heads", "k_heads", "v_heads"} & set(cut):
        cut[name] = whole[name][..., start:stop, :].tolist()
    if "bias_table" in cut:
        cut["bias_table"] = whole["bias_table"][..., start:stop, :stop].tolist()
    if "dropout_keep" in cut:
        cut["dropout_keep"] = whole["dropout_keep"][..., start:stop, seen(whole, raw["sizes"]["Lq"], stop)].tolist()
    mask = dict(raw["mask"])
    if "block" in mask:
        mask["block"] = [row[:stop] for row in mask["block"][start:stop]]
    if "documents" in mask:
        mask["documents"] = {"queries": mask["documents"][start:stop], "keys": mask["documents"][:stop]}
    if "key_lengths" in mask:
        mask["key_lengths"] = [min(n, stop) for n in mask["key_lengths"]]
    sizes = {name: raw["sizes"][name] for name in ("d_k", "d_v")}
    positions = {"offset": raw["positions"]["offset"] + start} if "positions" in raw else {}
    return {
        **raw,
        "sizes": sizes,
        "mask": mask,
        "positions": positions,
        "parameters": cut | {f"past_{n}": x.tolist() for n, x in past.items()},
    }


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(decodings())
def test_decoding_equals_the_full_run(drawn):
    raw, cuts = drawn
    whole, past = compute(resolved(raw)), {}
    for start, stop in zip(cuts, cuts[1:], strict=False):
        part = compute(resolved(chunk(raw, whole, past, start, stop)))
        columns = seen(whole, raw["sizes"]["Lq"], stop)
        np.testing.assert_allclose(part["weights"], whole["weights"][..., start:stop, columns], rtol=0, atol=1e-12)
        np.testing.assert_allclose(part["output"], whole["output"][..., start:stop, :], rtol=0, atol=1e-12)
        past = cache(part)
    for name, array in cache(whole).items():
        np.testing.assert_allclose(past[name], array, rtol=0, atol=1e-12)


def cache(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Keys and values as the next call wants them: the last form, before the layer appends its own."""
    return {n: next(arrays[form] for form in (f"present_{n}", f"{n}_rot", f"{n}_norm", f"{n}_heads") if form in arrays) for n in "kv"}
