"""Evidence that could have failed: what `weigh` says, and what comparisons, tables and the benchmark make of it."""

import sys

import numpy as np
import pytest
from conftest import ROOT
from shipped import all_shipped
from strategies import resolved

from worked_attention.cases.columns import libraries
from worked_attention.conformance.matrix import LOOKS, picture, verdicts
from worked_attention.files.summary import summarise, table
from worked_attention.referee.compare import VERDICTS, Gate, compare_arrays, compare_case, gates_of, own_gates, verdict_on
from worked_attention.referee.evidence import PART, SPOILED, _first, coarsest, largest_of, source_of, tells, weigh
from worked_attention.referee.exactness import against_exact
from worked_attention.referee.outcome import says
from worked_attention.referee.report import case_verdict
from worked_attention.referee.submissions import Sent
from worked_attention.stages import parameters
from worked_attention.stages.dtypes import overflow, usual_precision
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute

sys.path.insert(0, str(ROOT / "benchmarks"))
import evidence  # noqa: E402

RIGHT = np.array([[1.0, -2.0, 0.5], [0.25, 1.5, -0.75], [0.0, 0.5, 2.0]])
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def found(got: np.ndarray, bound: float, sigma: float, dtype: str = "bfloat16", right: np.ndarray = RIGHT, source: float = 0.0):
    """What `weigh` says with one bound and one standard deviation for all elements."""
    return weigh(got, right, np.full(right.shape, bound), lambda: np.full(right.shape, sigma), dtype, source)


def off_by(size: float) -> np.ndarray:
    got = RIGHT.copy()
    got[1, 2] += size
    return got


@pytest.mark.parametrize(
    ("size", "bound", "sigma", "word", "evidence"),
    [
        (0.01, 0.02, np.inf, "right", "certified"),
        (0.03, 0.02, np.inf, "wrong", "certified"),
        (0.01, 9.0, 0.005, "right", "typical"),  # 8 deviations are 0.04
        (0.06, 9.0, 0.005, "wrong", "typical"),
        (0.06, 0.055, 0.02, "wrong", "certified"),  # a bound of more than a fortieth of 2 still refuses
        (0.04, 9.0, 0.1, "right", "typical"),  # 8 deviations are 0.8; a fortieth of 2 is 0.05
        (0.06, 9.0, 0.1, "undecided", "typical"),
        (0.9, 9.0, 0.1, "wrong", "typical"),
        (100.0, np.inf, np.inf, "undecided", "typical"),
        (np.nan, np.inf, np.inf, "undecided", "typical"),
        (np.nan, 1.0, 0.1, "wrong", "certified"),
        (0.0, np.inf, np.inf, "right", "typical"),
    ],
)
def test_weigh(size: float, bound: float, sigma: float, word: str, evidence: str):
    assert PART * 2 == 0.05
    finding = found(off_by(size), bound, sigma)
    assert (finding.word, finding.evidence) == (word, evidence), finding
    if word == "wrong":
        assert finding.index == (1, 2)


@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("bound", [np.inf, 10.0, 0.5])
def test_no_spoiled_answer_is_right(name: str, bound: float):
    spoiled = SPOILED[name](RIGHT, RIGHT)
    assert found(spoiled, bound, np.inf).word in ("undecided", "wrong")
    narrow = 10 + RIGHT / 20  # within 1 % of each other: a fortieth would pass each constant and any order of the rows
    assert found(SPOILED[name](narrow, narrow), 0.5, 0.05, right=narrow).word in ("undecided", "wrong")
    assert found(narrow + 0.005, 0.5, 0.05, right=narrow).word == "right"


def test_an_answer_that_is_itself_zero_or_constant_can_be_right():
    for right in (np.zeros((2, 2)), np.full((2, 2), 3.0), np.array([[1.0, 2.0]] * 2)):
        assert tells(right, right, np.zeros(right.shape), 0.0)
        assert found(right, 1e-9, 1e-9, right=right).word == "right"
    assert not tells(np.zeros((2, 2)), np.full((2, 2), 3.0), np.full((2, 2), 3.0), 0.0)


def test_what_has_cancelled_is_measured_by_what_it_is_made_from():
    """Noise of 1e-17 where all terms of about 1 cancel: an error of 1e-16 is right; beside terms of 1e-17 it is not."""
    noise = np.array([[1e-17, -2e-17], [0.0, 3e-17]])
    zeros = np.zeros((2, 2))
    assert found(zeros, 1e-15, 1e-16, "float64", noise, source=1.0).word == "right"
    assert found(zeros, 1e-15, 1e-16, "float64", noise, source=1e-17).word == "undecided"
    assert found(zeros + 0.1, 1e-15, 1e-16, "float64", noise, source=1.0).word == "wrong"


def test_fills_are_no_measure():
    """A fill of -1e9 would let each other score be anything; the fill itself is measured by itself."""
    right = np.array([[1.0, -1e9], [0.5, 2.0]])
    assert largest_of(right) == 2.0
    assert found(right + [[0.5, 0.0], [0.0, 0.0]], 1.0, 1.0, "float32", right).word == "undecided"
    assert found(right + [[0.0, 32.0], [0.0, 0.0]], 1e-6, 1e-7, "float32", right).word == "wrong"
    assert found(right + [[0.0, 3e7], [0.0, 0.0]], 1e9, 1e9, "float32", right).word == "undecided"
    assert found(right + [[0.0, 0.0], [0.0, 1e-7]], 1e-6, 1e-7, "float32", right).word == "right"


def test_names():
    assert coarsest(2.0**-24, 2.0**-53) == "float32" and coarsest(2.0**-24, 2.0**-8) == "bfloat16"
    assert source_of("scaled", {"qk": np.array([3.0, -4.0])}) == 4.0 and source_of("scaled", {}) == 0.0
    assert source_of("d_b_k", {"d_k": np.array([2.0]), "b_k": np.array([9.0])}) == 2.0
    with pytest.raises(StopIteration):
        coarsest(0.1)


# Comparisons


def test_a_gate_that_says_nothing_is_no_pass():
    """A sum of ones that sticks at 256 where 300 is right, with the infinite gate of such sums."""
    stuck, exact = np.full(1, 256.0), np.full(1, 300.0)
    result = compare_arrays(exact, stuck, Gate(np.inf, grain="bfloat16"))
    assert result["verdict"] == "undecided" and result["gate"] == "Infinity" and "may differ by inf" in result["reason"]
    assert compare_arrays(exact, np.full(1, 299.0), Gate(np.inf, grain="bfloat16"))["verdict"] == "pass"
    assert compare_arrays(exact, stuck, Gate(np.inf, lambda: np.ones(1), "bfloat16"))["verdict"] == "fail"
    whole = verdict_on({"d_w_o": compare_arrays(exact, exact, Gate(1.0)), "d_b_o": result})
    assert whole["verdict"] == "undecided" and whole["reason"].startswith("d_b_o may") and whole["first_divergence"] is None
    assert verdict_on({"d_b_o": result, "d_x": compare_arrays(exact, 2 * exact, Gate(1.0))})["verdict"] == "fail"
    assert set(VERDICTS.values()) == {"pass", "fail", "undecided"}


@quiet
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_comparisons_in_half_precision(dtype: str):
    """Ours against ours in other storage passes; a scale 15 % off fails, by typical errors; nothing spoiled passes."""
    case = evidence.of_length(64, "causal") | {
        "dtype": dtype,
        "precision": usual_precision(dtype),
        "overflow": overflow(usual_precision(dtype)),
    }
    kind = np.dtype(dtype) if dtype == "float16" else bfloat16
    ours = compute(case)
    given = {name: ours[name] for name in case["arrays"]["parameters"]}
    gates = gates_of(case, ours, {"rule": "certified"})
    theirs = evidence.sent_as(kind, evidence.in_stages(case, given, kind, evidence.CONTRACTS["weights stored in half"]))
    assert compare_case(ours, theirs, gates)["verdict"] == "pass"
    assert compare_case(ours, {"output": theirs["output"]}, gates)["verdict"] == "pass"
    other = compute(case | {"scale_factor": 1.5 * case["scale_factor"]})
    assert compare_case(ours, other, gates)["first_divergence"] == {"stage": "scores", "array": "scaled"}
    for spoil in evidence.SPOILS.values():
        spoiled = spoil(ours["output"].astype(np.float64)).astype(kind)
        assert compare_case(ours, {"output": spoiled}, gates)["verdict"] == "fail"
    exact = evidence.exactly(case, given, kind)[2]
    own = own_gates(case, ours)
    assert {compare_arrays(exact[name], ours[name], own[name])["verdict"] for name in own} == {"pass"}


def test_undecided_in_the_tables():
    result = verdict_on({"d_b_o": compare_arrays(np.full(1, 300.0), np.full(1, 256.0), Gate(np.inf, grain="bfloat16"))})
    comparison = {"suite": "s", "case": "c", "references": {"torch.manual": result}, "claims": [], "first_divergence": None}
    summary = summarise([("s", [comparison])])
    assert summary["failures"] == [] and summary["suites"]["s"]["references"]["torch.manual"] == {"undecided": 1}
    row = next(line for line in table(summary, "page").splitlines() if line.startswith("torch.manual"))
    assert row.split()[1:] == ["0", "0", "1", "0", "0"]  # passed, failed, undecided
    assert result["reason"].startswith("d_b_o may differ")
    assert "-: compared" not in table(summary, "page")
    wrong = {"agrees": False, "array": "weights", "index": [0], "printed": "0.9", "right": 0.2, "rounded": "0.2"}
    alone = summarise([("a", [{**comparison, "references": {}, "claims": [wrong]}])])
    assert "\n-: compared with nobody" in table(alone, "page") and "\n1 printed number is wrong (errata):\n" in table(alone, "page")
    assert "undecided" in LOOKS
    cell = {
        "torch.manual": {"bfloat16": {"verdict": "undecided", "contract": "none"}},
        "torch.mha": {"bfloat16": {"verdict": "unsupported"}},
    }
    assert "torch.manual in bfloat16: undecided" in picture(verdicts({"s": {"c": cell}}, {}, libraries()))


def test_what_is_not_certified_accuses_nobody_and_acquits_nobody():
    ours, exact, unknown = np.array([1.0, 2.0]), np.array([1.0, 7.0]), np.array([0.0, np.inf])
    found = against_exact(ours, exact, unknown, Gate(1e-12))
    assert (found["verdict"], found["reason"], found["max_abs"]) == ("undecided", "is not certified", 0.0)
    assert against_exact(ours + [1e-3, 0], exact, unknown, Gate(1e-12))["verdict"] == "fail"
    assert against_exact(ours, ours, np.zeros(2), Gate(1e-12))["verdict"] == "pass"


def test_the_element_that_decides():
    """The largest key, of equal ones that with the largest second, and the first of these; by the book, one after the other."""
    draw = np.random.Generator(np.random.Philox(2))
    for _ in range(50):
        key, second = draw.integers(0, 3, (2, 3, 4)).astype(np.float64)
        key[0, 0], second[1, 1] = (np.nan, np.inf) if draw.integers(2) else (np.inf, np.nan)
        ranks = [(-np.nan_to_num(k, nan=-np.inf), -np.nan_to_num(s, nan=-np.inf)) for k, s in zip(key.ravel(), second.ravel(), strict=True)]
        expected = np.unravel_index(min(range(12), key=lambda i, ranks=ranks: (ranks[i], i)), key.shape)
        assert _first(key, second) == tuple(expected)
    assert _first(np.zeros((0, 3)), np.zeros((0, 3))) == ()


# Rows of weights


def weights_of(scores: np.ndarray, dtype: np.dtype, more: float | np.ndarray = 0.0, halves: bool = False) -> np.ndarray:
    """A softmax whose denominator has `more` in it, stored in half; summed one after the other in half precision, too, if asked."""
    e = np.exp(scores - scores.max(axis=-1, keepdims=True)).astype(dtype if halves else np.float32).astype(np.float32)
    total = np.broadcast_to(more, (*e.shape[:-1], 1)).astype(np.float32)
    for j in range(e.shape[-1]):
        total = total + e[..., j : j + 1]
        total = total.astype(dtype).astype(np.float32) if halves else total
    return (e / total).astype(dtype)


@quiet
@pytest.mark.parametrize("dtype", evidence.HALF, ids=str)
def test_rows_of_weights_sum_to_one_or_nothing_is_right(dtype: np.dtype):
    """Scores that are rounded to bfloat16 hide one more in the denominator, element by element; the sums of rows do not. Where a sink has
    a part they are no evidence, and equal weights, all rounded the same way, are no fault."""
    case = next(case for case in all_shipped()["articles"]["cases"].values() if case["name"] == "scaled_256")
    given = parameters.stage(case, evidence.FOLDER)
    right = evidence.exactly(case, given, dtype)[2]
    before = evidence.sent_as(dtype, {name: right[name] for stage in ("projections", "scores") for name in case["arrays"][stage]})
    one = np.exp(-right["masked"].max(axis=-1, keepdims=True))
    for halves in (False, True):
        words = []
        for more in (0.0, one):
            sent = before | {"weights": weights_of(before["masked"].astype(np.float32), dtype, more, halves)}
            words.append(evidence.judge_case(case, given, sent)["verdict"])
        assert words == ["right", "wrong" if dtype == np.dtype("float16") else "undecided"], (halves, words)
    for keys in (2, 3, 22, 63, 129, 255):
        raw = {
            "sizes": {"Lq": 1, "Lk": keys, "d_k": 1},
            "parameters": {"q": [[0.0]], "k": {"normal": {"seed": 1}}, "v": {"normal": {"seed": 2}}},
        }
        for more in (0.0, 1.0):
            case = resolved(raw | ({"softmax": "plus_one"} if more else {}))
            sent = {"weights": weights_of(np.zeros((1, 1, keys)), dtype, more)}
            assert evidence.judge_case(case, parameters.stage(case, evidence.FOLDER), sent)["verdict"] == "right", (keys, more)


@quiet
def test_an_undecided_gradient_is_told_as_wrong_in_all_stricter_arithmetics():
    """5 % off, which sums in bfloat16 could make, and sums in float32 could not; on the terminal, too."""
    case = next(case for case in all_shipped()["gradients"]["cases"].values() if case["name"] == "ones")
    given = parameters.stage(case, evidence.FOLDER)
    wide, rounded, _ = evidence.exactly(case, given, bfloat16)
    sent = evidence.sent_as(bfloat16, evidence.in_stages(wide, rounded, bfloat16, evidence.CONTRACTS["float32 accumulation"]))
    sent["d_x"] = (1.05 * sent["d_x"].astype(np.float64)).astype(bfloat16)
    verdict = case_verdict(case, given, Sent(sent), {}, None)
    assert verdict["verdict"] == "undecided" and verdict["worst"]["array"] == "d_x" and verdict["worst"]["unless"] == "bfloat16"
    assert says(verdict, 3).endswith("; wrong in all that is stricter than bfloat16")
    sent["d_x"] = (2 * sent["d_x"].astype(np.float64)).astype(bfloat16)
    wrong = case_verdict(case, given, Sent(sent), {}, None)
    assert wrong["verdict"] == "wrong" and "unless" not in wrong["worst"] and "stricter" not in says(wrong, 3)


# The benchmark, in small


def test_a_weight_too_small_for_float16_still_has_its_gradient():
    """e^-18 is 0 once it is shown in float16, and was not when d_masked, e^-18 * 1000, was made from it."""
    raw = {"scale": "none", "backward": "ones", "parameters": {"q": [[1.0], [0.125]], "k": [[0.0], [18.0]], "v": [[-1000.0], [0.0]]}}
    case = resolved(raw)
    given, half = parameters.stage(case, evidence.FOLDER), np.dtype("float16")
    wide, rounded, _ = evidence.exactly(case, given, half)
    sent = evidence.sent_as(half, evidence.in_stages(wide, rounded, half, evidence.CONTRACTS["float32 accumulation"]))
    assert sent["weights"][0, 0, 0] == 0 and sent["d_masked"][0, 0, 0] == pytest.approx(-1000 * np.exp(-18), rel=0.01)
    assert evidence.judge_case(case, given, sent)["verdict"] == "right"
    sent["d_masked"][0, 0, 0] *= 5
    assert evidence.judge_case(case, given, sent)["worst"]["array"] == "d_masked"


@quiet
@pytest.mark.parametrize("options", ["gradients", "grouped"])
def test_the_benchmark_judges_as_the_judge_does(options: str):
    """What it computes once for many outputs gives the verdicts of `judge_case` on each; right, undecided and wrong ones."""
    case = evidence.of_length(8, options)
    given = parameters.stage(case, evidence.FOLDER)
    wide, rounded, exact = evidence.exactly(case, given, bfloat16)
    right = evidence.sent_as(bfloat16, evidence.in_stages(wide, rounded, bfloat16, evidence.CONTRACTS["weights stored in half"]))
    others = {name: array for name, array in right.items() if name != "output"}
    alone, beside = evidence.Judge(case, given, {}), evidence.Judge(case, given, others)
    words = set()
    for factor in (1.0, 1.001, 1.04, 1.06, 1.5, -1.0):
        output = (factor * right["output"].astype(np.float64)).astype(bfloat16)
        for judge, sent in ((alone, {"output": output}), (beside, right | {"output": output})):
            words.add(judge.verdict(output))
            assert judge.verdict(output) == evidence.judge_case(case, given, sent)["verdict"], factor
    assert words == {"right", "undecided", "wrong"}
    wrong = others | {"weights": np.ones_like(others["weights"])}
    assert evidence.Judge(case, given, wrong).verdict(right["output"]) == "wrong"
    assert evidence.Judge(case, given, wrong).verdict(None) == "wrong" and evidence.Judge(case, given, others).verdict(None) == "right"


@quiet
@pytest.mark.parametrize("dtype", evidence.HALF, ids=str)
def test_goals_in_small(dtype: np.dtype, capsys):
    """Every 40th shipped case and a made one: no spoiled output right, no honest evaluation wrong, of mistakes none right."""
    good, spoiled, mistaken = evidence.Counter(), evidence.Counter(), evidence.Counter()
    shipped = [case for suite in all_shipped().values() for case in suite["cases"].values() if not case["torch_draws"]]
    for case in [*shipped[::40], evidence.of_length(8, "rotary")]:
        given = parameters.stage(case, evidence.FOLDER)
        evidence.count_honest(case, given, dtype, good)
        evidence.count_spoiled(case, given, dtype, spoiled)
    case = evidence.of_length(8, "causal")
    evidence.count_mistakes(case, parameters.stage(case, evidence.FOLDER), dtype, mistaken)
    words = [sum(count for (_, word), count in good.items() if word == wanted) for wanted in ("right", "undecided", "wrong")]
    assert words[2] == 0 and words[0] > 100 and words[1] <= 0.05 * sum(words), good
    assert not any(word == "right" for _, word in spoiled) and sum(spoiled.values()) > 50, spoiled
    assert not any(word == "right" for _, word in mistaken) and sum(mistaken.values()) > 50, mistaken
    assert capsys.readouterr().out == ""
