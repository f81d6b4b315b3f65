"""Who does what: cases x implementations x dtypes, and what each makes of a query that sees no key. Not built by default.

In: a suite's parameters. Out: {suite}/conformance/{library}.json, and of all suites, with the versions in environment.json,
conformance.json, .csv and .svg.
"""


rule conformance_suite:
    input:
        parameters="results/{suite}/parameters",
        code=modules("conformance_suite"),
    output:
        "results/{suite}/conformance/{library}.json",
    log:
        "results/logs/{suite}/conformance_{library}.log",
    wildcard_constraints:
        library="|".join(LIBRARIES),
    conda:
        "../../envs/attention.yaml"
    params:
        gates=config["gates"],
    script:
        "../scripts/conformance_suite.py"


rule conformance:
    input:
        cells=expand(
            "results/{suite}/conformance/{library}.json",
            suite=COMPARED,
            library=PRESENT,
        ),
        environment="results/environment.json",
        code=modules("conformance"),
    output:
        json="results/conformance.json",
        csv="results/conformance.csv",
        svg="results/conformance.svg",
    log:
        "results/logs/conformance.log",
    conda:
        "../../envs/attention.yaml"
    params:
        suites=COMPARED,
    script:
        "../scripts/conformance.py"
