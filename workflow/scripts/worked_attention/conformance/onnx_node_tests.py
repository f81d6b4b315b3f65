"""ONNX's node tests of Attention and RotaryEmbedding: collected from the package, written as cases, compared with what they expect.

A test has one node, its inputs and the outputs that it expects; it passes within rtol |expected| + atol, as ONNX itself has it.
Those of RotaryEmbedding bring arbitrary numbers as cosines and sines, so that no case can say them; they call our rotation itself.
"""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import onnx

from worked_attention.files.formats import values
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.dtypes import overflow, usual_precision
from worked_attention.stages.positions import rotate
from worked_attention.stages.projections import split_heads
from worked_attention.stages.whole import compute

Arrays = dict[str, np.ndarray]
SHOWN = ("scaled", "capped", "masked", "weights")  # by qk_matmul_output_mode


@dataclass(frozen=True)
class Test:
    """One test: its model, the attributes of its node, its inputs and expected outputs by the operator's own names for them."""

    model: onnx.ModelProto
    attributes: dict
    inputs: Arrays
    outputs: Arrays
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        return self.model.graph.node[0].op_type


def collect() -> dict[str, Test]:
    """The tests of both operators by name, without those that unfold the operator into others."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it makes the tests of all operators, some with overflows
        found = collect_testcases(None)
    prefixes = ("test_attention", "test_rotary_embedding")
    return {test.name: _read(test) for test in found if test.name.startswith(prefixes) and "_expanded" not in test.name}


def _read(test) -> Test:
    node, (inputs, outputs) = test.model.graph.node[0], test.data_sets[0]
    schema = onnx.defs.get_schema(node.op_type, test.model.opset_import[0].version, node.domain)

    def named(arrays: list, given: list[str], formal: list) -> Arrays:
        """Arrays by formal names; an empty name stands for one that is left out."""
        places = [parameter.name for name, parameter in zip(given, formal, strict=False) if name]
        return dict(zip(places, map(np.asarray, arrays), strict=True))

    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    read = named(inputs, node.input, schema.inputs), named(outputs, node.output, schema.outputs)
    return Test(test.model, attributes, *read, test.rtol, test.atol)


def suite(tests: dict[str, Test]) -> dict:
    """The tests of Attention as a suite."""
    cases = {name: case(test) for name, test in tests.items() if test.operator == "Attention"}
    return {"description": f"The node tests of Attention from onnx {version('onnx')}.", "figures": "none", "cases": cases}


def case(test: Test) -> dict:
    """One test of Attention as a case of a suite."""
    given, attributes = test.inputs, test.attributes
    q, k, v = given["Q"], given["K"], given["V"]
    heads = {"heads": attributes.get("q_num_heads", q.shape[1]), "kv_heads": attributes.get("kv_num_heads", k.shape[1])}
    names = ("q", "k", "v") if q.ndim == 3 else ("q_heads", "k_heads", "v_heads")
    parameters = dict(zip(names, (q, k, v), strict=True))
    parameters |= {name: given[key] for name, key in (("past_k", "past_key"), ("past_v", "past_value")) if key in given}
    found = {"dtype": q.dtype.name, **heads, "parameters": {name: values(array) for name, array in parameters.items()}}
    if "scale" in attributes:
        found["scale"] = attributes["scale"]
    if attributes.get("softcap"):
        found["softcap"] = attributes["softcap"]
    if "softmax_precision" in attributes:
        found["precision"] = {"softmax": onnx.helper.tensor_dtype_to_np_dtype(attributes["softmax_precision"]).name}
    past = given["past_key"].shape[2] if "past_key" in given else 0
    keys = past + k.shape[-2]
    return {**found, "mask": _mask(test, q.shape[-2], keys, past)}


def _mask(test: Test, queries: int, keys: int, past: int) -> dict:
    """The masks of a test as ours. Where its diagonal is neither of those that a case can name, causal and window are written out."""
    given, attributes, found = test.inputs, test.attributes, {}
    offset = given["nonpad_kv_seqlen"].reshape(-1, 1, 1, 1) - queries if "nonpad_kv_seqlen" in given else np.array(past).reshape(1, 1)
    sides = {side: attributes[f"{side}_window_size"] for side in ("left", "right") if attributes.get(f"{side}_window_size", -1) >= 0}
    align = {keys - queries: "bottom_right", 0: "top_left"}.get(offset.item() if offset.size == 1 else None)
    if align and attributes.get("is_causal"):
        found["causal"] = align
    if align and sides:
        found["window"] = {**sides, "align": align}
    if not align:
        distance = np.arange(keys) - np.arange(queries)[:, None] - offset
        seen = distance <= (0 if attributes.get("is_causal") else keys)
        seen &= (distance >= -sides.get("left", keys + queries)) & (distance <= sides.get("right", keys))
        found["block"] = values(~seen)
    if "nonpad_kv_seqlen" in given:
        found["key_lengths"] = given["nonpad_kv_seqlen"].tolist()
    if "attn_mask" in given:
        mask = given["attn_mask"]
        short = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        mask = np.pad(mask, short, constant_values=False if mask.dtype == bool else -np.inf)
        mask = mask[None] if mask.ndim in (1, 3) else mask
        found["keep" if mask.dtype == bool else "add"] = values(mask)
    return found


def ours(test: Test, resolved: dict | None, wide: bool = False) -> Arrays:
    """Our answer by the names of the outputs; `wide` computes in float64 on the same numbers. resolved: the case, if it is one."""
    if resolved is None:
        return {"Y": rotation(test, np.float64 if wide else test.inputs["X"].dtype)}
    if wide:
        resolved = {
            **resolved,
            "dtype": "float64",
            "precision": usual_precision("float64"),
            "overflow": overflow(usual_precision("float64")),
        }
    arrays = compute(resolved)
    found = {
        "Y": arrays["concat" if test.inputs["Q"].ndim == 3 else "contexts"],
        "present_key": arrays.get("present_k", arrays["k_heads"]),
        "present_value": arrays.get("present_v", arrays["v_heads"]),
    }
    mode = SHOWN[test.attributes.get("qk_matmul_output_mode", 0)]
    found["qk_matmul_output"] = arrays.get(mode, arrays["scaled"])  # without a softcap, mode 1 shows the same as mode 0
    return found


def rotation(test: Test, dtype: np.dtype) -> np.ndarray:
    """Our rotation with the cosines and sines of a test of RotaryEmbedding."""
    x, cos, sin = (test.inputs[name].astype(dtype) for name in ("X", "cos_cache", "sin_cache"))
    if "position_ids" in test.inputs:
        cos, sin = cos[test.inputs["position_ids"]], sin[test.inputs["position_ids"]]
    pairing = "interleaved" if test.attributes.get("interleaved") else "half"
    heads = split_heads(x, test.attributes["num_heads"]) if x.ndim == 3 else x
    turned = rotate(heads, cos[:, None], sin[:, None], pairing)
    return merge_heads(turned) if x.ndim == 3 else turned


def evaluators() -> dict[str, Callable[[Test], list[np.ndarray]]]:
    """Whoever runs a model here, by name."""
    from onnx.reference import ReferenceEvaluator

    def feeds(test: Test) -> Arrays:
        names = [name for name in test.model.graph.node[0].input if name]
        return dict(zip(names, test.inputs.values(), strict=True))

    found = {"onnx.reference": lambda test: ReferenceEvaluator(test.model).run(None, feeds(test))}
    if find_spec("onnxruntime"):
        from worked_attention.references.onnxruntime_cpu import evaluate

        found["onnxruntime.cpu"] = lambda test: evaluate(test.model, feeds(test))
    return found


def judge(tests: dict[str, Test], cases: dict[str, dict]) -> dict:
    """{versions, tests}: for each test {operator, opset, ours and each evaluator: {verdict, and array, worst or reason}}.

    A verdict is `pass`, `fail`, `unsupported`, or `golden less exact` (see `_nearer`); ours stands first.
    """
    others, found = evaluators(), {}
    for name, test in tests.items():
        with np.errstate(all="ignore"):
            made = ours(test, cases.get(name))
            verdicts = {"ours": _verdict(test, made)}
            if verdicts["ours"]["verdict"] == "fail":
                truth = ours(test, cases.get(name), wide=True)
                verdicts["ours"] |= _nearer(test, made, truth)
            for other, evaluate in others.items():
                try:
                    outputs = dict(zip(test.outputs, map(np.asarray, evaluate(test)), strict=True))
                except Exception as error:  # whatever the libraries raise
                    verdicts[other] = {"verdict": "unsupported", "reason": str(error).splitlines()[0][:200]}
                    continue
                verdicts[other] = _verdict(test, outputs)
                if verdicts[other]["verdict"] == "fail":
                    verdicts[other] |= _nearer(test, outputs, ours(test, cases.get(name), wide=True))
        found[name] = {"operator": test.operator, "opset": test.model.opset_import[0].version, "outputs": list(test.outputs), **verdicts}
    packages = [package for package in ("onnx", "onnxruntime") if find_spec(package)]
    return {"versions": {package: version(package) for package in packages}, "tests": found}


def _misses(test: Test, name: str, made: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(misses, theirs, expected) of one output, in float64."""
    theirs, expected = made[name].astype(np.float64), test.outputs[name].astype(np.float64)
    return ~np.isclose(theirs, expected, rtol=test.rtol, atol=test.atol, equal_nan=True), theirs, expected


def _verdict(test: Test, made: Arrays) -> dict:
    """Verdict on `made`; a failing one names the first output that misses and by how much at most."""
    for name in test.outputs:
        if made[name].shape != test.outputs[name].shape:
            return {
                "verdict": "fail",
                "array": name,
                "reason": f"shape {list(made[name].shape)}, expected {list(test.outputs[name].shape)}",
            }
        misses, theirs, expected = _misses(test, name, made)
        if misses.any():
            apart = np.abs(theirs - expected)[misses]
            worst = {"worst": float(apart.max())} if np.isfinite(apart).all() else {"reason": "NaN or infinity at other places"}
            return {"verdict": "fail", "array": name, **worst}
    return {"verdict": "pass"}


def _nearer(test: Test, made: Arrays, truth: Arrays) -> dict:
    """{verdict: golden less exact, errors} if, in each output that misses, the largest and the mean error of `made` are the smaller ones.

    Errors are differences from `truth`. In bfloat16 the tests ask for a quarter of a unit in the last place, which only the same
    roundings at the same places can give.
    """
    errors = {}
    for name in test.outputs:
        if made[name].shape != test.outputs[name].shape:
            return {}
        misses, theirs, expected = _misses(test, name, made)
        here, golden = np.abs(theirs - truth[name]), np.abs(expected - truth[name])
        if misses.any():
            if not (here.max() < golden.max() and here.mean() < golden.mean()):
                return {}
            errors[name] = {"here": float(here.max()), "golden": float(golden.max())}
    return {"verdict": "golden less exact", "errors": errors}


def report(found: dict) -> str:
    """The verdicts as text: counts, and each test that is not passed by all."""
    tests = found["tests"]
    who = [name for name in next(iter(tests.values())) if name not in ("operator", "opset", "outputs")]
    lines = [", ".join(f"{package} {number}" for package, number in found["versions"].items())]
    for operator in ("Attention", "RotaryEmbedding"):
        some = [test for test in tests.values() if test["operator"] == operator]
        for name in who:
            counts = Counter(test[name]["verdict"] for test in some)
            lines.append(f"{operator}, {len(some)} tests, {name}: {', '.join(f'{n} {word}' for word, n in sorted(counts.items()))}")
    for name, test in tests.items():
        for other in who:
            said = test[other]
            if said["verdict"] != "pass":
                by = (f" {said['array']}" if "array" in said else "") + (f" by {said['worst']:.3g}" if "worst" in said else "")
                by += "".join(f", from float64 {e['here']:.2g}, golden {e['golden']:.2g}" for e in said.get("errors", {}).values())
                by += f": {said['reason']}" if "reason" in said else ""
                lines.append(f"  {name}: {other} {said['verdict']}{by}")
    return "\n".join(lines) + "\n"
