"""The stages, in the order of the formulas: suite file -> parameters -> ... -> outputs (-> backward, where a case asks for it).

One job per suite and stage. Every rule lists the modules that its script imports as `code`, so that an edit reruns it.
"""


rule parameters:
    input:
        suite="config/suites/{suite}.yaml",
        files=lambda wildcards: SUITES[wildcards.suite]["files"],
        code=modules("parameters"),
        schema="workflow/scripts/worked_attention/schemas/suite.schema.yaml",
    output:
        directory("results/{suite}/parameters"),
    log:
        "results/logs/{suite}/parameters.log",
    conda:
        "../../envs/attention.yaml"
    params:
        limits=config["limits"],
    script:
        "../scripts/parameters.py"


rule projections:
    input:
        parameters="results/{suite}/parameters",
        code=modules("projections"),
    output:
        directory("results/{suite}/projections"),
    log:
        "results/logs/{suite}/projections.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/projections.py"


rule scores:
    input:
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        code=modules("scores"),
    output:
        directory("results/{suite}/scores"),
    log:
        "results/logs/{suite}/scores.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/scores.py"


rule weights:
    input:
        parameters="results/{suite}/parameters",
        scores="results/{suite}/scores",
        code=modules("weights"),
    output:
        directory("results/{suite}/weights"),
    log:
        "results/logs/{suite}/weights.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/weights.py"


rule contexts:
    input:
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        weights="results/{suite}/weights",
        code=modules("contexts"),
    output:
        directory("results/{suite}/contexts"),
    log:
        "results/logs/{suite}/contexts.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/contexts.py"


rule outputs:
    input:
        parameters="results/{suite}/parameters",
        contexts="results/{suite}/contexts",
        code=modules("outputs"),
    output:
        directory("results/{suite}/outputs"),
    log:
        "results/logs/{suite}/outputs.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/outputs.py"


GRADIENTS = {
    suite
    for suite in SUITES
    if any(case["backward"] for case in SUITES[suite]["cases"].values())
}


rule backward:
    input:
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
        code=modules("backward"),
    output:
        directory("results/{suite}/backward"),
    log:
        "results/logs/{suite}/backward.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/backward.py"
