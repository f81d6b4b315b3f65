"""What others compute from the same parameters, and how far it is from ours.

In: a suite's parameters and stages. Out: references/{library} (arrays by reference and case) and comparison/{case}.json.
"""

COMPARED = [suite for suite in SUITES if SUITES[suite]["references"] == "all"]
NOT_ALWAYS = {  # folders that not every suite has
    suite: {
        name: f"results/{suite}/{folder}"
        for name, folder, wanted in (
            ("backward", "backward", suite in GRADIENTS),
            ("torch", "references/torch", suite in COMPARED),
        )
        if wanted
    }
    for suite in SUITES
}


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


rule comparison:
    input:
        unpack(lambda wildcards: NOT_ALWAYS[wildcards.suite]),
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
