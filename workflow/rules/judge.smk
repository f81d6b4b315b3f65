"""What somebody else computed, judged: `snakemake --cores 1 judge --config submission=PATH`. Nothing is judged by default.

The job fails if a case is wrong, failed, unreadable or undecided, or if nothing was judged.

PATH, a folder {suite}/{case}/{array}.npy or a Python file -> judge/{submission}/verdict.json and verdict.html, output.txt (what it printed), and a table

There is no declared output, so that the judge looks anew each time: what lies at PATH is not ours.
"""


rule judge:
    input:
        template="workflow/report/judge.html.jinja2",
        templates=TEMPLATES,
    log:
        "results/logs/judge.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        language=plan.config["language"],
        submission=plan.config["submission"],
        contract=plan.config["contract"],
        digits=plan.config["digits"] if plan.config["digits"] != "all" else None,
        suites=list(plan.suites),
        limits=plan.config["limits"],
        keep_going=plan.config["keep_going"],
    script:
        "../scripts/judge.py"
