"""Rule pages: every case of a suite as a page that shows its multiply-adds, in HTML and in Markdown."""

from functools import cache
from pathlib import Path

from worked_attention.files.artifacts import logged, read_cases, read_json, write_text
from worked_attention.pages.case_page import case_sections, printed_numbers
from worked_attention.pages.language import speak
from worked_attention.pages.markdown import markdown
from worked_attention.pages.render import renderer
from worked_attention.pages.work import Work

with logged(snakemake.log[0]):
    speak(snakemake.params.language)
    output, digits = Path(snakemake.output[0]), snakemake.params.digits
    comparisons = Path(snakemake.input.comparison)
    render = renderer(snakemake.input.template)
    cases = {case["name"]: (case, arrays) for case, arrays in read_cases(snakemake.input)}
    names = list(cases)
    comparison = cache(lambda name: read_json(comparisons / f"{name}.json"))

    @cache
    def work(name: str) -> Work:
        """A case laid open."""
        return Work(*cases[name], printed_numbers(comparison(name)["claims"]), digits)

    for before, name, after in zip([None, *names], names, [*names[1:], None], strict=False):
        case, _ = cases[name]
        base = work(case["extends"]) if case["extends"] else None
        sections = case_sections(work(name), comparison(name), base)
        page = render(case=case, sections=sections, before=before, after=after, home=snakemake.params.home)
        write_text(output / f"{name}.html", page)
        write_text(output / f"{name}.md", markdown(case["title"], case["look"], sections))
