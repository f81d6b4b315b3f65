"""Who does what: cases x implementations x dtypes, and what each makes of a query that sees no key. Not built by default.

In: a suite's parameters. Out: {suite}/conformance/{library}.json, and of all suites, with the versions in environment.json,
conformance.json, .csv and .svg.
"""

from worked_attention.cases.columns import libraries


rule conformance_suite:
    input:
        parameters="results/{suite}/parameters",
    output:
        "results/{suite}/conformance/{library}.json",
    log:
        "results/logs/{suite}/conformance_{library}.log",
    wildcard_constraints:
        library="|".join(plan.present),
    conda:
        "../../envs/attention.yaml"
    params:
        gates=plan.config["gates"],
        names=lambda wildcards: plan.asked(wildcards.suite, wildcards.library),
        code=lambda wildcards: code(
            "conformance_suite", *plan.adapters(wildcards.suite, wildcards.library)
        ),
    script:
        "../scripts/conformance_suite.py"


rule conformance:
    input:
        cells=[
            f"results/{suite}/conformance/{library}.json"
            for suite, library in plan.pairs
        ],
        environment=f"{plan.place}/environment.json",
    output:
        json=f"{plan.place}/conformance.json",
        csv=f"{plan.place}/conformance.csv",
        svg=f"{plan.place}/conformance.svg",
    log:
        "results/logs/conformance.log",
    conda:
        "../../envs/attention.yaml"
    params:
        suites=plan.compared,
        libraries=libraries(),
        code=code("conformance"),
    script:
        "../scripts/conformance.py"
