"""Rule summary: every comparison of every suite in one JSON and one text table, and a table with a row for every case."""

from collections.abc import Iterator
from pathlib import Path

from worked_attention.cases.columns import columns
from worked_attention.files.artifacts import read_looked_at, read_suite
from worked_attention.files.formats import FORMAT, read_json, write_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.files.summary import summarise, table
from worked_attention.studies.cases import row, spreadsheet

with logged(snakemake.log[0]):
    source, output = snakemake.input, snakemake.output
    rows: list[dict] = []

    def suites() -> Iterator[tuple[str, list[dict]]]:
        """Each suite with the comparisons of its cases, for those of all suites together are large; notes their rows."""
        for parameters, weights, comparison in zip(source.parameters, source.weights, source.comparisons, strict=True):
            suite, cases = read_suite(parameters)
            compared = {case["name"]: read_json(Path(comparison, f"{case['name']}.json")) for case in cases}
            rows.extend(row(case, read_looked_at(Path(weights), case, "weights"), compared[case["name"]]) for case in cases)
            yield suite["name"], [compared[name] for name in sorted(compared)]

    summary = summarise(suites())
    write_json(Path(output.json), summary)
    write_text(Path(output.text), table(summary, Path(output.json).with_name("index.html").as_posix()))
    write_json(Path(output.cases), {"format": FORMAT, "columns": columns(), "cases": rows})
    write_text(Path(output.spreadsheet), spreadsheet(rows))
