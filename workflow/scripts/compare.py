"""Rule compare: the arrays of two archives against each other, as JSON, as a page and in a few lines."""

import sys
from pathlib import Path

from worked_attention.archives.page import publish
from worked_attention.archives.reading import Refused, opened
from worked_attention.archives.report import compared, faults, stem
from worked_attention.files.jobs import logged
from worked_attention.pages.language import speak

sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
asked = snakemake.params
with logged(snakemake.log[0]):
    if len(asked.archives) != 2:
        sys.exit("Error: which two archives? Say `snakemake --cores 1 compare --config 'archives=[A.zip,B.zip]'`")
    speak(asked.language)
    first, second = (Path(path).expanduser() for path in asked.archives)
    try:
        with opened(first, asked.limits) as one, opened(second, asked.limits) as other:
            report = compared(one, other)
    except Refused as error:
        sys.exit(str(error))
    publish(report, Path("results/compare") / f"{stem(first)}--{stem(second)}", "comparison", snakemake.input.template)
    if wrong := faults(report):
        sys.exit(f"Error: {first.name} and {second.name} do not agree: {wrong}")
