"""ONNX's own node tests, generated from the installed package, against our stages and others."""

from collections import Counter

import pytest
from conftest import copy_project, run, with_suites

pytest.importorskip("onnx", reason="onnx is optional; pip install -r envs/requirements-references.txt")

from worked_attention.conformance.onnx_node_tests import collect, judge
from worked_attention.files.formats import read_json


@pytest.fixture(scope="module")
def tests():
    return collect()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What the rule says, and the folder that it has written."""
    project = with_suites(copy_project(tmp_path_factory.mktemp("onnx") / "project"), "handworked")
    return run(project, "onnx_node_tests", cores=1), project / "results" / "onnx_node_tests"


@pytest.fixture(scope="module")
def found(made):
    return read_json(made[1] / "verdicts.json")


def counts(found: dict, who: str, operator: str) -> Counter:
    return Counter(test[who]["verdict"] for test in found["tests"].values() if test["operator"] == operator)


def test_our_stages_reproduce_every_test(found):
    verdicts = counts(found, "ours", "Attention")
    assert set(verdicts) == {"pass", "golden less exact"}
    assert set(counts(found, "ours", "RotaryEmbedding")) == {"pass"}
    half = [name for name, test in found["tests"].items() if test["ours"]["verdict"] == "golden less exact"]
    assert all(name.endswith(("fp16", "bf16")) for name in half)


def test_numbers_of_this_version(found):
    if found["versions"]["onnx"] != "1.23.2":
        pytest.skip("the tests differ from version to version")
    assert counts(found, "ours", "Attention") == {"pass": 87, "golden less exact": 6}
    assert counts(found, "ours", "RotaryEmbedding") == {"pass": 8}
    assert counts(found, "onnx.reference", "Attention") == {"pass": 93}


def test_a_wrong_answer_fails(tests, monkeypatch):
    from worked_attention.conformance import onnx_node_tests

    name = "test_rotary_embedding"
    right = onnx_node_tests.ours

    def wrong(test, case, wide=False):
        return {"Y": right(test, case, wide)["Y"] + (0 if wide else 0.01)}

    assert judge({name: tests[name]}, {})["tests"][name]["ours"]["verdict"] == "pass"
    monkeypatch.setattr(onnx_node_tests, "ours", wrong)
    assert judge({name: tests[name]}, {})["tests"][name]["ours"]["verdict"] == "fail"


def test_every_output_mode_is_among_them(tests):
    modes = {test.attributes.get("qk_matmul_output_mode", 0) for test in tests.values() if "qk_matmul_output" in test.outputs}
    assert modes == {0, 1, 2, 3}


def test_the_rule_writes_suite_and_verdicts(made):
    done, folder = made
    assert done.returncode == 0, done.stderr
    assert "RotaryEmbedding, 8 tests, ours: 8 pass" in done.stdout + done.stderr
    assert {path.name for path in folder.iterdir()} == {"onnx_node_tests.yaml", "verdicts.json", "verdicts.txt"}
    assert set(read_json(folder / "verdicts.json")["tests"]) >= {"test_attention_4d", "test_rotary_embedding"}
