"""Which known mistake is caught by which case: `snakemake --cores 1 power`. It is not built by default.

all suites -> power.json, power.csv
"""


rule power:
    input:
        suites=ancient(expand("config/suites/{suite}.yaml", suite=plan.suites)),
        arrays=ancient(plan.files),
    output:
        json=f"{plan.place}/power.json",
        csv=f"{plan.place}/power.csv",
    log:
        "results/logs/power.log",
    conda:
        "../../envs/attention.yaml"
    params:
        suites={
            suite: plan.digests[suite]
            for suite in plan.suites
            if suite not in plan.sampled
        },
        code=code("power", without="cases"),
    script:
        "../scripts/power.py"
