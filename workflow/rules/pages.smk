"""Pages that show every multiply-add: in words, formulas and numbers, for people.

All stages of a suite and its comparison -> pages/{case}.html, which needs no network and no script, and pages/{case}.md, the same as text.

Cases that config/questions.yaml names -> results/questions/{question}.html and .md, short pages that answer with their numbers.

All comparisons -> results/index.html, the front page.

One job per suite. Of a case larger than 8 tokens by 8 features the page tells the first query. Snakemake's report has all pages if it
is a .zip, which packs them to below 10 MB; in one .html, which does not, they would take six times that, so it has those of short suites.
"""

FEW = 8  # cases of a short suite
PACKED = any(argument.endswith(".zip") for argument in sys.argv)
SHORT = sorted(
    name for name, suite in plan.suites.items() if PACKED or len(suite["cases"]) <= FEW
)
TEMPLATES = [
    "workflow/report/base.html.jinja2",
    "workflow/report/blocks.html.jinja2",
    "workflow/report/style.css",
]
if plan.config["language"] != "en":
    TEMPLATES.append(
        f"workflow/scripts/worked_attention/pages/locale/{plan.config['language']}/LC_MESSAGES/pages.po"
    )
PAGE = "workflow/report/page.html.jinja2"
QUESTION = "workflow/report/question.html.jinja2"
FRONT_PAGE = "workflow/report/index.html.jinja2"
ELSEWHERE = ["conformance.svg", "power.csv", "onnx_node_tests/verdicts.txt"]


rule pages:
    input:
        unpack(lambda wildcards: plan.backward(wildcards.suite)),
        parameters="results/{suite}/parameters",
        projections="results/{suite}/projections",
        scores="results/{suite}/scores",
        weights="results/{suite}/weights",
        contexts="results/{suite}/contexts",
        outputs="results/{suite}/outputs",
        comparison="results/{suite}/comparison",
        template=ancient(PAGE),
    output:
        directory("results/{suite}/pages"),
    log:
        "results/logs/{suite}/pages.log",
    wildcard_constraints:
        suite="|".join(sorted(set(plan.suites) - set(SHORT))) or "-",
    conda:
        "../../envs/attention.yaml"
    params:
        digits=plan.config["looks"]["digits"],
        language=plan.config["language"],
        home=f"{plan.home}/index.html".replace("results", "../.."),
        code=code("pages", PAGE, *TEMPLATES),
    script:
        "../scripts/pages.py"


use rule pages as reported_pages with:
    output:
        report(
            directory("results/{suite}/pages"),
            patterns=["{case}.html"],
            caption="../report/pages.rst",
            category="Pages",
            subcategory="{suite}",
            labels=lambda wildcards: {
                "case": plan.suites[wildcards.suite]["cases"][wildcards.case]["title"]
            },
        ),
    wildcard_constraints:
        suite="|".join(SHORT) or "-",


READS = "worked_attention/cases/questions.py"  # of `cases` what reads the questions; what else is said there is among the params


rule questions:
    input:
        stages=[folder for suite in plan.asked_of for folder in plan.folders(suite)],
        comparisons=expand("results/{suite}/comparison", suite=plan.asked_of),
        suites=ancient(expand("config/suites/{suite}.yaml", suite=plan.asked_of)),
        counted=ancient("config/counted.yaml"),
        template=ancient(QUESTION),
    output:
        report(
            directory("results/questions"),
            patterns=["{question}.html"],
            caption="../report/questions.rst",
            category="Questions",
            labels=lambda wildcards: {
                "question": plan.answered[wildcards.question]["title"]
            },
        ),
    log:
        "results/logs/questions.log",
    conda:
        "../../envs/attention.yaml"
    params:
        digits=plan.config["looks"]["digits"],
        language=plan.config["language"],
        questions=plan.answered,
        counts=plan.counted_digest,
        refusals=plan.refusals,
        code=code("questions", QUESTION, *TEMPLATES, READS, without="cases"),
    script:
        "../scripts/questions.py"


rule front_page:
    input:
        questions=["results/questions"] if plan.answered else [],
        summary=f"{plan.place}/summary.json",
        cases=f"{plan.place}/cases.csv",
        environment=f"{plan.place}/environment.json",
        parameters=expand("results/{suite}/parameters", suite=plan.suites),
        weights=expand("results/{suite}/weights", suite=plan.suites),
        comparisons=expand("results/{suite}/comparison", suite=plan.suites),
        pages=expand("results/{suite}/pages", suite=plan.suites),
        studies=expand("results/studies/{suite}/exact", suite=plan.studied),
        citation=ancient("CITATION.cff"),
        template=ancient(FRONT_PAGE),
    output:
        report(
            f"{plan.place}/index.html",
            caption="../report/front.rst",
            category="Front page",
        ),
    log:
        "results/logs/front_page.log",
    localrule: True
    conda:
        "../../envs/attention.yaml"
    params:
        language=plan.config["language"],
        beside={name: path for name in ELSEWHERE for path in plan.made(name)},
        questions={n: q["title"] for n, q in plan.answered.items()},
        unanswered={
            q["title"]: q["missing"] for q in plan.questions.values() if q["missing"]
        },
        code=code("front_page", FRONT_PAGE, "CITATION.cff", *TEMPLATES),
    script:
        "../scripts/front_page.py"
