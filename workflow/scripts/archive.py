"""Rule archive: the current state as one zip, whose path is printed."""

import sys
from pathlib import Path

from worked_attention.files.archives import members, write_archive
from worked_attention.files.artifacts import logged

with logged(snakemake.log[0]):
    paths = [path for name, path in snakemake.input.items() if name != "code" for path in ([path] if isinstance(path, str) else path)]
    texts = {"config.json": snakemake.params.config, "looks.json": snakemake.params.looks}
    archive = write_archive(Path("results/archive"), members(Path(), paths, texts))
sys.stdout.reconfigure(encoding="utf-8")
print(archive.as_posix(), flush=True)
