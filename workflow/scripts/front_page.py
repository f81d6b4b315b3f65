"""Rule front_page: index.html, which leads to everything that was made."""

import os
from pathlib import Path

import yaml

from worked_attention.files.artifacts import read_looked_at, read_suite
from worked_attention.files.formats import read_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.pages.front import front_sections
from worked_attention.pages.language import N_, _, speak
from worked_attention.pages.render import renderer

THUMBNAIL = 16  # tokens of a map that is drawn small
ELSEWHERE = {  # what other targets may have made
    "conformance.svg": N_("who does what with each case in each dtype"),
    "power.csv": N_("which mistake is caught by which case"),
    "onnx_node_tests/verdicts.txt": N_("ONNX's own tests"),
}

with logged(snakemake.log[0]):
    speak(snakemake.params.language)
    source, here = snakemake.input, Path(snakemake.output[0]).parent

    def address(path: str | Path) -> str:
        """A file, seen from where the front page lies."""
        return Path(os.path.relpath(path, here)).as_posix()

    def paged(entry: dict, suite: str, case: str) -> dict:
        """`entry` with the address of its case's page."""
        return {**entry, "page": address(f"results/{suite}/pages/{case}.html")}

    def comparison_of(path: Path) -> dict:
        """What the page says of a comparison, without its arrays, for those of all cases together are large."""
        found = read_json(path)
        told = {name: {k: v for k, v in result.items() if k != "arrays"} for name, result in found["references"].items()}
        return {"claims": found["claims"], "first_divergence": found["first_divergence"], "references": told}

    suites = []
    for parameters, weights, comparison in zip(source.parameters, source.weights, source.comparisons, strict=True):
        suite, cases = read_suite(parameters)
        told = [
            {"name": case["name"], "title": case["title"], "comparison": comparison_of(Path(comparison, f"{case['name']}.json"))}
            for case in cases
        ]
        first = read_looked_at(Path(weights), cases[0], "weights").astype(float)
        small = first.reshape(-1, *first.shape[-2:])[0][:THUMBNAIL, :THUMBNAIL]
        suites.append({**suite, "cases": [paged(case, suite["name"], case["name"]) for case in told], "thumbnail": small})
    summary, environment = read_json(source.summary), read_json(source.environment)
    errata, failures = ([paged(entry, entry["suite"], entry["case"]) for entry in summary[key]] for key in ("errata", "failures"))
    studies = [address(path) for folder in source.studies for path in sorted(Path(folder).glob("*.csv"))]
    always = {
        _("all counts"): source.summary,
        _("a row for every case"): source.cases,
        _("machine and packages"): source.environment,
        _("what lies where"): "results/README.md",
    }
    beside = always | {_(ELSEWHERE[name]): path for name, path in snakemake.params.beside.items()}
    more = [(words, address(path)) for words, path in beside.items()]
    citation = yaml.safe_load(Path(source.citation).read_text("utf-8"))
    questions = [(title, address(f"results/questions/{name}.html")) for name, title in snakemake.params.questions.items()]
    sections = front_sections(suites, errata, failures, environment, studies, more, questions, snakemake.params.unanswered)
    write_text(Path(snakemake.output[0]), renderer(source.template)(sections=sections, suites=suites, citation=citation))
