"""The six stages, in the order of the formulas: suite file -> parameters -> ... -> outputs.

One job per suite and stage. Each rule lists the modules that its script imports as `code`, so that an edit reruns it.
"""

STAGE = ["workflow/scripts/artifacts.py", "workflow/scripts/attention/arrays.py"]


rule parameters:
    input:
        suite="config/suites/{suite}.yaml",
        files=lambda wildcards: SUITES[wildcards.suite]["files"],
        code=[
            *STAGE,
            "workflow/scripts/attention/parameters.py",
            "workflow/scripts/cases.py",
            "workflow/scripts/strict_yaml.py",
            "workflow/scripts/suites.py",
            "workflow/schemas/suite.schema.yaml",
        ],
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
        code=[*STAGE, "workflow/scripts/attention/projections.py"],
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
        code=[*STAGE, "workflow/scripts/attention/scores.py"],
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
        code=[*STAGE, "workflow/scripts/attention/weights.py"],
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
        code=[*STAGE, "workflow/scripts/attention/contexts.py"],
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
        code=[
            *STAGE,
            "workflow/scripts/attention/outputs.py",
            "workflow/scripts/attention/projections.py",
        ],
    output:
        directory("results/{suite}/outputs"),
    log:
        "results/logs/{suite}/outputs.log",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/outputs.py"
