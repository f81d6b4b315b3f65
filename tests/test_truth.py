"""Truth against exact fractions and fifty decimals, and its cost."""

import time
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from conftest import ROOT
from strategies import resolved

flint = pytest.importorskip("flint")

from worked_attention.cases.suites import load_suite  # noqa: E402
from worked_attention.referee.truth.whole import stage_truth, truth  # noqa: E402
from worked_attention.stages.whole import compute  # noqa: E402

CASE = load_suite(ROOT / "config" / "suites" / "handworked.yaml", {"max_array_mb": 1})["cases"]["two_heads"]


def fractions(array: np.ndarray) -> np.ndarray:
    return np.frompyfunc(Fraction, 1, 1)(array)


def decimal(fraction: Fraction) -> Decimal:
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def holds(found: tuple[np.ndarray, np.ndarray], exact: np.ndarray) -> None:
    """The exact numbers lie within the balls, and the balls are small."""
    middle, radius = found
    assert middle.shape == exact.shape
    for m, r, e in zip(middle.ravel(), radius.ravel(), exact.ravel(), strict=True):
        assert abs(Fraction(e) - Fraction(m)) <= Fraction(r) <= abs(Fraction(m)) * Fraction(2) ** -51 + Fraction(2) ** -900


def exact_stages() -> dict[str, np.ndarray]:
    """q, qk, weights, contexts and output of the hand-worked case, in fractions as far as they go and then in fifty decimals."""
    a = {name: fractions(value) for name, value in compute(CASE).items() if name in CASE["arrays"]["parameters"]}
    made = {name: a["x"] @ a[f"w_{name}"].T + a[f"b_{name}"] for name in "qkv"}
    heads = {name: np.stack([x[:, :2], x[:, 2:]]) for name, x in made.items()}
    made["qk"] = np.stack([heads["q"][h] @ heads["k"][h].T for h in range(2)])
    with localcontext(prec=60):
        root = Decimal(2).sqrt()
        e = np.frompyfunc(lambda s: (decimal(s) / root).exp(), 1, 1)(made["qk"])
        made["weights"] = e / e.sum(axis=-1, keepdims=True)
        values = np.frompyfunc(decimal, 1, 1)(heads["v"])
        made["contexts"] = np.stack([made["weights"][h] @ values[h] for h in range(2)])
        concat = np.concatenate([made["contexts"][0], made["contexts"][1]], axis=1)
        made["output"] = concat @ np.frompyfunc(decimal, 1, 1)(a["w_o"]).T + np.frompyfunc(decimal, 1, 1)(a["b_o"])
    return made


@pytest.mark.parametrize("name", ["q", "k", "v", "qk", "weights", "contexts", "output"])
def test_the_hand_worked_case_exactly(name):
    holds(truth(CASE, compute(CASE))[name], exact_stages()[name])


def test_one_stage_from_given_arrays():
    ours = compute(CASE)
    found = stage_truth(CASE, "contexts", ours)["contexts"]
    exact = np.stack([fractions(ours["weights"][h]) @ fractions(ours["v_heads"][h]) for h in range(2)])
    holds(found, exact)


def test_a_large_common_offset_keeps_its_digits():
    case = resolved({"parameters": {"q": [[1.0]], "k": [[0.0], [0.0]], "v": [[1e16], [1e16 + 2]]}})
    middle, radius = truth(case, compute(case))["contexts"]
    assert middle[0, 0, 0] == 1e16 or radius[0, 0, 0] >= 1
    assert abs(Fraction(middle[0, 0, 0]) - (10**16 + 1)) <= Fraction(radius[0, 0, 0])


def test_every_stage_at_a_real_size_takes_about_a_second():
    drawn = {name: {"normal": {"seed": i}} for i, name in enumerate(("q_heads", "k_heads", "v_heads"))}
    case = resolved({"heads": 8, "sizes": {"Lq": 128, "Lk": 128, "d_k": 64}, "parameters": drawn})
    arrays, took = compute(case), []
    for _ in range(3):
        start = time.perf_counter()
        truth(case, arrays)
        took.append(time.perf_counter() - start)
    assert min(took) < 3, took
