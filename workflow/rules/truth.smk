"""The exact numbers, in ball arithmetic, and whether our own stages lie within their bounds of them.

In: a suite's parameters and stages. Out: truth/{case}/{array}.npy, whose last axis is (exact, radius), and truth.json with
the errors of ours.
"""

BACKWARD = {
    suite: {"backward": f"results/{suite}/backward"} if suite in GRADIENTS else {}
    for suite in SUITES
}


rule truth:
    input:
        unpack(lambda wildcards: BACKWARD[wildcards.suite]),
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
        code=modules("truth"),
    output:
        directory("results/{suite}/truth"),
    log:
        "results/logs/{suite}/truth.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/truth.py"
