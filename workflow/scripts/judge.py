"""Rule judge: a verdict on each case that somebody sent, as JSON, as a page and as a table; the job fails if one is a fault."""

import sys
from pathlib import Path

from worked_attention.cases.escapes import printable
from worked_attention.cases.suites import load_suite
from worked_attention.files.formats import write_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.pages.language import speak
from worked_attention.pages.render import renderer
from worked_attention.referee.outcome import WORDS, objection
from worked_attention.referee.report import judge_all, table
from worked_attention.referee.submissions import Submission, Unreadable


def without(suite: dict, cases: list[str]) -> dict:
    """A suite without `cases`, suite/case."""
    return suite | {"cases": {name: case for name, case in suite["cases"].items() if f"{suite['name']}/{name}" not in cases}}


sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
path, folder = snakemake.params.submission, Path("config/suites")
with logged(snakemake.log[0]):
    if not path:
        sys.exit("Error: which submission? Say `snakemake --cores 1 judge --config submission=PATH`, a folder or a Python file")
    speak(snakemake.params.language)
    said = []
    submission = verdict = None
    loaded = {name: load_suite(folder / f"{name}.yaml", snakemake.params.limits) for name in snakemake.params.suites}
    large = [f"{suite}/{name}" for suite in loaded for name, case in loaded[suite]["cases"].items() if case["sample"]]
    suites = {suite: found for suite in loaded if (found := without(loaded[suite], large))["cases"]}
    if large:
        said.append(f"Not judged, for of cases larger than limits.max_whole_mb a sample of rows is looked at: {', '.join(large)}")
    if not suites:
        sys.exit(f"Error: {said[0]}; raise the limit to judge them")
    try:
        submission = Submission(Path(path), suites, dict.fromkeys(suites, folder), large)
        verdict = judge_all(submission, suites, contract=snakemake.params.contract, digits=snakemake.params.digits)
    except Unreadable as error:
        said.append(f"Error: submission {path}: {error}")
    results = Path("results/judge") / submission.name if submission else None
    if submission and submission.output:
        write_text(results / "output.txt", submission.output)
        said.append(f"What it printed: {results.as_posix()}/output.txt")
    if not verdict:
        sys.exit(printable("; ".join(said)))
    write_json(results / "verdict.json", verdict)
    write_text(results / "verdict.html", renderer(snakemake.input.template)(verdict=verdict, words=WORDS))
    said.append(f"The whole of it: {results.as_posix()}/verdict.json and verdict.html")
    print("\n" + table(verdict) + "\n".join(said), flush=True)
    against = objection(verdict["counts"], ("convention", "unsupported"))
    if against and not snakemake.params.keep_going:
        sys.exit(f"Error: submission {path}: {against}; `--config keep_going=true` ends without an error all the same")
