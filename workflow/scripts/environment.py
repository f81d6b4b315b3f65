"""Rule environment: the machine, the packages and the settings that made the numbers."""

from pathlib import Path

from artifacts import logged, write_json
from environment_facts import describe

with logged(snakemake.log[0]):
    write_json(Path(snakemake.output[0]), describe(dict(snakemake.params.git), Path(snakemake.input.lock)))
