"""Rule onnx_node_tests: ONNX's tests of Attention and RotaryEmbedding against our stages, the reference evaluator and ONNX Runtime."""

import sys
from importlib.util import find_spec
from pathlib import Path

from worked_attention.files.formats import FORMAT, write_json, write_text
from worked_attention.files.jobs import logged

sys.stdout.reconfigure(encoding="utf-8")
with logged(snakemake.log[0]):
    if find_spec("onnx") is None:
        sys.exit("Error: the package onnx is not installed; pip install -r envs/requirements-references.txt")
    from worked_attention.cases.suites import load_suite
    from worked_attention.conformance.onnx_node_tests import collect, judge, report, suite

    tests = collect()
    path = Path(snakemake.output.suite)
    write_json(path, suite(tests))
    found = judge(tests, load_suite(path, snakemake.params.limits)["cases"])
    text = report(found)
    write_json(Path(snakemake.output.json), {"format": FORMAT, **found})
    write_text(Path(snakemake.output.text), text)
    print(f"\n{text}", flush=True)
    if wrong := [name for name, test in found["tests"].items() if test["ours"]["verdict"] == "fail"]:
        sys.exit(f"Error: our stages do not reproduce {', '.join(wrong)}")
