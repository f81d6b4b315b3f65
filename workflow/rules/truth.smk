"""The exact numbers, in ball arithmetic, and whether our own stages lie within their bounds of them.

In: a suite's parameters and stages. Out: truth/truth.npz, whose members {case}/{array} have (exact, radius) as last axis, and truth.json
with the errors of ours.
"""


rule truth:
    input:
        unpack(lambda wildcards: plan.backward(wildcards.suite)),
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
    output:
        directory("results/{suite}/truth"),
    log:
        "results/logs/{suite}/truth.log",
    conda:
        "../../envs/attention.yaml"
    params:
        code=code("truth"),
    script:
        "../scripts/truth.py"
