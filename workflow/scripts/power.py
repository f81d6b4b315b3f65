"""Rule power: the matrix of mistakes and cases, as JSON and as CSV, and a word on what it says."""

from pathlib import Path

from worked_attention.cases.suites import UNLIMITED, load_suite
from worked_attention.files.formats import FORMAT, write_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.referee.power import WAYS, power

folder = Path("config/suites")
with logged(snakemake.log[0]):
    suites = {name: load_suite(folder / f"{name}.yaml", UNLIMITED) for name in snakemake.params.suites}
    matrix = power(suites, folder)
    rows = [
        f"{name},{entry['stage']},{case},{word}"
        for name, entry in matrix["mistakes"].items()
        for word in ("caught", "missed", *WAYS)
        for case in entry[word]
    ]
    write_json(Path(snakemake.output.json), {"format": FORMAT, **matrix})
    write_text(Path(snakemake.output.csv), "\n".join(["mistake,stage,case,word", *rows]) + "\n")
print(f"\n{len(matrix['mistakes'])} mistakes, {len(matrix['nothing_new'])} cases that catch nothing new (in {snakemake.output.json})")
for name in matrix["uncaught"]:
    print(f"caught by no case: {name}, {matrix['mistakes'][name]['sentence']}", flush=True)
for name in matrix["once"]:
    print(f"caught by one case only: {name}, by {matrix['mistakes'][name]['caught'][0]}", flush=True)
