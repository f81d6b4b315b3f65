"""Rule archive: the current state as one zip, whose path is printed."""

import sys
from pathlib import Path

from worked_attention.archives.contents import Lost, archive, results
from worked_attention.files.jobs import logged

root, asked, inputs = Path(), snakemake.params, snakemake.input
with logged(snakemake.log[0]):
    try:
        made = results(root, asked.config["suites"], [*inputs.glance, *asked.beside], asked.references, asked.questions)
        read = [*inputs.config, *inputs.arrays, *inputs.pins]
        written = archive(root, root / "results/archive", asked.config, read, made, Path(inputs.glance[0]).parent.as_posix(), asked.every)
    except (Lost, ValueError) as error:
        sys.exit(f"Error: {error}")
sys.stdout.reconfigure(encoding="utf-8")
print(written.as_posix(), flush=True)
