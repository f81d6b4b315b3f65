"""All suites at a glance, and the last word: a table on the terminal, and an error if a comparison failed.

In: the comparisons. Out: summary.json, summary.html, summary.txt, and verdict.txt, which exists only if every comparison passed.
"""


rule summary:
    input:
        comparisons=expand("results/{suite}/comparison", suite=SUITES),
        template="workflow/report/summary.html.jinja2",
        code=modules("summary"),
    output:
        json="results/summary.json",
        html=report(
            "results/summary.html",
            caption="../report/summary.rst",
            category="Summary",
        ),
        text="results/summary.txt",
    log:
        "results/logs/summary.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/summary.py"


rule verdict:
    input:
        json="results/summary.json",
        text="results/summary.txt",
        environment="results/environment.json",
        figures=expand("results/{suite}/figures", suite=DRAWN),
        studies=expand("results/studies/{suite}/exact", suite=STUDIED),
        code=modules("verdict"),
    output:
        "results/verdict.txt",
    log:
        "results/logs/verdict.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/verdict.py"
