"""The language of the pages: `_` and `ngettext` say a text in the chosen one, whatever the locale of the machine.

English stands in the code and in the templates. Every other language is one file, locale/{language}/LC_MESSAGES/pages.po.
"""

from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path

CATALOGUES = Path(__file__).parent / "locale"
ENGLISH = "en"


def languages() -> list[str]:
    """The languages that pages can be made in: English, and those that have a catalogue."""
    return [ENGLISH, *sorted(path.parts[-3] for path in CATALOGUES.glob("*/LC_MESSAGES/pages.po"))]


def catalogue(language: str) -> NullTranslations:
    """The texts of `language`, one of `languages()`, compiled from its file."""
    if language == ENGLISH:
        return NullTranslations()
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    with open(CATALOGUES / language / "LC_MESSAGES" / "pages.po", "rb") as file:
        messages = read_po(file, language, abort_invalid=True)
    compiled = BytesIO()
    write_mo(compiled, messages)
    compiled.seek(0)
    return GNUTranslations(compiled)


spoken, texts = ENGLISH, catalogue(ENGLISH)


def speak(language: str) -> None:
    """From now on `_` and `ngettext` say every text in `language`, one of `languages()`."""
    global spoken, texts
    spoken, texts = language, catalogue(language)


def tag() -> str:
    """The language that is spoken, as HTML's `lang` wants it."""
    return spoken.replace("_", "-")


def _(message: str) -> str:
    """`message` in the language that is spoken; to be filled in afterwards: `_("{n} keys").format(n=3)`."""
    return texts.gettext(message)


def ngettext(one: str, more: str, count: int) -> str:
    """`one` or `more`, by `count`, in the language that is spoken."""
    return texts.ngettext(one, more, count)


def capital(text: str) -> str:
    """`text` as the beginning of a line, which English writes with a capital letter; other languages may begin with a token's name."""
    return text[:1].upper() + text[1:] if spoken == ENGLISH else text


def N_(message: str) -> str:
    """`message` as it is: of a table that is made before the language is chosen. Say `_(TABLE[key])` where it is used."""
    return message
