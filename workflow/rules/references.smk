"""What others compute from the same parameters, and how far it is from ours.

In: a suite's parameters and stages. Out: references/{library} (arrays by reference and case) and comparison/{case}.json.
"""


rule reference:
    input:
        parameters="results/{suite}/parameters",
        code=[
            *STAGE,
            "workflow/scripts/references/__init__.py",
            "workflow/scripts/references/torch_manual.py",
            "workflow/scripts/references/torch_mha.py",
            "workflow/scripts/references/torch_sdpa.py",
            "workflow/scripts/references/torch_tools.py",
        ],
    output:
        directory("results/{suite}/references/{library}"),
    log:
        "results/logs/{suite}/reference_{library}.log",
    wildcard_constraints:
        library="torch",
    conda:
        "../../envs/attention.yaml"
    script:
        "../scripts/reference.py"


rule comparison:
    input:
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
        torch="results/{suite}/references/torch",
        code=[
            *STAGE,
            "workflow/scripts/compare.py",
            "workflow/scripts/references/__init__.py",
        ],
    output:
        directory("results/{suite}/comparison"),
    log:
        "results/logs/{suite}/comparison.log",
    conda:
        "../../envs/attention.yaml"
    params:
        gates=config["gates"],
    script:
        "../scripts/comparison.py"
