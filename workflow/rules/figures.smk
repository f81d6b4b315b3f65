"""What people look at: each case's scaled scores and weights, or what `looks.stages` names, and a suite's weights at a glance.

parameters, scores, weights (and the stages that are drawn besides) -> figures/{case}.svg and .png, overview.svg and .png

One job per suite; suites with `figures: none` have no such job.
"""


rule figures:
    input:
        unpack(
            lambda wildcards: {
                stage: f"results/{wildcards.suite}/{stage}"
                for stage in plan.config["looks"]["stages"]
                if stage not in ("scores", "weights")
            }
        ),
        parameters="results/{suite}/parameters",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
    output:
        figures=directory("results/{suite}/figures"),
        overview=report(
            "results/{suite}/overview.svg",
            caption="../report/overview.rst",
            category="Figures",
            subcategory="{suite}",
            labels={"case": "all at a glance"},
        ),
        overview_png="results/{suite}/overview.png",
    log:
        "results/logs/{suite}/figures.log",
    conda:
        "../../envs/attention.yaml"
    params:
        looks=plan.config["looks"],
        code=code("figures"),
    script:
        "../scripts/figures.py"
