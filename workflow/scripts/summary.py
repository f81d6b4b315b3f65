"""Rule summary: every comparison of every suite in one JSON and one text table."""

from pathlib import Path

from worked_attention.files.artifacts import logged, write_json, write_text
from worked_attention.files.summary import summarise, table

with logged(snakemake.log[0]):
    summary = summarise([Path(folder) for folder in snakemake.input.comparisons])
    write_json(Path(snakemake.output.json), summary)
    write_text(Path(snakemake.output.text), table(summary, Path(snakemake.output.json).with_name("index.html").as_posix()))
