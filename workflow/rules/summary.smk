"""All suites at a glance, and the last word: a table on the terminal, and an error if a comparison failed.

In: the comparisons, cases and weights. Out: summary.json, summary.txt, a row for every case in cases.csv and cases.json, and verdict.txt, which exists only if every comparison passed.
They stand in results/; those of a run of some suites (`--config 'suites=[...]'`) in results/some-suites/, beside and not in place of them.
"""


rule summary:
    input:
        parameters=expand("results/{suite}/parameters", suite=plan.suites),
        weights=expand("results/{suite}/weights", suite=plan.suites),
        comparisons=expand("results/{suite}/comparison", suite=plan.suites),
    output:
        json=f"{plan.place}/summary.json",
        text=f"{plan.place}/summary.txt",
        cases=f"{plan.place}/cases.json",
        spreadsheet=f"{plan.place}/cases.csv",
    log:
        "results/logs/summary.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        code=code("summary", COLUMNS, without="cases"),
    script:
        "../scripts/summary.py"


rule verdict:
    input:
        json=f"{plan.place}/summary.json",
        text=f"{plan.place}/summary.txt",
        environment=f"{plan.place}/environment.json",
        figures=expand("results/{suite}/figures", suite=plan.drawn),
        front_page=f"{plan.place}/index.html",
    output:
        f"{plan.place}/verdict.txt",
    log:
        "results/logs/verdict.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        code=code("verdict"),
    script:
        "../scripts/verdict.py"
