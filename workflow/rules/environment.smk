"""What made the numbers: packages, machine, libraries, variables, git. In: the pinned requirements. Out: environment.json.

It is written anew when a package, one of the variables or the state of git changes. What only torch knows of itself was noted by the job
of the first suite that is compared with it, for to import torch takes as long as that job.
"""

from worked_attention.files.environment import digest, git_state, installed, variables

LOCK = "envs/requirements.txt"


rule environment:
    input:
        lock=ancient(LOCK),
        torch=plan.noted,
    output:
        f"{plan.place}/environment.json",
    log:
        "results/logs/environment.log",
    conda:
        "../../envs/attention.yaml"
    params:
        installed=digest(installed()),
        variables=variables(),
        git=git_state(Path()),
        code=code("environment", LOCK),
    script:
        "../scripts/environment.py"
