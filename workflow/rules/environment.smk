"""What made the numbers: packages, machine, libraries, variables, git. In: the pinned requirements. Out: environment.json.

It is written anew when a package, one of the variables or the state of git changes.
"""

from worked_attention.files.environment import digest, git_state, installed, variables


rule environment:
    input:
        lock="envs/requirements.txt",
        code=modules("environment"),
    output:
        "results/environment.json",
    log:
        "results/logs/environment.log",
    conda:
        "../../envs/attention.yaml"
    params:
        installed=digest(installed()),
        variables=variables(),
        git=git_state(Path()),
    script:
        "../scripts/environment.py"
