"""What others compute from the same parameters, and how far it is from ours.

In: a suite's parameters and stages. Out: references/{library} (arrays by reference and case) and comparison/{case}.json.
"""

COMPARED = [suite for suite in SUITES if SUITES[suite]["references"] == "all"]


rule reference:
    input:
        parameters="results/{suite}/parameters",
        code=modules("reference"),
    output:
        directory("results/{suite}/references/{library}"),
    log:
        "results/logs/{suite}/reference_{library}.log",
    wildcard_constraints:
        library="torch",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/reference.py"


def if_wanted(wildcards):
    """Folders that not every suite has."""
    folder = f"results/{wildcards.suite}"
    gradients = (
        {"backward": f"{folder}/backward"} if wildcards.suite in GRADIENTS else {}
    )
    torch = (
        {"torch": f"{folder}/references/torch"} if wildcards.suite in COMPARED else {}
    )
    return gradients | torch


rule comparison:
    input:
        unpack(if_wanted),
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
        code=modules("comparison"),
    output:
        directory("results/{suite}/comparison"),
    log:
        "results/logs/{suite}/comparison.log",
    conda:
        "../../envs/attention.yaml"
    params:
        gates=config["gates"],
    script:
        "../scripts/comparison.py"
