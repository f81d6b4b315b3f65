"""Truth alone notices a wrong stage: one-line mutations of stages/, one a module and kind, each against the exact numbers of shipped cases.

A mutant is a copy of the whole package under another name, in which a line of a stage is changed; its bounds are those of the mutant, too,
as in a run. No reference is asked.
"""

import importlib
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped
from strategies import resolved

pytest.importorskip("flint")

from worked_attention.referee.truth.whole import truth  # noqa: E402
from worked_attention.stages.parameters import stage as parameters  # noqa: E402

PACKAGE = ROOT / "workflow" / "scripts" / "worked_attention"
SUITES = ROOT / "config" / "suites"


OWN = [  # what no shipped case shows
    {"mask": {"causal": "top_left"}, "extra_key": "zero", "sizes": {"Lq": 3, "d_model": 2}, "parameters": {"x": {"grid": {}}}},
    {"softmax": "hardmax", "parameters": {"scaled": [[[1, 2, 2], [3, 0, 3]]]}},
    {
        "rotary": {"pairing": "half", "angles": "bfloat16"},
        "positions": {"offset": 200},
        "sizes": {"Lq": 3, "d_model": 16},
        "parameters": {"x": {"grid": {}}},
    },
]


class Mutation(NamedTuple):
    """`old` in stages/`module`.py becomes `new`; cases of `suite` show it, or those of `OWN`."""

    name: str
    module: str
    old: str
    new: str
    suite: str


MUTATIONS = [
    Mutation("causal one off", "masks", "return (j <= i + ALIGN", "return (j < i + ALIGN", "masks"),
    Mutation("causal from the other corner", "masks", "ends: ends - queries", "ends: 0", "masks"),
    Mutation("prefix one off", "masks", "| (j < prefix)", "| (j <= prefix)", "masks"),
    Mutation("window one off on the left", "masks", "else -left)", "else 1 - left)", "masks"),
    Mutation("window one off on the right", "masks", "<= (far if right", "< (far if right", "masks"),
    Mutation("window from the first key always", "masks", 'keys, mask["window"]["align"]', 'keys, "top_left"', "masks"),
    Mutation("documents see each other", "masks", "np.equal.outer", "np.less_equal.outer", "masks"),
    Mutation("one padded key seen", "masks", "np.arange(keys) < by_sequence", "np.arange(keys) <= by_sequence", "masks"),
    Mutation(
        "own diagonal ignored",
        "masks",
        '"own": lambda mask, dims: by_sequence(mask["key_lengths"], dims)',
        '"own": lambda mask, dims: dims["Lc"]',
        "masks",
    ),
    Mutation("polarity of block", "masks", '~arrays["mask_block"]', 'arrays["mask_block"]', "masks"),
    Mutation("polarity of key padding", "masks", '~arrays["mask_key_block"]', 'arrays["mask_key_block"]', "masks"),
    Mutation("masks joined by or", "masks", "np.logical_and.reduce", "np.logical_or.reduce", "masks"),
    Mutation("fill of finfo_min", "masks", "-dtype.largest", "-dtype.largest / 2", "masks"),
    Mutation("appended keys masked", "masks", '["Lc"], True)', '["Lc"], False)', "own"),
    Mutation(
        "sinusoids in halves",
        "positions",
        "np.stack([np.sin(angles), np.cos(angles)]",
        "np.stack([np.cos(angles), np.sin(angles)]",
        "positions",
    ),
    Mutation(
        "pairing",
        "positions",
        '"half": lambda half: (slice(0, half), slice(half, 2 * half))',
        '"half": lambda half: (slice(0, 2 * half, 2), slice(1, 2 * half, 2))',
        "positions",
    ),
    Mutation(
        "turned the other way",
        "positions",
        "y[..., b] = x[..., a] * sin + x[..., b] * cos",
        "y[..., b] = x[..., b] * cos - x[..., a] * sin",
        "positions",
    ),
    Mutation("frequencies of d_k", "positions", "np.arange(0, dims, 2) / dims)", "np.arange(0, dims, 2) / (dims + 2))", "positions"),
    Mutation(
        "linear twice", "positions", 'return theta / options["factor"], 1.0', 'return theta / options["factor"] ** 2, 1.0', "positions"
    ),
    Mutation("ntk exponent", "positions", "(dims / (dims - 2))", "((dims - 2) / dims)", "positions"),
    Mutation(
        "llama3 blend turned round",
        "positions",
        'kept * theta + (1 - kept) * theta / options["factor"]',
        '(1 - kept) * theta + kept * theta / options["factor"]',
        "positions",
    ),
    Mutation("yarn without stretch", "positions", '0.1 * math.log(options["factor"]) + 1', "1.0", "positions"),
    Mutation("yarn ramp one off", "positions", "math.ceil(pair", "math.floor(pair", "positions"),
    Mutation("frequencies not rounded", "positions", "theta.astype(precision)", "theta", "own"),
    Mutation("alibi slopes", "positions", "geometric(2 * below)[::2]", "geometric(2 * below)[1::2]", "scores"),
    Mutation("alibi distance signed", "positions", "lambda i, j: -abs(i - j)", "lambda i, j: j - i", "scores"),
    Mutation("t5 boundary", "positions", "np.log(np.maximum(distance, 1) / exact)", "np.log((distance + 1) / exact)", "scores"),
    Mutation("t5 sides swapped", "positions", "relative > 0, buckets // 2", "relative < 0, buckets // 2", "scores"),
    Mutation("t5 to the left", "positions", "np.maximum(-relative, 0)", "np.abs(relative)", "scores"),
    Mutation("heads split the other way", "projections", "heads, -1), -2, -3)", "-1, heads), -1, -2).swapaxes(-2, -3)", "heads"),
    Mutation("bias left out", "projections", "widened(y) + widened(b)", "widened(y)", "heads"),
    Mutation("norm by the sum", "projections", '"rms": lambda width: width', '"rms": lambda width: 1', "scores"),
    Mutation("eps outside the root", "projections", "+ x.dtype.type(eps) / s / s)", ")", "scores"),
    Mutation("gain left out", "projections", "y * widened(gain)", "y", "scores"),
    Mutation("zero vector", "projections", '"nan": np.nan', '"nan": 0.0', "scores"),
    Mutation("cache behind", "projections", '[arrays["past_k"], latest(made, "k")]', '[latest(made, "k"), arrays["past_k"]]', "cache"),
    Mutation(
        "appended key first",
        "projections",
        "np.concatenate([x, *(np.broadcast_to(m, (*x.shape[:-2], 1, x.shape[-1])) for m in more)]",
        "np.concatenate([*(np.broadcast_to(m, (*x.shape[:-2], 1, x.shape[-1])) for m in more), x]",
        "heads",
    ),
    Mutation(
        "rotation before the norm forgotten",
        "projections",
        "rotary(unrotated(made, name)",
        'rotary(made[f"{name}_heads"]',
        "positions",
    ),
    Mutation(
        "groups interleaved",
        "scores",
        "np.repeat(x, heads // x.shape[-3], axis=-3)",
        "np.concatenate([x] * (heads // x.shape[-3]), axis=-3)",
        "heads",
    ),
    Mutation("scaled twice", "scores", '* case["scale_factor"]', '* case["scale_factor"] ** 2', "handworked"),
    Mutation("cap outside only", "scores", "cap * np.tanh(x / cap)", "cap * np.tanh(x)", "scores"),
    Mutation(
        "key bias twice", "scores", 'arrays["mask_key_add"][..., None, None, :]', '2 * arrays["mask_key_add"][..., None, None, :]', "masks"
    ),
    Mutation("fill of no key", "scores", 'np.where(made["keep"], scores, fill)', "scores", "masks"),
    Mutation("sink times two", "weights", "np.exp(sink - largest))", "2 * np.exp(sink - largest))", "softmax"),
    Mutation(
        "plus one left out",
        "weights",
        '"plus_one": lambda case, scores, sinks, blocked: softmax(scores, np.zeros(case["heads"], scores.dtype))',
        '"plus_one": lambda case, scores, sinks, blocked: softmax(scores)',
        "softmax",
    ),
    Mutation(
        "hardmax takes the last", "weights", "scores.argmax(axis=-1)", "(scores.shape[-1] - 1 - scores[..., ::-1].argmax(axis=-1))", "own"
    ),
    Mutation("empty rows uniform", "weights", '"zero": lambda keys: 0.0', '"zero": lambda keys: 1 / keys', "masks"),
    Mutation("dropout not rescaled", "weights", "rounded(widened(weights) * keep / (1 - p)", "rounded(widened(weights) * keep", "softmax"),
    Mutation(
        "weights without dropout",
        "contexts",
        'arrays["dropped"] if "dropped" in arrays else arrays["weights"]',
        'arrays["weights"]',
        "softmax",
    ),
    Mutation("heads merged the other way", "contexts", "x = np.swapaxes(x, -2, -3)", "x = np.moveaxis(x, -3, -1)", "heads"),
    Mutation("output bias left out", "outputs", 'arrays.get("b_o")', "None", "handworked"),
    Mutation("gradient of the softmax", "backward", "p * (dp - (p * dp).sum(axis=-1, keepdims=True))", "p * dp", "gradients"),
    Mutation("gradient of the norm", "backward", "(dy - unit * (unit * dy).sum(axis=-1, keepdims=True) / n)", "dy", "gradients"),
    Mutation("gradient turned on", "backward", "rotate(dy, cos, -sin", "rotate(dy, cos, sin", "gradients"),
    Mutation("gradient of the cap", "backward", '/ case["softcap"]) ** 2)', '/ case["softcap"]))', "gradients"),
    Mutation(
        "gradient of groups",
        "backward",
        "kv_heads, -1, *x.shape[-2:]).sum(axis=-3)",
        "kv_heads, -1, *x.shape[-2:]).mean(axis=-3)",
        "gradients",
    ),
    Mutation(
        "gradient of dropped weights",
        "backward",
        'd_weights * a["dropout_keep"] / (1 - case["dropout"])',
        'd_weights * a["dropout_keep"]',
        "gradients",
    ),
    Mutation("gradient of the scale", "backward", '["scaled"] * case["scale_factor"]', '["scaled"]', "gradients"),
    Mutation("gradient of a blocked score", "backward", 'np.where(a["keep"], d["masked"], 0)', 'd["masked"]', "gradients"),
    Mutation(
        "gradient of the past", "backward", 'slice(case["dims"]["Lp"], case["dims"]["Lc"])', 'slice(0, case["dims"]["Ln"])', "gradients"
    ),
    Mutation("gradient of a bias", "backward", "total(rounded(rows.T, accumulate))[:, 0]", "rows[0]", "gradients"),
    Mutation("gradients of x not added", "backward", "d[source] + d_source if source in d else d_source", "d_source", "gradients"),
]


@cache
def exact(suite: str) -> list[tuple[dict, dict, dict]]:
    """(case, parameters, truth) of the small cases of a suite; truth knows nothing of stages/, so one serves all mutants."""
    cases = map(resolved, OWN) if suite == "own" else shipped(suite)["cases"].values()
    small = [case for case in cases if case["bytes"]["scores"] < 160_000 and not case["torch_draws"]]
    given = [parameters(case, SUITES) for case in small]
    return [(case, arrays, truth(case, arrays)) for case, arrays in zip(small, given, strict=True)]


@pytest.fixture
def mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that makes a mutant and returns its modules by name; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(module: str, old: str, new: str):
        name = "mutant"
        shutil.copytree(PACKAGE, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (tmp_path / name).rglob("*.py"):
            text = path.read_text("utf-8")
            if path == tmp_path / name / "stages" / f"{module}.py":
                assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in stages/{module}.py"
                text = text.replace(old, new)
            path.write_text(text.replace("worked_attention", name), "utf-8")
        importlib.invalidate_caches()
        return lambda part: importlib.import_module(f"{name}.{part}")

    yield make
    for name in [name for name in sys.modules if name.split(".")[0] == "mutant"]:
        del sys.modules[name]


def wrong(made: np.ndarray, true: tuple[np.ndarray, np.ndarray], allowed: np.ndarray) -> bool:
    """Whether an array is certainly not what it should be: beyond its bound, or NaN or infinite where the exact number is not."""
    middle, radius = true
    if made.dtype == bool:
        return bool((made != middle).any())
    made, certain = made.astype(np.float64), np.isfinite(allowed + radius)
    with np.errstate(invalid="ignore"):
        differs = ~((np.abs(made - middle) <= allowed + radius) | (made == middle) | (np.isnan(made) & np.isnan(middle)))
    return bool((differs & certain).any())


def caught(load, suite: str) -> str | None:
    """The first case of a suite of which truth accuses the package that `load` imports modules of; None if there is none."""
    compute, bounds = load("stages.whole").from_parameters, load("referee.bounds.whole")
    contracts = load("referee.bounds.contracts")
    for case, given, true in exact(suite):
        with np.errstate(all="ignore"):
            ours = compute(case, given)
            allowed = bounds.bounds(case, bounds.centres(case, ours), *contracts.roundoffs(case))
        if any(wrong(ours[name], true[name], allowed[name]) for name in true):
            return case["name"]
    return None


@pytest.mark.parametrize("suite", sorted({mutation.suite for mutation in MUTATIONS}))
def test_nothing_is_caught_without_a_mutation(suite: str, mutant):
    assert caught(mutant("masks", "import numpy as np", "import numpy as np"), suite) is None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_truth_alone_catches(mutation: Mutation, mutant):
    assert caught(mutant(mutation.module, mutation.old, mutation.new), mutation.suite)


def test_every_stage_is_mutated():
    assert {m.module for m in MUTATIONS} >= {"masks", "positions", "projections", "scores", "weights", "contexts", "outputs", "backward"}
