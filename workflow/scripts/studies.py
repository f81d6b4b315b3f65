"""Rule studies: the studies that a suite asks for, each as a table (CSV and JSON) and a figure (SVG and PNG)."""

from functools import partial
from pathlib import Path

from worked_attention.cases.fitting import fitting, known
from worked_attention.files.artifacts import read_looked_at, read_suite
from worked_attention.files.formats import read_json
from worked_attention.files.jobs import logged
from worked_attention.studies import figures, tables
from worked_attention.studies.cases import row
from worked_attention.studies.files import write_study

with logged(snakemake.log[0]):
    source = snakemake.input
    suite, cases = read_suite(source.parameters)
    named = {case["name"]: case for case in cases}

    def array(case: dict, name: str):
        """An array of a case by "stage/array"."""
        stage, name = name.split("/")
        return read_looked_at(Path(source[stage]), case, name)

    def told(case: dict) -> dict:
        """The row of a case in results/cases.csv."""
        return row(case, array(case, "weights/weights"), read_json(Path(source.comparison, f"{case['name']}.json")))

    def write(name: str, study: str, columns: dict, rows: list[dict], figure) -> None:
        facts = {"suite": suite["name"], "study": study, "columns": columns}
        write_study(Path(snakemake.output[0], name), facts, rows, figure, snakemake.params.looks["dpi"])

    for study in suite["studies"]:
        if isinstance(study, dict):
            axes = study["columns"]
            rows = tables.columns(cases, axes, list(map(told, cases)))
            columns = {"case": "name"} | {name: known(named)[name] for name in axes.values()}
            write(tables.called(axes), "columns", columns, rows, figures.columns(rows, axes))
            continue
        chosen = fitting(study, named)
        draw = getattr(figures, study)
        match study:
            case "costs":
                rows = tables.costs(chosen)
            case "permutation":
                rows = tables.permutation(chosen, array, named)
            case "reach":
                rows, drawn = tables.reach(chosen, array)
                draw = partial(draw, drawn=drawn)
            case _:
                rows = getattr(tables, study)(chosen, array)
        write(study, study, tables.COLUMNS[study], rows, draw(rows))
