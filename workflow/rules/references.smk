"""What others compute from the same parameters, and how far it is from ours.

In: a suite's parameters and stages. Out: references/{library} (arrays by reference and case) and comparison/{case}.json.
A library that is not installed has no job; the comparison says so.
"""

from worked_attention.references.registry import LIBRARIES, present

PRESENT = present()
COMPARED = [suite for suite in SUITES if SUITES[suite]["references"] == "all"]
ASKED = {suite: PRESENT if suite in COMPARED else [] for suite in SUITES}
MISSING = {
    suite: (
        [name for name in LIBRARIES if name not in PRESENT] if suite in COMPARED else []
    )
    for suite in SUITES
}
NOT_ALWAYS = {  # folders that not every suite has
    suite: BACKWARD[suite]
    | {library: f"results/{suite}/references/{library}" for library in ASKED[suite]}
    | {name: f"results/{suite}/{name}" for name in ["truth"] if ASKED[suite]}
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
        library="|".join(LIBRARIES),
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
        missing=lambda wildcards: MISSING[wildcards.suite],
    script:
        "../scripts/comparison.py"
