"""Rule pages: every case of a suite as a page that shows its multiply-adds, in HTML and in Markdown."""

from functools import lru_cache
from pathlib import Path

from worked_attention.files.artifacts import read_case, read_suite, stage_folders
from worked_attention.files.formats import read_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.pages.case_page import case_sections, printed_numbers
from worked_attention.pages.language import speak
from worked_attention.pages.markdown import markdown
from worked_attention.pages.render import renderer
from worked_attention.pages.work import Work
from worked_attention.stages.rows import looked_at

KEPT = 16  # cases that are laid open at a time: those that others extend are asked for again and again

with logged(snakemake.log[0]):
    speak(snakemake.params.language)
    output, digits = Path(snakemake.output[0]), snakemake.params.digits
    comparisons = Path(snakemake.input.comparison)
    render = renderer(snakemake.input.template)
    folders = stage_folders(snakemake.input)
    cases = {case["name"]: case for case in read_suite(snakemake.input.parameters)[1]}
    names = list(cases)

    @lru_cache(KEPT)
    def comparison(name: str) -> dict:
        """What others make of a case."""
        return read_json(comparisons / f"{name}.json")

    @lru_cache(KEPT)
    def work(name: str) -> Work:
        """A case laid open."""
        arrays = read_case(folders, cases[name], cases[name]["sample"])
        return Work(looked_at(cases[name]), arrays, printed_numbers(comparison(name)["claims"]), digits)

    for before, name, after in zip([None, *names], names, [*names[1:], None], strict=False):
        case = cases[name]
        base = work(case["extends"]) if case["extends"] else None
        sections = case_sections(work(name), comparison(name), base)
        page = render(case=case, sections=sections, before=before, after=after, home=snakemake.params.home)
        write_text(output / f"{name}.html", page)
        write_text(output / f"{name}.md", markdown(case["title"], case["look"], sections))
