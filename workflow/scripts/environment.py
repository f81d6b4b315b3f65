"""Rule environment: the machine, the packages and the settings that made the numbers."""

from pathlib import Path

from worked_attention.files.artifacts import logged, write_json
from worked_attention.files.environment import describe

with logged(snakemake.log[0]):
    write_json(Path(snakemake.output[0]), describe(dict(snakemake.params.git), Path(snakemake.input.lock)))
