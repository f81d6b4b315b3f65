"""Rule studies: the studies that a suite asks for, each as a table (CSV and JSON) and a figure (SVG and PNG)."""

from functools import partial
from pathlib import Path

from worked_attention.cases.fitting import fitting
from worked_attention.files.artifacts import logged, read_array, read_suite
from worked_attention.studies import figures, tables
from worked_attention.studies.files import write_study

with logged(snakemake.log[0]):
    source = snakemake.input
    suite, cases = read_suite(source.parameters)
    named = {case["name"]: case for case in cases}

    def array(case: dict, name: str):
        """An array of a case by "stage/array"."""
        stage, name = name.split("/")
        return read_array(Path(source[stage], case["name"], f"{name}.npy"))

    for study in suite["studies"]:
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
        facts = {"suite": suite["name"], "study": study, "columns": tables.COLUMNS[study]}
        write_study(Path(snakemake.output[0], study), facts, rows, draw(rows), snakemake.params.looks["dpi"])
