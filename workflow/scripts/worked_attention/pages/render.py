"""Pages as HTML: Jinja2 templates, everything escaped, one base and one style for all."""

from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from worked_attention.pages import html, language
from worked_attention.pages.formulas import mathml
from worked_attention.pages.verdicts import evidence, repeated, verdict


def templates(folder: Path) -> Environment:
    """The templates in `folder`; a name that a template misspells is an error."""
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, auto_reload=False
    )
    environment.add_extension("jinja2.ext.i18n")
    environment.install_gettext_callables(language._, language.ngettext, newstyle=True)
    environment.globals["language_tag"] = language.tag
    environment.policies["ext.i18n.trimmed"] = True
    environment.filters |= {
        "mathml": lambda tex: Markup(mathml(tex)),
        "lines": html.lines,
        "rows": html.rows,
        "verdict": verdict,
        "evidence": evidence,
        "repeated": repeated,
        "kind": lambda block: type(block).__name__,
    }
    return environment


def renderer(template: str):
    """render(**names) of the template at path `template`, from the folder that also holds its base."""
    path = Path(template)
    return partial(templates(path.parent).get_template(path.name).render)
