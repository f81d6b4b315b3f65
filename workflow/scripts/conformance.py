"""Rule conformance: all verdicts of all references in one JSON, one table and one picture."""

from pathlib import Path

from worked_attention.conformance.matrix import picture, table, verdicts
from worked_attention.files.formats import FORMAT, read_json, write_json, write_text
from worked_attention.files.jobs import logged

with logged(snakemake.log[0]):
    cells: dict[str, dict] = {suite: {} for suite in snakemake.params.suites}
    for path in map(Path, snakemake.input.cells):
        for case, found in read_json(path).items():
            cells[path.parts[-3]].setdefault(case, {}).update(found)
    found = verdicts(cells, read_json(snakemake.input.environment)["packages"], snakemake.params.libraries)
    write_json(Path(snakemake.output.json), {"format": FORMAT, **found})
    write_text(Path(snakemake.output.csv), table(found))
    write_text(Path(snakemake.output.svg), picture(found))
