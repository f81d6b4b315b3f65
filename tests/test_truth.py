"""Truth against exact fractions and fifty decimals, its radii and what it does not certify, its independence, and its cost."""

import json
import math
import random
import subprocess
import sys
import time
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped
from strategies import resolved

flint = pytest.importorskip("flint")

from worked_attention.cases.options import schema  # noqa: E402
from worked_attention.referee.truth import positions, projections, scores, weights, whole  # noqa: E402
from worked_attention.referee.truth.balls import balls, matmul, settle, working_bits  # noqa: E402
from worked_attention.referee.truth.parts import Part  # noqa: E402
from worked_attention.referee.truth.whole import stage_truth, truth  # noqa: E402
from worked_attention.stages.parameters import stage as parameters  # noqa: E402
from worked_attention.stages.whole import compute  # noqa: E402

CASE = shipped("handworked")["cases"]["two_heads"]


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


# Radii


def exactly(ball: flint.arb) -> Fraction:
    """The number that a ball without a radius is."""
    mantissa, exponent = ball.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def test_a_settled_ball_holds_all_that_the_ball_held():
    """Midpoints of any size, down to what no float64 holds, and radii from nothing to much more than the midpoint."""
    draw = random.Random(1)
    with working_bits(128):
        found = []
        for _ in range(3000):
            middle = flint.arb(draw.getrandbits(100) - 2**99) * flint.arb(2) ** draw.randint(-1230, 700)
            found.append(flint.arb(middle, abs(middle) * flint.arb(2) ** draw.choice([-140, -100, -70, -58, -50, -10, 3, -5000])))
        found += [flint.arb(2) ** -1075, flint.arb(3) * flint.arb(2) ** -1075, flint.arb(0), flint.arb(-1000).exp()]
        middle, radius = settle(np.array(found, dtype=object))
        for ball, m, r in zip(found, middle, radius, strict=True):
            low, high = exactly(ball.mid()) - exactly(ball.rad()), exactly(ball.mid()) + exactly(ball.rad())
            assert Fraction(m) - Fraction(r) <= low <= high <= Fraction(m) + Fraction(r)
            size = max(abs(low), abs(high))
            assert Fraction(r) <= (high - low) / 2 * (1 + Fraction(2) ** -20) + size * Fraction(2) ** -51 + Fraction(2) ** -1072


def test_what_float64_cannot_say_is_told_apart():
    """Exactly 0 and infinite: radius 0. Beyond the largest float64: infinite, 0. No number: NaN, 0. Anything: NaN, infinite."""
    with working_bits(128):
        big = flint.arb(10) ** 400
        said = [flint.arb(0), flint.arb("-inf"), big, -big, flint.arb("nan"), flint.arb(1, math.inf), flint.arb(big, big)]
        middle, radius = settle(np.array(said, dtype=object))
    np.testing.assert_array_equal(middle, [0, -np.inf, np.inf, -np.inf, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(radius, [0, 0, 0, 0, 0, np.inf, np.inf])


def of(**raw: object) -> dict:
    """Truth of a case of one head without a scale; q, k and v are given."""
    case = resolved({"scale": "none", **raw})
    return truth(case, parameters(case, ROOT))


def qkv(q: list, k: list) -> dict:
    return {"q": q, "k": k, "v": [[float(2 + 3 * j)] for j in range(len(k))]}


ONE = 2.0**-52
RIGHT = {  # (case, weights of the first row, the largest radius)
    "a difference of 2^-60": ({"softmax": "hardmax", "parameters": qkv([[1, 2.0**-30]], [[1, 0], [1, 2.0**-30]])}, [0, 1], ONE),
    "an exact tie": ({"softmax": "hardmax", "parameters": qkv([[1, 2.0**-30]], [[1, 7], [1, 7]])}, [1, 0], ONE),
    "a tie under an irrational scale": (
        {"softmax": "hardmax", "scale": "1/sqrt(d_k)", "parameters": qkv([[0.1, 0.7]], [[0.1, 0.3], [0.1, 0.3]])},
        [1, 0],
        ONE,
    ),
    "a difference far behind the point": ({"softmax": "hardmax", "parameters": qkv([[1e300, 1]], [[1, 1e-300], [1, 2e-300]])}, [0, 1], ONE),
    "scores of 1e400, beyond float64": ({"parameters": qkv([[1e200]], [[1e200]])}, [np.nan], 0),
    "scores of 1e40": ({"parameters": qkv([[1e40, 1]], [[1, 0.3], [0.7, 0.1]])}, [1, 0], ONE),
    "scores of 1e40 that differ by ln 3": (
        {"parameters": qkv([[1e40, 1]], [[1, 1.0986122886681098], [1, 0]])},
        [0.75, 0.25],
        1e-15,
    ),
    "scores of 1e300": ({"parameters": qkv([[1e150, 1]], [[1e150, 0], [1e150, 1.0986122886681098]])}, [0.25, 0.75], 1e-15),
}


@pytest.mark.parametrize("name", RIGHT)
def test_weights_that_128_bits_do_not_tell(name: str):
    raw, right, largest = RIGHT[name]
    middle, radius = of(**raw)["weights"]
    np.testing.assert_allclose(middle[0, 0], right, rtol=0, atol=4e-16)
    assert (radius <= largest).all()


def test_e_to_minus_1000_is_not_zero():
    """5.08e-435 lies within the radius of what is told, and the radius is the smallest number that float64 has, or twice that."""
    middle, radius = of(parameters=qkv([[1]], [[0], [-1000]]))["weights"]
    assert middle[0, 0, 1] == 0 and 2.0**-1074 <= radius[0, 0, 1] <= 2.0**-1073


def test_a_blocked_key_has_exactly_no_weight():
    middle, radius = of(mask={"block": [[0, 1]]}, parameters=qkv([[1]], [[0], [-1]]))["weights"]
    assert middle[0, 0, 1] == 0 and radius[0, 0, 1] == 0


TIE = {  # a query halfway between two keys: both angles are one radian, and no number of bits tells cos(1) from cos(-1)
    "softmax": "hardmax",
    "rotary": {"pairing": "half"},
    "positions": {"queries": [1], "keys": [0, 2]},
    "parameters": qkv([[1, 0]], [[1, 0], [1, 0]]),
}


def test_a_tie_that_no_bits_decide_is_not_certified():
    found = of(**TIE)
    for name in ("weights", "contexts", "output"):
        assert np.isnan(found[name].middle).all() and np.isinf(found[name].radius).all(), name
    assert np.isfinite(found["masked"].middle).all() and (found["masked"].radius < 1e-15).all()
    assert (of(**{**TIE, "softmax": "plain"})["weights"].radius < 1e-15).all()


def test_what_128_bits_do_not_turn_takes_more():
    """Angles of 1e19 and 1e154, and norms of numbers that cancel: each stage sees to its own numbers, also where no softmax follows."""
    for base in (1e-30, 1e-300):
        raw = {"rotary": {"pairing": "half", "base": base}, "positions": {"queries": [9999], "keys": [1]}}
        case = resolved({**raw, "parameters": qkv([[1, 0, 1, 1]], [[1, 0, 2, 2]])})
        found = stage_truth(case, "projections", parameters(case, ROOT))
        assert (found["q_rot"].radius < 1e-15).all(), base
        turned = found["q_rot"].middle[0, 0]
        np.testing.assert_allclose(turned[0] ** 2 + turned[2] ** 2, 2, rtol=1e-15)
    x = {"x": [[1e20, -1e20, 3e-30, 4e-30]], "w_q": [[1, 1, 1, 0], [1, 1, 0, 1]], "w_k": [[1, 0, 0, 0], [0, 1, 0, 0]]}
    case = resolved({"qk_norm": {"kind": "l2", "eps": 0}, "parameters": {**x, "w_v": x["w_k"]}})
    found = stage_truth(case, "projections", parameters(case, ROOT))
    np.testing.assert_allclose(found["q_norm"].middle[0, 0], [0.6, 0.8], rtol=1e-15)
    assert (found["q_norm"].radius < 1e-15).all()


def test_beside_what_is_not_certified_nan_is_not_certified_either():
    raw = {**TIE, "positions": {"queries": [1, 1], "keys": [0, 2]}, "mask": {"block": [[0, 0], [1, 1]], "empty_row": "nan"}}
    raw["parameters"] = qkv([[1, 0], [1, 0]], [[1, 0], [1, 0]])
    assert np.isinf(of(**raw)["weights"].radius).all()
    middle, radius = of(**{**raw, "softmax": "plain"})["weights"]
    assert np.isnan(middle[0, 1]).all() and (radius < 1e-15).all()


@pytest.mark.parametrize(("scores_kept", "row"), [("float16", [np.nan, np.nan]), ("float32", [1, 0])])
def test_a_score_beyond_what_scores_are_kept_in_is_infinite(scores_kept: str, row: list):
    """300 * 300 is beyond float16, whose largest number is 65504; the second query has 65504 itself. What takes the place of a blocked
    score is the most negative number of the same dtype."""
    keys, mask = [[300.0], [1.0], [1.0]], {"block": [[0, 0, 1], [1, 0, 1]], "fill": "finfo_min"}
    raw = {"dtype": "float16", "precision": {"scores": scores_kept}, "mask": mask, "parameters": qkv([[300.0], [65504.0]], keys)}
    found = of(**raw)
    lowest = -float(np.finfo(scores_kept).max)
    first = np.inf if scores_kept == "float16" else 90000.0
    np.testing.assert_array_equal(found["masked"].middle[0], [[first, 300.0, lowest], [lowest, 65504.0, lowest]])
    np.testing.assert_array_equal(found["weights"].middle[0, 0, :2], row)
    np.testing.assert_array_equal(found["weights"].middle[0, 1], [0, 1, 0])
    assert all(np.isfinite(settled.radius).all() for settled in found.values())


@pytest.mark.parametrize("softmax", ["plain", "hardmax"])
@pytest.mark.parametrize(("policy", "row"), [("zero", [0, 0]), ("nan", [np.nan, np.nan]), ("uniform", [0.5, 0.5])])
def test_an_empty_row_follows_the_case(softmax: str, policy: str, row: list):
    found = of(softmax=softmax, mask={"block": [[1, 1], [0, 1]], "empty_row": policy}, parameters=qkv([[1], [1]], [[1], [2]]))
    np.testing.assert_array_equal(found["weights"].middle, [[row, [1, 0]]])
    assert (found["weights"].radius <= ONE).all()


@pytest.mark.parametrize("softmax", ["plain", "hardmax"])
def test_an_empty_row_that_is_an_error(softmax: str):
    with pytest.raises(ValueError, match="empty_row: error"):
        of(softmax=softmax, mask={"block": [[1, 1]], "empty_row": "error"}, parameters=qkv([[1]], [[1], [2]]))


# Its own


def test_kinds_without_a_table_elsewhere_are_closed_too():
    """The other tables are in test_kinds. A kind that a table does not have is refused."""
    case = schema("suite")["$defs"]["case"]["properties"]
    assert set(projections.EXTRA) == set(case["extra_key"]["enum"])
    named = case["scale"]["pattern"].removeprefix("^(").removesuffix(")$").replace("\\", "")
    assert set(scores.SCALE) == set(named.split("|"))
    unknown = resolved({"parameters": qkv([[1]], [[1]])}) | {"softmax": "sigmoid"}
    with pytest.raises(KeyError):
        truth(unknown, parameters(unknown, ROOT))


def test_an_array_without_a_formula_ends_the_run():
    case = resolved({"parameters": qkv([[1]], [[1]])})
    case["arrays"] = {**case["arrays"], "weights": ["weights", "lse"]}
    with pytest.raises(NotImplementedError, match="lse"):
        truth(case, parameters(case, ROOT))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_rounding_is_that_of_the_format(name: str):
    """Of any number, a tie, and what is next to a tie; below the normal numbers and beyond the largest one as well.

    NumPy rounds float64 to bfloat16 by way of float32, so that bfloat16 is asked about numbers of float32.
    """
    draw = np.random.default_rng(2)
    x = draw.standard_normal(2000) * 2.0 ** draw.integers(-160, 130, 2000)
    wide = np.float32 if name == "bfloat16" else np.float64
    with np.errstate(over="ignore"):
        near = x.astype(wide).astype(name)
        ties = ((near.astype(np.float64) + np.nextafter(near, near.dtype.type(np.inf)).astype(np.float64)) / 2).astype(wide)
        for y in np.concatenate([x.astype(wide), ties, np.nextafter(ties, wide(0)), np.nextafter(ties, wide(np.inf))]):
            if np.isfinite(y):
                assert float(positions.rounded(flint.arb(float(y)), name)) == float(y.astype(name)), y


def test_a_ball_across_a_tie_is_not_rounded():
    """1 + 2^-11 is halfway between two numbers of float16: a ball around it, however small, could become either."""
    with working_bits(128):
        assert not positions.rounded(flint.arb(1 + 2.0**-11, 2.0**-60), "float16").is_finite()
        assert float(positions.rounded(flint.arb(1 + 2.0**-11 + 2.0**-50, 2.0**-60), "float16")) == 1 + 2.0**-10


# Gradients against differences


def moved_loss(case: dict, given: dict) -> flint.arb:
    """Sum of upstream times output, from balls: the stages of truth without a way back."""
    loss = flint.arb(0)
    for b in range(case["dims"].get("B", 1)):
        part = Part(case, given).cut(b=b)
        part.add(projections.inputs(case, part.cut()))
        for name in "qkv":
            part.add(projections.projected(case, part.cut(), name))
        for h in range(case["heads"]):
            head = part.cut(h=h)
            head.add(scores.scores(case, head))
            head.add(weights.weights(case, head))
            context = matmul(head.first("dropped", "weights"), projections.entering(head, "v"))
            d_v = context.shape[1]
            through = matmul(context, part["w_o"][:, h * d_v : (h + 1) * d_v].T) if "w_o" in part else context
            upstream = part["upstream"] if "upstream" in part else balls(np.ones((len(context), case["dims"]["d_out"])))
            upstream = upstream if "w_o" in part else upstream[:, h * d_v : (h + 1) * d_v]
            loss += (through * upstream).sum() + ((part["b_o"] * upstream).sum() if "b_o" in part and h == 0 else 0)
    return loss


GRADIENTS = shipped("gradients")["cases"]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_what_the_loss_gains(name: str):
    """(loss(a + h) - loss(a - h)) / 2h with h = 2^-80 and 512 bits, for two numbers of every input, weight and bias."""
    case, draw = GRADIENTS[name], random.Random(name)
    given = parameters(case, ROOT)
    found = truth(case, given)
    with working_bits(512):
        exact = {key: value if value.dtype == bool else balls(value) for key, value in given.items()}
        h = flint.arb(2) ** -80
        for key in [key for key in given if f"d_{key}" in found]:
            for _ in range(2):
                at = tuple(draw.randrange(n) for n in given[key].shape)
                losses = []
                for step in (h, -h):
                    near = {**exact, key: exact[key].copy()}
                    near[key][at] += step
                    losses.append(moved_loss(case, near))
                slope = float((losses[0] - losses[1]) / (2 * h))
                middle, radius = found[f"d_{key}"]
                assert abs(middle[at] - slope) <= radius[at] + 1e-15 * abs(slope) + 1e-20, (key, at)


# In slices


@pytest.mark.parametrize("suite", ["gradients", "heads", "masks", "scores", "cache", "softmax"])
def test_slices_make_no_difference(suite: str, monkeypatch: pytest.MonkeyPatch):
    """One query at a time, and the heads of two side by side, give the numbers of all at once."""
    for case in shipped(suite)["cases"].values():
        given = parameters(case, ROOT / "config" / "suites")
        monkeypatch.undo()
        whole_case = truth(case, given)
        monkeypatch.setattr(whole, "TOKENS", 2)
        monkeypatch.setattr(whole, "CELLS", 1)
        for name, (middle, radius) in truth(case, given).items():
            other, also = whole_case[name]
            np.testing.assert_array_equal(np.isnan(middle), np.isnan(other))
            with np.errstate(invalid="ignore"):
                apart = (middle != other) & ~(np.abs(middle.astype(float) - other) <= radius + also) & ~np.isnan(middle)
            assert not apart.any(), (case["name"], name)


@pytest.mark.parametrize("suite", ["gradients", "masks", "softmax"])
def test_arrays_in_files_are_the_same(suite: str, tmp_path: Path):
    for case in shipped(suite)["cases"].values():
        given, scratch = parameters(case, ROOT / "config" / "suites"), tmp_path / case["name"]
        scratch.mkdir()
        in_memory, in_files = truth(case, given), truth(case, given, scratch)
        assert {file.name for file in scratch.iterdir()} >= {"weights"}, case["name"]
        assert list(in_memory) == list(in_files)
        for name, (middle, radius) in in_memory.items():
            found = in_files[name]
            np.testing.assert_array_equal(found[...].middle, middle, name)
            np.testing.assert_array_equal(found[...].radius, radius, name)
            np.testing.assert_array_equal(np.concatenate(list(found.pieces(5))), np.stack([middle, radius], -1).reshape(-1, 2), name)


# Cost


def test_every_stage_at_a_real_size_takes_about_a_second():
    drawn = {name: {"normal": {"seed": i}} for i, name in enumerate(("q_heads", "k_heads", "v_heads"))}
    case = resolved({"heads": 8, "sizes": {"Lq": 128, "Lk": 128, "d_k": 64}, "parameters": drawn})
    arrays, took = compute(case), []
    for _ in range(3):
        start = time.process_time()
        truth(case, arrays)
        took.append(time.process_time() - start)
    assert min(took) < 3, took


MEASURED = """
import json, runpy, sys
from pathlib import Path
what, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
def mebibytes():
    with open("/proc/self/status") as status:  # ru_maxrss may be that of the process that started this one
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024
if what.endswith("truth.py"):
    class Inputs(dict):
        __getattr__ = dict.get
    stages = ("parameters", "projections", "scores", "weights", "contexts", "outputs")
    class Rule:
        input, output, log = Inputs({stage: str(folder / stage) for stage in stages}), [str(folder / "truth")], [str(folder / "log")]
    runpy.run_path(what, init_globals={"snakemake": Rule})
    print(mebibytes() * 1024**2 / 1e6)
    sys.exit()
from strategies import resolved
from worked_attention.cases.costs import truth_megabytes
from worked_attention.files.artifacts import write_stage
from worked_attention.files.formats import write_json
from worked_attention.referee.truth.whole import truth
from worked_attention.stages import parameters
from worked_attention.stages.whole import compute
drawn = {name: {"normal": {"seed": i}} for i, name in enumerate(("q_heads", "k_heads", "v_heads"))}
case = resolved({"heads": 8, "sizes": {"Lq": 256, "Lk": 256, "d_k": 16}, "parameters": drawn, **options})
if what == "truth":
    given = parameters.stage(case, Path())
    before = mebibytes()
    truth(case, given)
    print(mebibytes() - before)
else:
    made = compute(case)
    for stage, names in case["arrays"].items():
        write_stage(folder / stage / "case", stage, case, {name: made[name] for name in names})
    write_json(folder / "parameters" / "case" / "case.json", case)
    write_json(folder / "parameters" / "suite.json", {"cases": ["case"]})
    print(truth_megabytes(case))
"""


def measured(what: str, folder: Path, **options: object) -> list[float]:
    """What a fresh process prints that does one part of MEASURED."""
    paths = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests")]
    program = f"import sys; sys.path[:0] = {paths!r}\n{MEASURED}"
    command = [sys.executable, "-c", program, what, str(folder), json.dumps(options)]
    return [float(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


CAUSAL = {"mask": {"causal": "top_left"}}


linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the most that a process took is read from /proc")


@linux
@pytest.mark.parametrize(("options", "told"), [({}, 24), ({"dtype": "float32", **CAUSAL}, 33)], ids=["plain", "causal"])
def test_truth_needs_little_more_than_its_midpoints(options: dict, told: int, tmp_path: Path):
    """Half a million scores: 8 bytes each for what is told of qk, scaled, weights and, where there is a mask, masked (1 for keep), and
    32 MB to compute with. At 1,024 tokens and 8 heads this makes 310 MB, and 60 for Python."""
    [mebibytes] = measured("truth", tmp_path, **options)
    assert mebibytes < told * 8 * 256 * 256 / 1024**2 + 32, mebibytes


@linux
def test_the_need_of_the_rule_is_told_beforehand(tmp_path: Path):
    """Peak memory of rule truth in a process of its own: no more than told, and more than half of it."""
    [told] = measured("stages", tmp_path, **CAUSAL)
    [peak] = measured(str(ROOT / "workflow" / "scripts" / "truth.py"), tmp_path, **CAUSAL)
    assert told / 2 < peak < told, (peak, told)


def test_queries_that_are_certified_are_computed_but_once(monkeypatch: pytest.MonkeyPatch):
    """Two queries, of which the second has a tie that takes all bits: the first is not computed again, and both are told as before."""
    keys, queries = [[1, 0], [0, 1]], [[1, 0], [1, 1]]
    raw = {"softmax": "hardmax", "scale": "none", "rotary": {"pairing": "half"}, "positions": {"queries": [0, 1], "keys": [1, 1]}}
    case = resolved({**raw, "parameters": qkv(queries, keys)})
    given, rows = parameters(case, ROOT), []
    together = truth(case, given)
    monkeypatch.setattr(whole, "TOKENS", 1)
    attended = whole._attended
    monkeypatch.setattr(whole, "_attended", lambda *given: rows.append(given[-1]) or attended(*given))
    apart = truth(case, given)
    unsure = [i for i in range(2) if np.isinf(apart["weights"].radius[0, i]).any()]
    assert unsure == [1] and rows == [[slice(0, 1), slice(1, 2)]] + [[slice(1, 2)]] * 5
    for name, (middle, radius) in together.items():
        if name in ("weights", "contexts", "concat", "output"):
            row = (slice(None),) * (middle.ndim - 2) + (1,)
            assert np.isnan(apart[name].middle[row]).all() and np.isinf(radius[row]).all(), name
        else:
            assert (np.abs(middle - apart[name].middle) <= radius + apart[name].radius).all(), name
