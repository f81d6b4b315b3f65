"""Who does what: cases x implementations, and what each makes of a query that sees no key.

In: the comparisons, and the versions in environment.json. Out: conformance.json, .csv and .svg.
"""


rule conformance:
    input:
        comparisons=expand("results/{suite}/comparison", suite=COMPARED),
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
    script:
        "../scripts/conformance.py"
