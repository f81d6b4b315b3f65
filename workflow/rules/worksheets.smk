"""Worksheets, and the answers that come back: for a class that works a case by hand.

A case -> worksheets/{suite}/{case}/: sheet_NN and key_NN as .html and .md, answers_NN.csv to be filled in, sheets.html with all of them.
`snakemake --cores 1 worksheets --config case=handworked/two_heads sheets=30`

Answer sheets that were filled in -> grades/{path}.csv and a line for each. `snakemake --cores 1 grade --config answers=PATH`

There is no declared output: which case and how many is said anew each time, and what lies at PATH is not ours.
"""


rule worksheets:
    input:
        template="workflow/report/worksheet.html.jinja2",
        templates=TEMPLATES,
    log:
        "results/logs/worksheets.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        case=plan.config["case"],
        sheets=plan.config["sheets"],
        options=plan.config["worksheet"],
        digits=plan.config["looks"]["digits"],
        language=plan.config["language"],
        limits=plan.config["limits"],
    script:
        "../scripts/worksheets.py"


rule grade:
    log:
        "results/logs/grade.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        answers=plan.config["answers"],
    script:
        "../scripts/grade.py"
