"""ONNX's own tests of the operators Attention and RotaryEmbedding, taken from the installed package `onnx`. Not built by default.

In: the package. Out: onnx_node_tests.yaml, which holds the tests of Attention as a suite, and onnx_node_tests.json and .txt with the verdicts.
"""

SCHEMA = "workflow/scripts/worked_attention/schemas/suite.schema.yaml"


rule onnx_node_tests:
    output:
        suite="results/onnx_node_tests/onnx_node_tests.yaml",
        json="results/onnx_node_tests/verdicts.json",
        text="results/onnx_node_tests/verdicts.txt",
    log:
        "results/logs/onnx_node_tests.log",
    conda:
        "../../envs/attention.yaml"
    params:
        limits=plan.config["limits"],
        versions=plan.versions("onnxruntime"),
        code=code("onnx_node_tests", SCHEMA),
    script:
        "../scripts/onnx_node_tests.py"
