"""Rule verdict: the table of the summary on the terminal; the run fails here if a comparison failed."""

import sys
from pathlib import Path

from worked_attention.files.formats import read_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.files.summary import failure_lines

sys.stdout.reconfigure(encoding="utf-8")
with logged(snakemake.log[0]):
    text = Path(snakemake.input.text).read_text("utf-8")
    print(f"\n{text}", flush=True)
    if lines := failure_lines(read_json(snakemake.input.json)["failures"], snakemake.input.json):
        sys.exit("\n".join(lines))
    write_text(Path(snakemake.output[0]), text)
