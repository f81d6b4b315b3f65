"""Rule reproduce: the arrays of an archive against those that its own suites give here, as JSON, as a page and in a few lines."""

import sys
from pathlib import Path

from worked_attention.archives.page import publish
from worked_attention.archives.reading import Refused, opened
from worked_attention.archives.report import faults, reproduced, stem
from worked_attention.files.environment import describe, libraries
from worked_attention.files.jobs import logged
from worked_attention.pages.language import speak

sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
asked = snakemake.params
with logged(snakemake.log[0]):
    if not asked.archive:
        sys.exit("Error: which archive? Say `snakemake --cores 1 reproduce --config archive=results/archive/NAME.zip`")
    speak(asked.language)
    path = Path(asked.archive).expanduser()
    environment = describe(dict(asked.git), Path(asked.lock), libraries())
    try:
        with opened(path, asked.limits) as archive:
            report = reproduced(archive, environment)
    except Refused as error:
        sys.exit(str(error))
    publish(report, Path("results/reproduce") / stem(path), "reproduction", snakemake.input.template)
    if wrong := faults(report):
        sys.exit(f"Error: {path.name} is not reproduced: {wrong}")
