"""Rule conformance: all verdicts of all references in one JSON, one table and one picture."""

from pathlib import Path

from artifacts import logged, read_json, write_json, write_text
from matrix import picture, table, verdicts

with logged(snakemake.log[0]):
    paths = [path for folder in snakemake.input.comparisons for path in sorted(Path(folder).glob("*.json"))]
    found = verdicts([read_json(path) for path in paths], read_json(snakemake.input.environment)["packages"])
    write_json(Path(snakemake.output.json), found)
    write_text(Path(snakemake.output.csv), table(found))
    write_text(Path(snakemake.output.svg), picture(found))
