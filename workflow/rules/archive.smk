"""The current state in one zip, the check of such a zip, and its numbers held against new ones. None of it is built by default.

archive:   suites, config, sources and everything that the run made -> archive/{suites}-{date of the commit}-{digest}.zip
verify:    the zip that `--config archive=PATH` names -> what is wrong with it
reproduce: the same -> reproduce/{name}/reproduction.json and .html, its arrays against those that its suites give here
compare:   the two zips of `--config 'archives=[A,B]'` -> compare/{A}--{B}/comparison.json and .html

Only the first has inputs of ours, and none a declared output: what lies at a PATH is not ours, and what an archive is called follows from
what it holds.
"""

AGREEMENT = "workflow/report/agreement.html.jinja2"


rule archive:
    input:
        glance=expand(
            f"{plan.place}/{{file}}",
            file=[
                "summary.json",
                "summary.txt",
                "cases.json",
                "cases.csv",
                "verdict.txt",
                "index.html",
                "environment.json",
            ],
        ),
        config=expand(
            "config/{file}.yaml",
            file=[
                "config",
                "questions",
                "counted",
                *(f"suites/{suite}" for suite in plan.suites),
            ],
        ),
        arrays=plan.files,
        pins=sorted(Path("envs").glob("requirements*.txt")),
        numbers=[folder for suite in plan.suites for folder in plan.folders(suite)],
        beside=[
            folder for suite in plan.suites for folder in plan.beside(suite).values()
        ],
        comparisons=expand("results/{suite}/comparison", suite=plan.suites),
        pages=expand("results/{suite}/pages", suite=plan.suites),
        questions=["results/questions"] if plan.answered else [],
        studies=expand("results/studies/{suite}/exact", suite=plan.studied),
        figures=expand("results/{suite}/figures", suite=plan.drawn),
        overviews=expand(
            "results/{suite}/overview.{kind}", suite=plan.drawn, kind=["svg", "png"]
        ),
    log:
        "results/logs/archive.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        config=plan.config | {"suites": list(plan.suites)},
        every=plan.every,
        references={
            suite: {
                library: plan.asked(suite, library)
                for name, library in plan.pairs
                if name == suite
            }
            for suite in plan.suites
        },
        questions=list(plan.answered),
        beside=[path for name in ELSEWHERE for path in plan.made(name)],
    script:
        "../scripts/archive.py"


rule verify:
    log:
        "results/logs/verify.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        archive=plan.config["archive"],
    script:
        "../scripts/verify.py"


rule reproduce:
    input:
        template=AGREEMENT,
        templates=TEMPLATES,
    log:
        "results/logs/reproduce.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        archive=plan.config["archive"],
        language=plan.config["language"],
        limits=plan.config["limits"],
        lock=LOCK,
        git=git_state(Path()),
    script:
        "../scripts/reproduce.py"


rule compare:
    input:
        template=AGREEMENT,
        templates=TEMPLATES,
    log:
        "results/logs/compare.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        archives=plan.config["archives"],
        language=plan.config["language"],
        limits=plan.config["limits"],
    script:
        "../scripts/compare.py"
