"""The current state in one zip, and the check of such a zip. Neither is built by default.

archive: suites, config, stages, references, comparisons, figures, environment -> archive/{digest}.zip
verify:  the zip that `--config archive=PATH` names -> what is wrong with it
"""


rule archive:
    input:
        config="config/config.yaml",
        suites=expand("config/suites/{suite}.yaml", suite=plan.suites),
        arrays=plan.files,
        summary=f"{plan.place}/summary.json",
        verdict=f"{plan.place}/verdict.txt",
        environment=f"{plan.place}/environment.json",
        numbers=expand(
            "results/{suite}/{stage}",
            suite=plan.suites,
            stage=[
                "parameters",
                "projections",
                "scores",
                "weights",
                "contexts",
                "outputs",
                "comparison",
            ],
        ),
        beside=[
            folder for suite in plan.suites for folder in plan.beside(suite).values()
        ],
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
        config={
            "suites": list(plan.suites),
            "gates": plan.config["gates"],
            "limits": plan.config["limits"],
        },
        looks=plan.config["looks"],
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
