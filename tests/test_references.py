"""The optional references: what they support, that they agree on random cases, and that a missing package is no error."""

import importlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, run, with_suites
from hypothesis import HealthCheck, given, settings
from shipped import shipped
from strategies import raw_cases, resolved

from worked_attention.cases.columns import libraries, references
from worked_attention.referee.arithmetics import Ours, arithmetic, compared, empty_row
from worked_attention.references import fused, registry
from worked_attention.references.registry import packages
from worked_attention.stages.whole import compute

GATES = {"rule": "certified", "float64": 1e-12, "float32": 1e-5, "half_ulp": 4}
OPTIONAL = {"onnx_reference": "onnx", "onnxruntime_cpu": "onnxruntime", "jax_nn": "jax"}
SOME = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MASKED = {
    "dtype": "float32",
    "heads": 2,
    "sizes": {"Lq": 2, "Lk": 3, "d_k": 4},
    "parameters": {name: {"normal": {"seed": i}} for i, name in enumerate(("q", "k", "v"))},
    "mask": {"keep": [[True, False, True], [False, False, False]]},
}


def adapter(name: str):
    """The module of an optional reference; the test is skipped where its package is missing."""
    for package in packages(OPTIONAL[name]):
        pytest.importorskip(package, reason=f"{package} is optional; pip install -r envs/requirements-references.txt")
    return importlib.import_module(f"worked_attention.references.{name}")


def answer(name: str, raw: dict) -> tuple[dict, dict, dict]:
    """(case, our arrays, theirs)."""
    case = resolved(raw)
    assert adapter(name).supports(case) is None
    ours = compute(case)
    return case, ours, adapter(name).run(case, {parameter: ours[parameter] for parameter in case["arrays"]["parameters"]})


@pytest.mark.parametrize(("name", "examples"), [("onnx_reference", 200), ("onnxruntime_cpu", 200), ("jax_nn", 20)])
def test_random_cases(name, examples):
    module = adapter(name)
    ran = []

    @settings(SOME, max_examples=examples)
    @given(raw_cases(dtypes=("float64", "float32"), softmax=None, sinks=None, dropout=None, appended=None))
    def check(raw):
        raw["mask"].pop("fill", None)
        if name == "jax_nn":
            raw["sizes"]["d_v"] = raw["sizes"]["d_k"]
            raw.pop("softcap", None)
        case = resolved(raw)
        if module.supports(case):
            return
        ours = compute(case)
        theirs = module.run(case, {parameter: ours[parameter] for parameter in case["arrays"]["parameters"]})
        result = compared(Ours(case, ours, GATES), theirs, module.convention(case))
        assert result["verdict"] in ("pass", "convention"), result["first_divergence"]
        ran.append(set(theirs))

    check()
    assert len(ran) > examples / 4
    assert set().union(*ran) >= {"contexts"}


@pytest.mark.parametrize(("name", "row"), [("onnx_reference", "zero"), ("onnxruntime_cpu", "zero"), ("jax_nn", "uniform")])
def test_a_fully_masked_row(name, row):
    for policy in ("zero", "nan", "uniform"):
        case, ours, theirs = answer(name, {**MASKED, "mask": {**MASKED["mask"], "empty_row": policy}})
        assert empty_row(ours, theirs) == row
        verdict = compared(Ours(case, ours, GATES), theirs, adapter(name).convention(case))
        assert (verdict["verdict"], verdict.get("reason")) == (
            ("pass", None) if policy == row else ("convention", f"follows empty_row: {row}")
        )


def test_another_convention_explains_nothing_else():
    case, ours, theirs = answer("onnx_reference", {**MASKED, "mask": {**MASKED["mask"], "empty_row": "nan"}})
    wrong = theirs | {"contexts": theirs["contexts"] + np.float32(0.01)}
    assert compared(Ours(case, ours, GATES), wrong, "empty_row: zero")["verdict"] == "fail"


@pytest.mark.parametrize(("name", "contract"), [("onnx_reference", "float64"), ("onnxruntime_cpu", "float32"), ("jax_nn", "float32")])
def test_the_arithmetic_of_a_float64_case(name, contract):
    case, ours, theirs = answer(name, {**MASKED, "dtype": "float64"})
    assert arithmetic(case, theirs) == contract
    assert compared(Ours(case, ours, GATES), theirs, adapter(name).convention(case))["contract"] == contract


@pytest.mark.parametrize("name", ["onnx_reference", "onnxruntime_cpu"])
def test_every_output_mode(name):
    softcap = {**MASKED, "softcap": 2, "dtype": "float32"}
    shown = set(answer(name, softcap)[2]) | set(answer(name, MASKED)[2])
    assert shown >= {"scaled", "capped", "masked", "weights", "contexts"}


def test_the_evaluator_shows_capped_scores_as_mode_0():
    """Why onnx_reference leaves out `scaled` where there is a softcap; when this fails, it need not any longer."""
    adapter("onnx_reference")
    from onnx.reference import ReferenceEvaluator

    from worked_attention.references import onnx_operator

    case = resolved({**MASKED, "softcap": 0.5, "mask": {}})
    ours = compute(case)
    arrays = {name: ours[name] for name in case["arrays"]["parameters"]}
    found = onnx_operator.run(case, arrays, lambda model, feeds: ReferenceEvaluator(model).run(None, feeds), 25, ["scaled", "capped"])
    assert np.array_equal(found["scaled"], found["capped"])


BLOCKED_NAN = {  # the second key is zeros, so that its norm is 0/0, and no query sees it
    "sizes": {"Lq": 1, "Lk": 2, "d_k": 2},
    "qk_norm": {"kind": "l2", "eps": 0, "zero_vector": "nan"},
    "parameters": {"q_heads": [[[3.0, 4.0]]], "k_heads": [[[0.6, 0.8], [0.0, 0.0]]], "v_heads": [[[5.0, 7.0], [1.0, 2.0]]]},
}


def test_the_evaluator_keeps_a_blocked_nan_and_so_such_a_case_is_refused():
    """What is behind a mask is not seen: the only other key has all the weight. The evaluator adds -inf to a NaN, which stays one; when
    this fails, onnx_reference need not refuse it any longer."""
    module = adapter("onnx_reference")
    for mask in ({"key_keep": [True, False]}, {"keep": [[True, False]]}, {"window": {"right": 0}}):
        case = resolved(BLOCKED_NAN | {"mask": mask})
        ours = compute(case)
        assert ours["contexts"].tolist() == [[[5.0, 7.0]]]
        assert "a NaN that is blocked" in (module.supports(case) or ""), mask
        theirs = module.run(case, {name: ours[name] for name in case["arrays"]["parameters"]})
        assert np.isnan(theirs["contexts"]).all(), mask
    assert module.supports(resolved(BLOCKED_NAN)) is None  # nothing is blocked, and NaN is right


@pytest.mark.parametrize("name", OPTIONAL)
def test_each_verdict_over_the_suites(name):
    """Half precisions and masks of the shipped suites: nothing fails."""
    module = adapter(name)
    for suite in ("masks", "precision", "field_cases") if name != "jax_nn" else ("precision",):
        for case in shipped(suite)["cases"].values():
            if module.supports(case) is None:
                ours = compute(case, ROOT / "config" / "suites")
                theirs = module.run(case, {parameter: ours[parameter] for parameter in case["arrays"]["parameters"]})
                result = compared(Ours(case, ours, GATES), theirs, module.convention(case))
                assert result["verdict"] in ("pass", "convention"), (case["name"], result["first_divergence"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_jax_in_half_precision_in_shapes_that_do_not_compile(dtype):
    drawn = {f"{name}_heads": {"normal": {"seed": i}} for i, name in enumerate("qkv")}
    case, ours, theirs = answer(
        "jax_nn", {"heads": 8, "sizes": {"Lq": 32, "Lk": 32, "d_k": 1, "d_v": 1}, "dtype": dtype, "parameters": drawn}
    )
    assert compared(Ours(case, ours, GATES), theirs, adapter("jax_nn").convention(case))["verdict"] in ("pass", "convention")


def test_torch_is_always_there(monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda package: None)
    assert registry.present(libraries()) == ["torch"]
    monkeypatch.setattr(registry, "find_spec", lambda package: None if package == "onnx" else "there")
    assert registry.present(libraries()) == ["torch", "jax"]


def test_jobs_of_conda_have_what_its_file_names(monkeypatch, tmp_path: Path):
    """And not what is installed beside Snakemake: JAX of another Python ended such a job with a fault of segmentation."""
    monkeypatch.setattr(registry, "find_spec", lambda package: "there")
    assert registry.present(libraries(), ROOT / "envs" / "attention.yaml") == ["torch"]
    text = "dependencies:\n  - onnx\n  - pip:\n    - torch==2.13.0\n    - jax==0.10.2\n    - onnxruntime==1.32.0\n"
    (tmp_path / "more.yaml").write_text(text, "utf-8")
    assert registry.present(libraries(), tmp_path / "more.yaml") == ["torch", "onnx", "onnxruntime", "jax"]


@pytest.mark.parametrize("where", ["everywhere", "in_jobs"])
def test_a_missing_package_is_not_installed(project: Path, where):
    """The optional packages are missing, also for Snakemake itself or for its jobs alone (which may have an environment of their own)."""
    hidden = "import sys\n\nif {}:\n    sys.modules |= dict.fromkeys(('onnx', 'onnxruntime', 'jax'))\n"
    condition = {"everywhere": "True", "in_jobs": "'-m' not in sys.orig_argv"}[where]
    (project / "workflow" / "scripts" / "sitecustomize.py").write_text(hidden.format(condition), "utf-8")
    tiny = {"cases": {"only": {k: v for k, v in MASKED.items() if k != "dtype"}}}
    with_suites(project)
    (project / "config" / "suites" / "tiny.yaml").write_text(json.dumps(tiny), "utf-8")
    targets = ["results/tiny/comparison", *["results/conformance.svg"] * (where == "in_jobs")]
    done = run(project, *targets, env={"PYTHONPATH": str(project / "workflow" / "scripts")})
    assert done.returncode == 0, done.stderr
    found = json.loads((project / "results" / "tiny" / "comparison" / "only.json").read_text("utf-8"))
    for name in [name for name in references()[1:] if not name.startswith("torch.")]:
        assert found["references"][name]["verdict"] == "not installed"
    assert found["references"]["torch.sdpa"]["verdict"] == "pass"
    if where == "in_jobs":
        assert "not installed" in (project / "results" / "conformance.csv").read_text("utf-8")


OWN = {"causal": "bottom_right", "key_lengths": [5, 4], "diagonal": "own"}


@pytest.mark.parametrize(
    ("options", "shift", "says"),
    [
        ({"mask": {"causal": "top_left"}}, 0, True),
        ({"mask": {"causal": "top_left"}, "extra_key": "zero"}, 0, False),  # the appended key is seen by all, under the hint by none
        ({"mask": {"causal": "top_left", "prefix": 2}}, 0, False),
        ({"mask": {"causal": "top_left", "prefix": 1}}, 0, True),  # the first key is seen in any case
        ({"mask": {"causal": "bottom_right"}, "sizes": {"Lq": 2, "Lk": 5, "d_k": 2}}, 0, False),
        ({"mask": {"causal": "bottom_right"}, "sizes": {"Lq": 2, "Lk": 5, "d_k": 2}}, 3, True),
        (
            {"mask": {"causal": "bottom_right", "key_lengths": [5, 4], "diagonal": "own"}, "sizes": {"B": 2, "Lq": 2, "Lk": 5, "d_k": 2}},
            3,
            False,
        ),
        ({"mask": {"key_lengths": [2]}}, 0, False),
    ],
)
def test_a_hint_is_given_only_where_it_says_what_the_mask_says(options, shift, says):
    raw = {"sizes": {"Lq": 3, "d_k": 2}, "parameters": {name: {"grid": {}} for name in ("q_heads", "k_heads", "v_heads")}}
    assert fused.says(resolved(raw | options), "causal", shift) is says


def test_an_option_that_an_adapter_has_never_heard_of_is_unsupported():
    case = resolved({"sizes": {"Lq": 2, "d_model": 2}, "parameters": {name: {"grid": {}} for name in ("x", "w_q", "w_k", "w_v")}})
    for library, names in libraries().items():
        for name in names:
            if library == "torch" or all(importlib.util.find_spec(package) for package in packages(library)):
                found = importlib.import_module(f"worked_attention.references.{library}_{name}")
                assert "novelty" in (found.supports(case | {"uses": ["novelty"]}) or ""), name
