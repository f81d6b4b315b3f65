"""The report on an archive as a page, in the style of all pages."""

from pathlib import Path

from worked_attention.archives.agreement import WORDS, counts, share
from worked_attention.archives.causes import CAUSES
from worked_attention.archives.report import table
from worked_attention.files.formats import write_json, write_text
from worked_attention.pages.language import _
from worked_attention.pages.render import renderer

MOST = 200  # rows of a table


def publish(report: dict, folder: Path, name: str, template: str) -> None:
    """Write a report to `folder`, as `name`.json and as a page, and tell it in a few lines with where the whole of it lies."""
    shown = page(template, report)
    write_json(folder / f"{name}.json", report)
    write_text(folder / f"{name}.html", shown)
    print(f"{table(report)}\nThe whole of it: {folder.as_posix()}/{name}.json and {name}.html", flush=True)


def page(template: str, report: dict) -> str:
    """The page of a report, from the template at a path."""
    suites: dict[str, dict] = {}
    for key, arrays in report["cases"].items():
        suites.setdefault(key.partition("/")[0], {})[key] = arrays
    apart = [(key, *item) for key, arrays in report["cases"].items() for item in arrays.items() if item[1]["verdict"] != "identical"]
    apart.sort(key=lambda row: (-WORDS.index(row[2]["verdict"]), -share(row[2])))
    causes = [(_(cause["what"]) if cause["what"] in CAUSES else cause["what"], cause["said"]) for cause in report["environments"]]
    counted = {suite: counts(cases) for suite, cases in suites.items()}
    return renderer(template)(report=report, suites=counted, apart=apart, causes=causes, most=MOST)
