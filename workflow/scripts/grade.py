"""Rule grade: what comes of answer sheets, a line for each and a table of all; the job fails if one cannot be read."""

import sys
from pathlib import Path

from worked_attention.cases.escapes import printable
from worked_attention.cases.words import short
from worked_attention.files.formats import write_text
from worked_attention.files.jobs import logged
from worked_attention.referee.submissions import place
from worked_attention.worksheets.report import graded, line, objection, table

sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
with logged(snakemake.log[0]):
    if not snakemake.params.answers:
        sys.exit("Error: which answers? Say `snakemake --cores 1 grade --config answers=PATH`, an answer sheet or a folder of them")
    path = Path(snakemake.params.answers).expanduser()
    files = sorted(path.glob("[!.]*.csv")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        sys.exit(f"Error: {short(printable(str(path)))}: {'holds no .csv file' if path.is_dir() else 'there is no such file or folder'}")
    grades = graded(files, Path("results/worksheets"), Path("config/suites"))
    file = Path("results/grades") / f"{place(path.resolve(), Path.cwd().resolve()).removesuffix('.csv')}.csv"
    write_text(file, table(grades))
    print("\n" + "\n".join(line(entry) for entry in grades) + f"\n\nAs a table: {file.as_posix()}", flush=True)
    if against := objection(grades):
        sys.exit(f"Error: answers {short(printable(str(path)))}: {against}")
