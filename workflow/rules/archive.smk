"""The current state in one zip, and the check of such a zip. Neither is built by default.

archive: suites, config, stages, references, comparisons, figures, environment -> archive/{digest}.zip
verify:  the zip that `--config archive=PATH` names -> what is wrong with it
"""


rule archive:
    input:
        config="config/config.yaml",
        suites=expand("config/suites/{suite}.yaml", suite=SUITES),
        files=sorted({file for suite in SUITES.values() for file in suite["files"]}),
        summary="results/summary.json",
        verdict="results/verdict.txt",
        environment="results/environment.json",
        numbers=expand(
            "results/{suite}/{stage}",
            suite=SUITES,
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
        references=[folder for suite in SUITES for folder in NOT_ALWAYS[suite].values()],
        studies=expand("results/studies/{suite}/exact", suite=STUDIED),
        figures=expand("results/{suite}/figures", suite=DRAWN),
        overviews=expand(
            "results/{suite}/overview.{kind}", suite=DRAWN, kind=["svg", "png"]
        ),
        code=modules("archive"),
    log:
        "results/logs/archive.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        config={
            "suites": list(SUITES),
            "gates": config["gates"],
            "limits": config["limits"],
        },
        looks=config["looks"],
    script:
        "../scripts/archive.py"


rule verify:
    input:
        code=modules("verify"),
    log:
        "results/logs/verify.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        archive=config["archive"],
    script:
        "../scripts/verify.py"
