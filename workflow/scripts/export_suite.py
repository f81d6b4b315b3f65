"""Rule export_suite: see files/golden.py."""

from pathlib import Path

from worked_attention.files.artifacts import read_cases, read_suite
from worked_attention.files.golden import export_suite
from worked_attention.files.jobs import logged

with logged(snakemake.log[0]):
    export_suite(Path(snakemake.output[0]), read_suite(snakemake.input.parameters)[0], read_cases(snakemake.input))
