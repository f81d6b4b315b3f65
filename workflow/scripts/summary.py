"""Rule summary: every comparison of every suite in one JSON, one HTML table and one text table."""

from pathlib import Path

from jinja2 import Environment

from worked_attention.files.artifacts import logged, write_json, write_text
from worked_attention.files.summary import summarise, table

with logged(snakemake.log[0]):
    summary, rows = summarise([Path(folder) for folder in snakemake.input.comparisons])
    write_json(Path(snakemake.output.json), summary)
    template = Environment(autoescape=True, trim_blocks=True).from_string(Path(snakemake.input.template).read_text("utf-8"))
    write_text(
        Path(snakemake.output.html),
        template.render(summary=summary, rows=rows, references=list(dict.fromkeys(name for row in rows for name in row["references"]))),
    )
    write_text(Path(snakemake.output.text), table(summary, snakemake.output.html))
