"""Certified bounds against truth in ball arithmetic: never broken by a right computation, broken by wrong ones, and not far too wide."""

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shipped import shipped
from strategies import GRADED, raw_cases, resolved
from threadpoolctl import threadpool_limits

from worked_attention.referee.arithmetics import strictest
from worked_attention.referee.bounds.contracts import CONTRACTS, contract, gates, roundoffs, within
from worked_attention.referee.bounds.rounding import UNIT
from worked_attention.referee.bounds.whole import bounds, centres, stage_bounds
from worked_attention.referee.compare import own_gates
from worked_attention.referee.exactness import against_exact
from worked_attention.referee.truth.whole import stage_truth, truth
from worked_attention.references import torch_manual
from worked_attention.stages import backward, contexts, outputs, parameters, projections, scores, weights
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE
from worked_attention.stages.whole import compute, from_parameters

MANY = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FAMILIES = ("plain", "masked", "saturated", "offset")
STAGES = {"projections": projections, "scores": scores, "weights": weights, "contexts": contexts, "outputs": outputs, "backward": backward}
LOOSENESS: dict[tuple[str, str, str], list[float]] = defaultdict(list)  # bound over error by kind of run, dtype and stage

families = pytest.mark.parametrize("family", FAMILIES)
dtypes = pytest.mark.parametrize("dtype", ("float64", "float32"))


@st.composite
def family_cases(draw, family: str, dtype: str, **fixed):
    """A random case whose scores are ordinary, masked, so large that the softmax saturates, or whose values share a large offset."""
    fixed = {"empty_rows": ("zero", "nan", "uniform"), **fixed}
    begins = ("qkv", "heads") if family == "offset" else ("x", "cross", "kdim", "qkv", "heads")
    raw = draw(raw_cases(dtypes=(dtype,), begins=begins, masks=family == "masked", **fixed))
    for name, spec in raw["parameters"].items():
        if family == "saturated" and name in ("q", "k", "q_heads", "k_heads", "w_q", "w_k"):
            spec["normal"]["std"] = 30
        if family == "offset" and name in ("v", "v_heads", "past_v"):
            raw["parameters"][name] = {"grid": {"a": 7919, "c": 900_000, "m": 1_000_000, "den": draw(st.sampled_from([3, 4096]))}}
    return raw


def check(kind: str, case: dict, computed: dict, found: dict, true: dict) -> None:
    """Every computed array lies within its bound of the truth; how much wider the bounds are is noted."""
    for name in set(computed) & set(true) - set(BOOLEAN) - set(case["arrays"]["parameters"]):
        (middle, radius), ours = true[name], computed[name].astype(np.float64)
        assert found[name].shape == middle.shape == ours.shape, name
        with np.errstate(invalid="ignore"):
            error = np.abs(ours - middle)
        same = (ours == middle) | np.isnan(ours) & np.isnan(middle)
        right = same | (error <= found[name] + radius)
        assert right.all(), (name, error[~right], found[name][~right], middle[~right])
        seen = np.isfinite(error) & (error > 2 * radius) & np.isfinite(found[name])
        LOOSENESS[kind, case["dtype"], CATALOGUE[name].stage] += (found[name][seen] / error[seen]).tolist()


def bounded(case: dict, arrays: dict) -> dict:
    return bounds(case, centres(case, arrays), *roundoffs(case))


@dtypes
@families
def test_end_to_end(family: str, dtype: str):
    @MANY
    @given(family_cases(family, dtype))
    def run(raw):
        case = resolved(raw)
        ours = compute(case)
        check("end to end", case, ours, bounded(case, ours), truth(case, ours))

    run()


@dtypes
@families
def test_gradients_end_to_end(family: str, dtype: str):
    @settings(MANY, max_examples=30)
    @given(family_cases(family, dtype, softmax=GRADED, backward="ones", empty_rows=("zero", "uniform")))
    def run(raw):
        case = resolved(raw)
        ours = compute(case)
        check("end to end", case, ours, bounded(case, ours), truth(case, ours))

    run()


@dtypes
@families
def test_one_stage(family: str, dtype: str):
    """Each stage computed from our own previous one, taken as exact."""

    @settings(MANY, max_examples=30)
    @given(family_cases(family, dtype, softmax=GRADED, backward="ones", empty_rows=("zero", "uniform")))
    def run(raw):
        case = resolved(raw)
        before = {name: array for name, array in compute(case).items() if name in case["arrays"]["parameters"]}
        for stage, module in STAGES.items():
            ours, true = module.stage(case, before), stage_truth(case, stage, before)
            middles = {name: middle for name, (middle, _) in true.items()}
            check("one stage", case, ours, stage_bounds(case, stage, before | middles, *roundoffs(case)), true)
            before |= ours

    run()


@families
def test_torch_in_float32(family: str):
    """Another implementation, in another order of summation."""

    @settings(MANY, max_examples=30)
    @given(family_cases(family, "float32", softmax=GRADED, backward="ones", empty_rows=("zero",)))
    def run(raw):
        case = resolved(raw)
        ours = compute(case)
        theirs = torch_manual.run(case, {name: ours[name] for name in case["arrays"]["parameters"]})
        check("torch", case, theirs, bounded(case, ours), truth(case, ours))

    run()


@settings(MANY, max_examples=80)
@given(raw_cases(dtypes=("float16", "bfloat16")))
def test_half_precisions(raw):
    case = resolved(raw)
    ours = compute(case)
    check("half", case, ours, bounded(case, ours), truth(case, ours))


def middling(dtype: str, **more) -> dict:
    """A case of 48 tokens and 2 heads of width 16."""
    parameters = {f"{name}_heads": {"normal": {"seed": seed}} for seed, name in enumerate("qkv")}
    return resolved({"dtype": dtype, "heads": 2, "sizes": {"Lq": 48, "Lk": 48, "d_k": 16, "d_v": 16}, "parameters": parameters, **more})


def broken(computed: dict, found: dict, true: dict) -> list[str]:
    """Names of the arrays that leave their bound."""
    return [name for name in computed if name in true and not within(computed[name], true[name].middle, found[name] + true[name].radius)]


@dtypes
def test_wrong_computations_leave_the_bounds(dtype: str):
    case = middling(dtype)
    ours = compute(case)
    true, found = truth(case, ours), bounded(case, ours)
    assert not broken(ours, found, true)
    wrong = compute(case | {"scale_factor": 17**-0.5})
    assert broken(wrong, found, true) == ["scaled", "masked", "weights", "contexts", "concat", "output"]
    u, kept = roundoffs(case)
    u, kept = u * 2.0**-100, {name: unit * 2.0**-100 for name, unit in kept.items()}
    assert "qk" in broken(ours, bounds(case, centres(case, ours), u, kept), true)


def test_float32_arithmetic_is_told_from_float64():
    case = middling("float64")
    ours = compute(case)
    narrow = compute(case | {"precision": {"accumulate": "float32", "softmax": "float64", "scores": "float64"}})
    true = truth(case, ours)
    assert "qk" in broken(narrow, bounds(case, ours, UNIT["float64"]), true)
    assert not broken(narrow, bounds(case, ours, UNIT["float32"], UNIT["float64"]), true)


def fused(arrays: dict, stored: set[str], half: np.dtype) -> dict[str, np.ndarray]:
    """Attention in float32 from half-precision heads, where the arrays named in `stored` are rounded to half."""

    def store(name: str, x: np.ndarray) -> np.ndarray:
        return x.astype(half).astype(np.float32) if name in stored else x

    q, k, v = (arrays[f"{name}_heads"].astype(np.float32) for name in "qkv")
    qk = store("qk", q @ np.swapaxes(k, -1, -2))
    scaled = store("scaled", qk / np.float32(4))
    made = {"qk": qk, "scaled": scaled, "masked": scaled, "weights": store("weights", weights.softmax(scaled))}
    return made | {"contexts": made["weights"] @ v}


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_contracts_are_told_apart(dtype: str):
    case = middling(dtype)
    arrays = compute(case)
    half = np.dtype(dtype)
    for name, stored in zip(CONTRACTS, (set(), {"weights"}, {"qk", "scaled", "weights"}), strict=False):
        made = fused(arrays, stored, half)
        assert strictest(case, arrays, made) == name
        assert strictest(case, arrays, {"contexts": made["contexts"]}) in list(CONTRACTS)[: list(CONTRACTS).index(name) + 1]
    made = fused(arrays, {"weights"}, half)
    allowed = bounds(case, centres(case, arrays), UNIT["float32"], contract("float32 accumulation", dtype) | {"contexts": UNIT["float32"]})
    assert not within(made["contexts"], centres(case, arrays)["contexts"], allowed["contexts"])
    shown = {"contexts": made["contexts"].astype(half)}
    assert strictest(case, arrays, shown) == "weights stored in half"
    assert strictest(case, arrays, {"contexts": made["contexts"] * np.float32(2)}) is None


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_sums_in_half_are_told_from_others(dtype: str):
    """Sums of 16 and 12 terms that are rounded after each; a scale that is 15 % off is no such sum."""
    case = middling(dtype) | {"precision": {"accumulate": dtype, "softmax": dtype, "scores": dtype}}
    shown = ("qk", "scaled", "weights", "contexts", "output")
    sums, wide = compute(case), compute(middling(dtype))
    assert strictest(middling(dtype), wide, {name: sums[name] for name in shown}) == "sums in half"
    assert strictest(middling(dtype), wide, {name: wide[name] for name in shown}) == list(CONTRACTS)[2]
    other = compute(case | {"scale_factor": 1.15 * case["scale_factor"]})
    assert strictest(middling(dtype), wide, {name: other[name] for name in shown}) is None


def test_our_own_half_precision_stores_scores_and_weights():
    case = middling("float16")
    ours = compute(case)
    assert strictest(case, ours, {name: ours[name] for name in ("scaled", "weights", "contexts", "output")}) == list(CONTRACTS)[2]


def scores_given(scaled: list, **more) -> dict:
    return resolved({"parameters": {"scaled": scaled, "v": {"grid": {}}}, "sizes": {"d_v": 2}, **more})


def test_masked_weights_are_exact():
    case = scores_given([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], mask={"causal": "top_left"})
    found = bounded(case, compute(case))
    assert (found["masked"] == 0).all()
    assert (found["weights"][0, 0, 1:] == 0).all() and found["weights"][0, 1, 2] == 0
    assert (found["weights"][0, 1, :2] > 0).all()


@pytest.mark.parametrize("policy", ("zero", "nan", "uniform"))
@pytest.mark.parametrize("dtype", ("float64", "float32"))
def test_a_sink_of_minus_infinity_is_no_sink(dtype: str, policy: str):
    """A row without keys follows empty_row, for us, truth and torch; also where the softmax is coarser than the scores."""
    raw = {
        "heads": 2,
        "precision": {"softmax": dtype},
        "mask": {"block": [[True] * 3, [False] * 3], "empty_row": policy},
        "parameters": {"q": [[1, 2], [3, 1]], "k": [[1, 2], [2, 1], [0, 3]], "v": [[1, 2], [3, 4], [5, 6]]},
    }
    plain = compute(resolved(raw))["weights"]
    raw["parameters"]["sinks"] = ["-Infinity", 0]
    case = resolved(raw)
    ours = compute(case)
    np.testing.assert_array_equal(ours["weights"][0], plain[0])
    assert (ours["weights"][1, 0] == 0).all()
    found, true = bounded(case, ours), truth(case, ours)
    assert all(np.isfinite(bound).all() for bound in found.values())
    check("no sink", case, ours, found, true)
    check("no sink", case, torch_manual.run(case, {name: ours[name] for name in case["arrays"]["parameters"]}), found, true)


def test_hardmax_is_exact_but_for_scores_that_could_tie():
    sizes = {"Lq": 1, "Lk": 3, "d_k": 2, "d_v": 1}
    heads = {"q_heads": [[[0.1, 0.3]]], "k_heads": [[[0.3, 0.1], [0.1, 0.1666666666666667], [0.0, 0.0]]], "v_heads": {"grid": {}}}
    case = resolved({"softmax": "hardmax", "sizes": sizes, "parameters": heads})
    assert bounded(case, compute(case))["weights"].tolist() == [[[1.0, 1.0, 0.0]]]
    case = scores_given([[[2.0, 2.0, 1.0]]], softmax="hardmax")
    assert bounded(case, compute(case))["weights"].tolist() == [[[0.0, 0.0, 0.0]]]


@pytest.mark.parametrize("dtype", ("float64", "float32", "float16"))
def test_scores_of_any_size(dtype: str):
    """Large finite numbers in place of -inf, added twice too, leave bounds of use for all weights."""
    most = {"float64": 1.7e308, "float32": 3.4e38, "float16": 65504}[dtype]
    add = [[0.0, -most, -most / 2], [-1e4, 0.0, 3.0], [-300.0, -80.0, 2.0]]
    raw = {"dtype": dtype, "heads": 1, "sizes": {"Lq": 3, "Lk": 3, "d_k": 4, "d_v": 2}}
    raw["parameters"] = {f"{name}_heads": {"normal": {"seed": seed}} for seed, name in enumerate("qkv")} | {"bias_table": [add]}
    case = resolved(raw | {"mask": {"add": add}})
    with np.errstate(over="ignore"):
        ours = compute(case)
    found = bounded(case, ours)
    check("large scores", case, ours, found, truth(case, ours))
    assert found["contexts"].max() < 100 * UNIT[dtype]


def test_hopeless_scores_still_bound_weights():
    """Scores whose errors are larger than themselves apart: a weight is somewhere between 0 and 1."""
    large = {f"{name}_heads": {"normal": {"seed": seed, "std": 300}} for seed, name in enumerate("qk")}
    case = middling("bfloat16") | {"parameters": large | {"v_heads": {"normal": {"seed": 2}}}}
    found = bounded(case, compute(case))
    assert 1 <= found["weights"].max() < 1.1 and np.isfinite(found["contexts"]).all()
    assert np.isinf(bounds(case, centres(case, compute(case)), 0.4)["contexts"]).all()


def test_gates_are_twice_the_bound_where_both_compute_alike():
    case = middling("float32")
    ours = compute(case)
    allowed, found = gates(case, ours), bounded(case, ours)
    assert all((allowed[name] >= found[name]).all() and (allowed[name] <= 2.01 * found[name] + 1e-300).all() for name in found)
    parameters = {name: ours[name] for name in case["arrays"]["parameters"]}
    assert all(within(theirs, ours[name].astype(float), allowed[name]) for name, theirs in torch_manual.run(case, parameters).items())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_scale_on_both_sides_of_the_product(dtype):
    """(Q sqrt(s)) (K sqrt(s))^T rounds every element of both, which does not shrink where the terms of a product cancel."""
    broken = 0
    for seed in range(60):
        drawn = {f"{name}_heads": {"normal": {"seed": 7 * seed + i}} for i, name in enumerate("qkv")}
        case = resolved({"heads": 2, "sizes": {"Lq": 9, "Lk": 9, "d_k": 2}, "dtype": dtype, "parameters": drawn})
        ours = compute(case)
        root = np.sqrt(ours["q_heads"].dtype.type(case["scale_factor"]))
        theirs = (ours["q_heads"] * root) @ (ours["k_heads"] * root).swapaxes(-1, -2)
        broken += not within(theirs, ours["scaled"].astype(np.float64), gates(case, ours)["scaled"])
    assert broken == 0


def test_bounds_cost_at_most_three_times_what_they_certify():
    parameters = {"x": {"normal": {"seed": 9}}} | {f"w_{name}": {"normal": {"seed": seed, "std": 0.05}} for seed, name in enumerate("qkvo")}
    sizes = {"Lq": 128, "Lk": 128, "d_k": 64, "d_v": 64, "d_model": 512, "d_out": 512}
    case = resolved({"heads": 8, "sizes": sizes, "parameters": parameters, "mask": {"causal": "top_left"}})
    ours = compute(case)
    given_ = {name: ours[name] for name in case["arrays"]["parameters"]}

    def seconds(run: Callable[[], object]) -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    with threadpool_limits(1):  # threads that wait for each other count as work
        turns = [(seconds(lambda: from_parameters(case, given_)), seconds(lambda: bounds(case, ours, UNIT["float64"]))) for _ in range(8)]
    assert min(second for _, second in turns) <= 3 * min(first for first, _ in turns)


def test_looseness(capsys):
    """Medians of bound over error, for people, of each stage of shipped cases; one that is hundreds of times too wide certifies nothing."""
    themes = ("heads", "masks", "scores", "positions", "gradients")
    suites = [shipped(name) for name in themes]
    for case in (case for suite in suites for case in suite["cases"].values() if case["softmax"] != "hardmax"):
        before = {name: array for name, array in compute(case, ROOT / "config" / "suites").items() if name in case["arrays"]["parameters"]}
        for stage, module in STAGES.items():
            ours, true = module.stage(case, before), stage_truth(case, stage, before)
            middles = {name: middle for name, (middle, _) in true.items()}
            check("shipped", case, ours, stage_bounds(case, stage, before | middles, *roundoffs(case)), true)
            before |= ours
    of_shipped = {stage: found for (kind, dtype, stage), found in LOOSENESS.items() if kind == "shipped" and dtype == "float64"}
    assert set(of_shipped) == set(STAGES) and min(map(len, of_shipped.values())) > 50
    with capsys.disabled():
        print("\nmedian of bound / error")
        for stage, found in of_shipped.items():
            print(f"  {stage:<12} {np.median(found):8.1f}  of {len(found)}")
    assert all(np.median(found) < 200 for found in of_shipped.values())


@pytest.mark.parametrize("kept", ("float16", "bfloat16"))
@pytest.mark.parametrize(
    "options",
    [
        {"parameters": {"bias_table": {"normal": {"seed": 3}}}},
        {"mask": {"add": {"normal": {"seed": 3}}}},
        {"sizes": {"buckets": 8}, "parameters": {"t5_table": {"normal": {"seed": 3}}}},
        {"parameters": {"x": None, "scaled": {"normal": {"seed": 1}}, "v": {"normal": {"seed": 2}}}},
    ],
)
def test_what_is_given_is_rounded_where_scores_are_kept_in_fewer_bits(options: dict, kept: str) -> None:
    """A table, a mask or scores of float32 in a case that keeps scores in half precision: within the bound, and no farther than needed."""
    given = {"x": {"normal": {"seed": 1}}} | options.get("parameters", {})
    sizes = {"Lq": 6, "Lk": 6} | ({"d_v": 4} if "scaled" in given else {"d_model": 4}) | options.get("sizes", {})
    given = {name: array for name, array in given.items() if array}
    case = resolved({"dtype": "float32", "precision": {"scores": kept}} | options | {"sizes": sizes, "parameters": given})
    made = parameters.stage(case, Path())
    ours, exact = from_parameters(case, made), truth(case, made)
    allowed = own_gates(case, ours)
    name = "bias" if "bias" in ours else "scaled"
    for array, found in exact.items():
        assert against_exact(ours[array], found.middle, found.radius, allowed[array])["verdict"] != "fail", array
    moved = ours[name].astype(np.float32) * (1 + 4 * UNIT[kept])
    assert against_exact(moved, exact[name].middle, exact[name].radius, allowed[name])["verdict"] == "fail"
