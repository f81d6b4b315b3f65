"""What several cases of one suite show together: a table and a figure for each study that the suite asks for.

parameters, scores, weights, outputs, comparison -> studies/{suite}/exact/{study}.csv, .json, .svg and .png
parameters -> studies/{suite}/measured/costs.* (seconds; only `snakemake --cores 1 measured` asks for it)

One job per suite; suites without `studies` have no such job.
"""

COLUMNS = "worked_attention/cases/columns.py"  # the one module of `cases` that says what tables hold


rule studies:
    input:
        parameters="results/{suite}/parameters",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        outputs="results/{suite}/outputs",
        comparison="results/{suite}/comparison",
    output:
        report(
            directory("results/studies/{suite}/exact"),
            patterns=["{study}.svg"],
            caption="../report/studies.rst",
            category="Studies",
            subcategory="{suite}",
            labels={"study": "{study}"},
        ),
    log:
        "results/logs/{suite}/studies.log",
    conda:
        "../../envs/attention.yaml"
    params:
        looks=plan.config["looks"],
        code=code("studies", COLUMNS, without="cases"),
    script:
        "../scripts/studies.py"


rule measured_costs:
    input:
        parameters="results/{suite}/parameters",
    output:
        directory("results/studies/{suite}/measured"),
    log:
        "results/logs/{suite}/measured_costs.log",
    conda:
        "../../envs/attention.yaml"
    params:
        looks=plan.config["looks"],
        code=code("measured_costs"),
    script:
        "../scripts/measured_costs.py"


rule measured:
    input:
        expand("results/studies/{suite}/measured", suite=plan.timed),
