"""Rule verify: what is wrong with an archive, one line each, or one line saying that it is whole."""

import sys
from pathlib import Path

from worked_attention.archives.zips import check_archive
from worked_attention.files.jobs import logged

sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
with logged(snakemake.log[0]):
    if not snakemake.params.archive:
        sys.exit("Error: which archive? Say `snakemake --cores 1 verify --config archive=results/archive/NAME.zip`")
    checked = check_archive(Path(snakemake.params.archive).expanduser())
    if checked.findings:
        sys.exit("\n".join(checked.findings))
print(f"whole: {len(checked.hashes)} files, digest {checked.manifest['digest']}", flush=True)
