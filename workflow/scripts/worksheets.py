"""Rule worksheets: sheets, keys and answer sheets of one case."""

import shutil
import sys
from pathlib import Path

from worked_attention.cases.escapes import printable
from worked_attention.cases.strict_yaml import Problems
from worked_attention.cases.words import short
from worked_attention.files.formats import write_json, write_text
from worked_attention.files.jobs import logged
from worked_attention.pages.language import speak
from worked_attention.pages.markdown import markdown
from worked_attention.pages.render import renderer
from worked_attention.worksheets.answers import blank, is_blank
from worked_attention.worksheets.making import named, record, sheets
from worked_attention.worksheets.paper import paper, title
from worked_attention.worksheets.sheet import Unsuited

with logged(snakemake.log[0]):
    speak(snakemake.params.language)
    key, options, suites = snakemake.params.case, snakemake.params.options, Path("config/suites")
    if not key:
        sys.exit("Error: worksheets of which case? Say `snakemake --cores 1 worksheets --config case=handworked/two_heads sheets=30`")
    try:
        case = named(key, suites, snakemake.params.limits)
        made = list(sheets(case, suites, snakemake.params.sheets, options, snakemake.params.digits))
    except (Unsuited, Problems) as error:
        sys.exit(f"Error: no worksheets of {short(printable(key))}: {error}")
    folder = Path("results/worksheets") / case["suite"] / case["name"]
    if filled := [path for path in sorted(folder.glob("answers_*.csv")) if not is_blank(path)]:
        sys.exit(f"Error: {filled[0].as_posix()} is filled in; move it to another folder, for this one is made anew")
    new, render = folder.with_name(f"{folder.name}.part"), renderer(snakemake.input.template)
    shutil.rmtree(new, ignore_errors=True)
    width = max(2, len(str(len(made))))
    for kind, is_key in (("sheet", False), ("key", True)):
        papers = [(sheet, title(sheet, is_key), paper(sheet, is_key)) for sheet in made]
        for sheet, heading, sections in papers:
            name = f"{kind}_{sheet.number:0{width}}"
            write_text(new / f"{name}.html", render(papers=[(sheet, heading, sections)], key=is_key))
            write_text(new / f"{name}.md", markdown(heading, sheet.identity, sections))
        if not is_key:
            write_text(new / "sheets.html", render(papers=papers, key=is_key))
    for sheet in made:
        write_text(new / f"answers_{sheet.number:0{width}}.csv", blank(sheet))
    write_json(new / "sheets.json", record(made, case, options))
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
    print(f"Worksheets of {key}, {len(made)} with keys and answer sheets, to print in sheets.html: {folder.as_posix()}", flush=True)
