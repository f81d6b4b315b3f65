"""Golden vectors for other programs: `snakemake --cores 1 export`. Nothing is exported by default.

all stages of a suite -> export/{suite}/manifest.json, README.md, plain/{case}/ and onnx/test_{case}/

The ONNX tests need the package onnx; they are written anew when its version changes, and without it there are none.
"""

from worked_attention.files.environment import installed


rule export_suite:
    input:
        unpack(lambda wildcards: plan.backward(wildcards.suite)),
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
    output:
        directory("results/export/{suite}"),
    log:
        "results/logs/{suite}/export.log",
    conda:
        "../../envs/attention.yaml"
    params:
        onnx=[package for package in installed() if package.startswith("onnx-")],
        code=code("export_suite"),
    script:
        "../scripts/export_suite.py"


rule export:
    input:
        expand("results/export/{suite}", suite=plan.suites),
