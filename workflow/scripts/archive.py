"""Rule archive: the current state as one zip, whose path is printed."""

import sys
from pathlib import Path

from worked_attention.files.archives import members, write_archive
from worked_attention.files.artifacts import logged, read_suite
from worked_attention.files.whole import lacking
from worked_attention.stages.catalogue import STAGES

with logged(snakemake.log[0]):
    for folder in map(Path, [*snakemake.input.numbers, *snakemake.input.beside]):
        if folder.name in STAGES and (lost := lacking(folder, read_suite(folder.with_name("parameters"))[1])):
            sys.exit(f"Error: {folder.as_posix()} has lost {lost}, so nothing was archived; `snakemake --cores 1` makes it anew")
    paths = [path for _, path in snakemake.input.items() for path in ([path] if isinstance(path, str) else path)]
    texts = {"config.json": snakemake.params.config, "looks.json": snakemake.params.looks}
    archive = write_archive(Path("results/archive"), members(Path(), paths, texts))
sys.stdout.reconfigure(encoding="utf-8")
print(archive.as_posix(), flush=True)
