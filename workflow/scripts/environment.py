"""Rule environment: the machine, the packages and the settings that made the numbers."""

from pathlib import Path

from worked_attention.files.environment import describe, libraries
from worked_attention.files.formats import FORMAT, read_json, write_json
from worked_attention.files.jobs import logged

with logged(snakemake.log[0]):
    noted = [read_json(Path(folder, "libraries.json")) for folder in snakemake.input.torch]
    loaded = noted[0] if noted else libraries()
    facts = describe(dict(snakemake.params.git), Path(snakemake.input.lock), loaded)
    write_json(Path(snakemake.output[0]), {"format": FORMAT, **facts})
