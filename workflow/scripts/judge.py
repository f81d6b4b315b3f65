"""Rule judge: a verdict on each case that somebody sent, as JSON, as a page and as a table on the terminal."""

import sys
from pathlib import Path

from jinja2 import Environment

from worked_attention.cases.suites import load_suite
from worked_attention.cases.words import printable
from worked_attention.files.artifacts import logged, write_json, write_text
from worked_attention.referee.report import judge_all, table
from worked_attention.referee.submissions import Unreadable, read_submission

for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(encoding="utf-8", errors="backslashreplace")
path = snakemake.params.submission
if not path:
    sys.exit("Error: which submission? Say `snakemake --cores 1 judge --config submission=PATH`, a folder or a Python file")
folder = Path("config/suites")
with logged(snakemake.log[0]):
    suites = {name: load_suite(folder / f"{name}.yaml", snakemake.params.limits) for name in snakemake.params.suites}
    try:
        found = read_submission(Path(path), suites, folder)
    except Unreadable as error:
        found = str(error)
if isinstance(found, str):
    sys.exit(printable(f"Error: submission {path}: {found}"))
with logged(snakemake.log[0]):
    verdict = judge_all(*found, suites)
    results = Path("results/judge") / found[0].name
    write_json(results / "verdict.json", verdict)
    template = Environment(autoescape=True, trim_blocks=True).from_string(Path(snakemake.input.template).read_text("utf-8"))
    write_text(results / "verdict.html", template.render(verdict=verdict))
print(f"\n{table(verdict)}The whole of it: {results.as_posix()}/verdict.json and verdict.html", flush=True)
