"""Bring the catalogues of the pages up to date: python docs/messages.py

A text that is new in the code or in a template is entered without a translation, one that is gone is removed. What still has to be
translated is counted at the end; write it into locale/{language}/LC_MESSAGES/pages.po. For a new language, make that file first, with
its head: Content-Type and Plural-Forms.
"""

import sys
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.pages.language import CATALOGUES  # noqa: E402
from worked_attention.stages.catalogue import CATALOGUE  # noqa: E402

SCRIPTS, TEMPLATES = ROOT / "workflow" / "scripts", ROOT / "workflow" / "report"
ROOMS = ("archives", "pages", "worksheets")
SOURCES = [path for room in ROOMS for path in SCRIPTS.glob(f"worked_attention/{room}/*.py")]
SOURCES += [SCRIPTS / "front_page.py", *TEMPLATES.glob("*.jinja2")]
KEYWORDS = {"_": None, "N_": None, "ngettext": (1, 2), "gettext": None}  # the last is what a trans block says
TEMPLATE_OPTIONS = {"newstyle_gettext": "true", "trim_blocks": "true", "trimmed": "true", "silent": "false"}
MEANINGS = "workflow/scripts/worked_attention/stages/catalogue.py"


def extracted() -> Catalog:
    """Every text of the pages: what `_`, `N_`, `ngettext` and `trans` are given, and what the arrays mean."""
    found = Catalog()
    for path in sorted(SOURCES):
        kind, options = ("python", {}) if path.suffix == ".py" else ("jinja2.ext:babel_extract", TEMPLATE_OPTIONS)
        for _line, message, _comments, _context in extract_from_file(kind, path, KEYWORDS, options=options):
            found.add(message, locations=[(path.relative_to(ROOT).as_posix(), None)])
    for array in CATALOGUE.values():
        if array.stage != "backward":  # whose meanings the pages say with the array's name
            found.add(array.formula, locations=[(MEANINGS, None)])
    return found


def updated(path: Path) -> Catalog:
    """The catalogue at `path` with the texts that there are now, and no others."""
    with open(path, "rb") as file:
        catalogue = read_po(file, path.parts[-3], abort_invalid=True)
    template = extracted()
    template.creation_date = catalogue.creation_date
    catalogue.update(template, no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    return catalogue


def written(path: Path) -> bytes:
    """The file at `path` brought up to date; its head stays as it is."""
    file = BytesIO()
    write_po(file, updated(path), width=140, include_lineno=False, omit_header=True)
    return path.read_bytes().split(b"\n\n")[0].rstrip(b"\n") + b"\n\n" + file.getvalue()


if __name__ == "__main__":
    for path in sorted(CATALOGUES.glob("*/LC_MESSAGES/pages.po")):
        path.write_bytes(written(path))
        texts = [message for message in updated(path) if message.id]
        missing = sum(not all(message.string if message.pluralizable else [message.string]) for message in texts)
        print(f"{path.relative_to(ROOT).as_posix()}: {len(texts)} texts, {missing} without a translation")
