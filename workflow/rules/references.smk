"""What others compute from the same parameters, and how far it is from ours.

In: a suite's parameters and stages. Out: references/{library}/{name}.npz, and comparison/{case}.json.
A library that is not installed has no job; the comparison says so. The adapters of a suite's references count as code of their own
jobs alone, and so do the versions of their packages and the variables that change last bits.
"""

from worked_attention.files.environment import variables


rule reference:
    input:
        parameters="results/{suite}/parameters",
    output:
        directory("results/{suite}/references/{library}"),
    log:
        "results/logs/{suite}/reference_{library}.log",
    wildcard_constraints:
        library="|".join(plan.present),
    conda:
        "../../envs/attention.yaml"
    params:
        names=lambda wildcards: plan.asked(wildcards.suite, wildcards.library),
        versions=lambda wildcards: plan.versions(wildcards.library),
        variables=variables(),
        code=lambda wildcards: code(
            "reference", *plan.adapters(wildcards.suite, wildcards.library)
        ),
    script:
        "../scripts/reference.py"


rule comparison:
    input:
        unpack(lambda wildcards: plan.beside(wildcards.suite)),
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
    output:
        directory("results/{suite}/comparison"),
    log:
        "results/logs/{suite}/comparison.log",
    conda:
        "../../envs/attention.yaml"
    params:
        gates=plan.config["gates"],
        references=lambda wildcards: plan.references(wildcards.suite),
        code=code("comparison"),
    script:
        "../scripts/comparison.py"
