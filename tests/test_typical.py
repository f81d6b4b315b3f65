"""Typical errors: the standard deviations against errors that were drawn, honest evaluations against them, and mistakes beyond them."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import ROOT
from shipped import all_shipped

from worked_attention.cases.resolve import resolve
from worked_attention.cases.suites import UNLIMITED
from worked_attention.referee.bounds.contracts import CONTRACTS, contract
from worked_attention.referee.bounds.rounding import UNIT
from worked_attention.referee.bounds.whole import centres
from worked_attention.referee.chain import STAGE
from worked_attention.referee.typical.rounding import DEVIATIONS, product, rounding
from worked_attention.referee.typical.weights import KINDS
from worked_attention.referee.typical.whole import deviations
from worked_attention.stages import parameters
from worked_attention.stages.catalogue import CATALOGUE, STAGES
from worked_attention.stages.masks import fill_value
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import from_parameters

FOLDER = ROOT / "config" / "suites"
SUITES = all_shipped()
CASES = [case for suite in SUITES.values() for case in suite["cases"].values() if not case["torch_draws"]]
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def in_float64(case: dict, dtype: np.dtype) -> dict:
    """The case in float64, with the fill of another dtype, and without an end at empty rows."""
    with np.errstate(over="ignore"):
        fill = float(np.asarray(fill_value(case["mask"]["fill"], dtype)).astype(dtype))
    mask = case["mask"] | {"fill": fill, "empty_row": {"error": "nan"}.get(case["mask"]["empty_row"], case["mask"]["empty_row"])}
    return case | {"dtype": "float64", "precision": {"accumulate": "float64", "softmax": "float64", "scores": "float64"}, "mask": mask}


def stored(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return array if array.dtype == bool else array.astype(dtype).astype(np.float32)


def honestly(case: dict, given: dict, dtype: np.dtype, kept: set[str]) -> dict:
    """Every stage in float32, and the arrays `kept` rounded to `dtype` before the next one takes them up."""
    case = case | {"dtype": "float32", "precision": {"accumulate": "float32", "softmax": "float32", "scores": "float32"}}
    a = {name: array if array.dtype == bool else array.astype(np.float32) for name, array in given.items()}
    for stage in STAGES[1:]:
        a |= {name: stored(array, dtype) if name in kept else array for name, array in STAGE[stage](case, a).items()}
    return {name: a[name] for stage in STAGES[1:] for name in case["arrays"][stage] if a[name].dtype != bool}


def far(got: np.ndarray, exact: np.ndarray, sigma: np.ndarray) -> float:
    """The largest error in standard deviations."""
    off = np.abs(got.astype(np.float64) - exact)
    off = np.where((got == exact) | (np.isnan(got) & np.isnan(exact)), 0.0, off)
    return float(np.where(off == 0, 0.0, off / sigma).max(initial=0.0))


@quiet
@pytest.mark.parametrize("dtype", [np.dtype("float16"), bfloat16], ids=str)
@pytest.mark.parametrize("name", CONTRACTS)
def test_honest_evaluations_stay_within_five_deviations(name: str, dtype: np.dtype):
    """Every array of every shipped case; a scale that is 15 % off does not (in the cases whose scores are not tiny)."""
    caught = 0
    for case in CASES:
        if case["name"] in ("overflow", "scores_kept", "scores_wide", "scores_beyond_float32"):  # beyond float16, or sums of float32
            continue
        case = in_float64(case, dtype)
        given = {n: stored(a, dtype).astype(a.dtype if a.dtype == bool else np.float64) for n, a in parameters.stage(case, FOLDER).items()}
        exact = from_parameters(case, given)
        sigma = deviations(case, exact, UNIT["float32"], contract(name, dtype.name))
        made = honestly(case, given, dtype, CONTRACTS[name])
        for array, got in made.items():
            assert far(got, exact[array], sigma[array]) < DEVIATIONS * 5 / 8, (case["name"], array)
        wrong = honestly(case | {"scale_factor": 1.15 * case["scale_factor"]}, given, dtype, CONTRACTS[name])
        caught += any(far(wrong[array], exact[array], sigma[array]) > DEVIATIONS for array in wrong)
    assert caught > len(CASES) / 2


def drawn(case: dict, given: dict, u: float, sigma: dict, draw: np.random.Generator) -> dict:
    """Every stage in float64, each array that is not a copy off by a random part of u before the next stage takes it up."""
    a = dict(given)
    for stage in STAGES[1:]:
        made = STAGE[stage](case, a)
        for name, array in made.items():
            if array.dtype != bool and name in sigma:
                made[name] = np.where(sigma[name] > 0, array * (1 + u * draw.uniform(-1, 1, array.shape)), array)
        a |= made
    return a


WITH = [
    "heads/cross",
    "positions/rotary_after_norm",
    "scores/every_bias",
    "scores/softcap",
    "softmax/sinks",
    "cache/from_x",
    "heads/bias_and_zero_key",
    "gradients/grouped",
    "gradients/softcap",
    "gradients/qk_norm",
    "gradients/dropout",
    "gradients/sinks",
    "gradients/rotary_interleaved",
]


@quiet
@pytest.mark.parametrize("key", WITH)
def test_deviations_against_errors_that_were_drawn(key: str):
    """Another route: 300 draws of the errors, put through the stages. What was drawn has fewer roundings than the formula allows for, and
    they are correlated where the formula takes them as independent; so the two agree within a factor."""
    suite, name = key.split("/")
    case = in_float64(SUITES[suite]["cases"][name], np.dtype("float64"))
    given = parameters.stage(case, FOLDER)
    exact, draw, u = from_parameters(case, given), np.random.Generator(np.random.Philox(1)), 2.0**-20
    sigma = deviations(case, exact, UNIT["float64"], u)
    runs = [drawn(case, given, u, sigma, draw) for _ in range(300)]
    for stage in STAGES[1:]:
        for array in case["arrays"][stage]:
            if exact[array].dtype == bool or array == "d_output":
                continue
            with np.errstate(invalid="ignore"):
                spread = np.sqrt(np.mean([(run[array] - exact[array]) ** 2 for run in runs], axis=0))
            there = np.isfinite(exact[array]) & (spread > 1e-14)
            ratio = spread[there] / sigma[array][there]
            if ratio.size:
                assert ratio.max() < 1.3, (array, ratio.max())
                assert np.median(ratio) > 0.25, (array, np.median(ratio))


def test_rounding_and_product():
    """Closed forms: uniform within h has variance h^2 / 3; (1 + e)(2 + f) + 3 with known e and f."""
    assert rounding(np.array(3.0), 2.0**-8) == pytest.approx((3 * 2.0**-8) ** 2 / 3)
    a, b = np.array([[1.0, 3.0]]), np.array([[2.0], [1.0]])
    found = product(np.array([[0.01, 0.0]]), a, np.array([[0.04], [0.0]]), b, 0.0)
    assert found == pytest.approx(np.array([[0.01 * 4 + 1 * 0.04]]))
    assert product(None, a, None, b, 0.1) == pytest.approx(np.array([[0.01 * 2 / 9 * 25]]))


@quiet
def test_saturated_rows_cannot_be_told():
    """Scores of 200 in bfloat16 are off by 1: no weight of two near ones is known; one that is 200 below is."""
    said = []
    spec = {"sizes": {"Lq": 1, "Lk": 3, "d_k": 1, "d_v": 1}, "scale": "none", "heads": 1}
    spec["parameters"] = {"q_heads": [[[200.0]]], "k_heads": [[[1.0], [0.99], [0.0]]], "v_heads": [[[1.0], [2.0], [3.0]]]}
    case = resolve(spec, "made", "case", Path(), UNLIMITED | {"max_array_mb": 1}, lambda where, message: said.append(message))
    assert not said, said
    exact = centres(case, from_parameters(case, parameters.stage(case, Path())))
    sigma = deviations(case, exact, UNIT["float32"], contract("scores and weights stored in half", "bfloat16"))
    assert (DEVIATIONS * sigma["weights"][0, 0, :2] >= 0.9).all() and sigma["weights"][0, 0, 2] < 1e-6
    assert DEVIATIONS * sigma["contexts"].item() > 0.5


def test_every_kind_of_softmax_has_its_rule():
    schema = yaml.safe_load((ROOT / "workflow/scripts/worked_attention/schemas/suite.schema.yaml").read_text("utf-8"))
    found = []

    def look(node: object) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "softmax" and isinstance(value, dict) and "plus_one" in json.dumps(value.get("enum", [])):
                    found.append(set(value["enum"]))
                look(value)
        elif isinstance(node, list):
            for value in node:
                look(value)

    look(schema)
    assert found and all(kinds == set(KINDS) for kinds in found)


def test_every_computed_array_has_a_deviation():
    """Over all shipped cases each array of the catalogue is reached, and finite somewhere."""
    seen = set()
    for case in CASES:
        case = in_float64(case, np.dtype("float64"))
        with np.errstate(all="ignore"):
            exact = from_parameters(case, parameters.stage(case, FOLDER))
        sigma = deviations(case, exact, UNIT["float32"], 2.0**-11)
        seen |= {name for name, found in sigma.items() if found.any() and np.isfinite(found).any()}
    computed = {name for name, array in CATALOGUE.items() if array.stage != "parameters"}
    assert computed - seen == {"keep", "d_output"}  # these are exact
