"""Rule questions: a short page for each question, in HTML and in Markdown, with the numbers of the cases that it names."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from worked_attention.cases.questions import Place, load_counted, places
from worked_attention.files.artifacts import read_case
from worked_attention.files.formats import read_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.pages.case_page import printed_numbers
from worked_attention.pages.language import speak
from worked_attention.pages.markdown import markdown
from worked_attention.pages.questions import Sources, question_sections
from worked_attention.pages.render import renderer
from worked_attention.pages.work import Work
from worked_attention.referee.outcome import says
from worked_attention.referee.report import judge_all
from worked_attention.referee.submissions import Submission
from worked_attention.stages.rows import looked_at

RESULTS, SUITES = Path("results"), Path("config/suites")


@cache
def comparison(suite: str, case: str) -> dict:
    """What others make of a case."""
    return read_json(RESULTS / suite / "comparison" / f"{case}.json")


@cache
def work(suite: str, name: str) -> Work:
    """A case laid open."""
    case = read_json(RESULTS / suite / "parameters" / name / "case.json")
    arrays = read_case([RESULTS / suite / stage for stage, names in case["arrays"].items() if names], case, case["sample"])
    return Work(looked_at(case), arrays, printed_numbers(comparison(suite, name)["claims"]), snakemake.params.digits)


def judged(code: str, of: Place) -> str:
    """What the judge says of a Python file, asked for one case."""
    alone = {of.suite: {"cases": {of.case: work(of.suite, of.case).case}}}
    with TemporaryDirectory() as folder:
        path = Path(folder, "mine.py")
        path.write_text(code, "utf-8")
        verdict = judge_all(Submission(path, alone, {of.suite: SUITES}), alone)["cases"][f"{of.suite}/{of.case}"]
    return f"{of.suite}/{of.case}: {verdict['verdict']}; {says(verdict, 4)}"


with logged(snakemake.log[0]):
    speak(snakemake.params.language)
    output, questions = Path(snakemake.output[0]), snakemake.params.questions
    render = renderer(snakemake.input.template)
    sources = Sources(work, load_counted(Path(snakemake.input.counted))["cases"], comparison, snakemake.params.refusals.__getitem__, judged)
    names = list(questions)
    for before, name, after in zip([None, *names], names, [*names[1:], None], strict=False):
        question = questions[name] | {"name": name, "places": [p for block in questions[name]["blocks"] for p in places(block)]}
        sections = question_sections(question, sources)
        write_text(output / f"{name}.html", render(question=question, sections=sections, before=before, after=after))
        write_text(output / f"{name}.md", markdown(question["title"], "", sections))
