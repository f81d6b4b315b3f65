"""The stages, in the order of the formulas: suite file -> parameters -> ... -> outputs (-> backward, where a case asks for it).

One job per suite and stage. What a job depends on besides the results of others stands in `params` as a digest of contents, so that
an edit reruns it and a touched, commented or older-dated file does not: `code`, its script and all that this imports, and `suite`, what
the suite says once it is resolved (which is why the modules that read suites are not part of the code here). So does what last bits
depend on, `arithmetic`, or environment.json would tell of another machine's settings than those that made the numbers.
"""

from worked_attention.files.environment import variables

ARITHMETIC = [
    *(
        name
        for package in ("python", "numpy", "ml_dtypes")
        for name in plan.versions(package)
    ),
    *variables(),
]


rule parameters:
    input:
        suite=ancient("config/suites/{suite}.yaml"),
        arrays=begin,
    output:
        directory("results/{suite}/parameters"),
    log:
        "results/logs/{suite}/parameters.log",
    conda:
        "../../envs/attention.yaml"
    params:
        suite=lambda wildcards: plan.digests[wildcards.suite],
        whole=plan.config["limits"]["max_whole_mb"],
        arithmetic=[*ARITHMETIC, *plan.versions("torch")],
        code=code("parameters", without="cases"),
    script:
        "../scripts/parameters.py"


rule projections:
    input:
        parameters="results/{suite}/parameters",
    output:
        directory("results/{suite}/projections"),
    log:
        "results/logs/{suite}/projections.log",
    conda:
        "../../envs/attention.yaml"
    params:
        arithmetic=ARITHMETIC,
        code=code("projections"),
    script:
        "../scripts/projections.py"


rule scores:
    input:
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
    output:
        directory("results/{suite}/scores"),
    log:
        "results/logs/{suite}/scores.log",
    conda:
        "../../envs/attention.yaml"
    params:
        arithmetic=ARITHMETIC,
        code=code("scores"),
    script:
        "../scripts/scores.py"


rule weights:
    input:
        parameters="results/{suite}/parameters",
        scores="results/{suite}/scores",
    output:
        directory("results/{suite}/weights"),
    log:
        "results/logs/{suite}/weights.log",
    conda:
        "../../envs/attention.yaml"
    params:
        arithmetic=ARITHMETIC,
        code=code("weights"),
    script:
        "../scripts/weights.py"


rule contexts:
    input:
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        weights="results/{suite}/weights",
    output:
        directory("results/{suite}/contexts"),
    log:
        "results/logs/{suite}/contexts.log",
    conda:
        "../../envs/attention.yaml"
    params:
        arithmetic=ARITHMETIC,
        code=code("contexts"),
    script:
        "../scripts/contexts.py"


rule outputs:
    input:
        parameters="results/{suite}/parameters",
        contexts="results/{suite}/contexts",
    output:
        directory("results/{suite}/outputs"),
    log:
        "results/logs/{suite}/outputs.log",
    conda:
        "../../envs/attention.yaml"
    params:
        arithmetic=ARITHMETIC,
        code=code("outputs"),
    script:
        "../scripts/outputs.py"


rule backward:
    input:
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
    output:
        directory("results/{suite}/backward"),
    log:
        "results/logs/{suite}/backward.log",
    conda:
        "../../envs/attention.yaml"
    params:
        arithmetic=ARITHMETIC,
        code=code("backward"),
    script:
        "../scripts/backward.py"
