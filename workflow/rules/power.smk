"""Which known mistake is caught by which case: `snakemake --cores 1 power`. It is not built by default.

all suites -> power.json, power.csv
"""


rule power:
    input:
        suites=expand("config/suites/{suite}.yaml", suite=SUITES),
        files=sorted({file for suite in SUITES.values() for file in suite["files"]}),
        schema="workflow/scripts/worked_attention/schemas/suite.schema.yaml",
        code=modules("power"),
    output:
        json="results/power.json",
        csv="results/power.csv",
    log:
        "results/logs/power.log",
    conda:
        "../../envs/attention.yaml"
    params:
        suites=list(SUITES),
        limits=config["limits"],
    script:
        "../scripts/power.py"
