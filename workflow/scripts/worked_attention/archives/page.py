"""The report on an archive as a page, in the style of all pages."""

from worked_attention.archives.agreement import WORDS, counts, share
from worked_attention.archives.causes import CAUSES
from worked_attention.pages.language import _
from worked_attention.pages.render import renderer

MOST = 200  # rows of a table


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
