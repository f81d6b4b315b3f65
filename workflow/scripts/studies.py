"""Rule studies: the studies that a suite asks for, each as a table (CSV and JSON) and a figure (SVG and PNG)."""

from functools import partial
from pathlib import Path

import study_figures
import study_tables
from artifacts import logged, read_array, read_suite
from study_cases import fitting
from study_files import write_study

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
        draw = getattr(study_figures, study)
        match study:
            case "costs":
                rows = study_tables.costs(chosen)
            case "permutation":
                rows = study_tables.permutation(chosen, array, named)
            case "reach":
                rows, drawn = study_tables.reach(chosen, array)
                draw = partial(draw, drawn=drawn)
            case _:
                rows = getattr(study_tables, study)(chosen, array)
        facts = {"suite": suite["name"], "study": study, "columns": study_tables.COLUMNS[study]}
        write_study(Path(snakemake.output[0], study), facts, rows, draw(rows), snakemake.params.looks["dpi"])
