"""Values and names in words: what a message says of what it was given."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

DASHES = dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212, 0xFE63, 0xFF0D), "-")  # what articles print for a minus


NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a spreadsheet lets a formula begin


def harmless(value: object) -> object:
    """`value` for a spreadsheet: a text that it would take for a formula gets an apostrophe, and a number stays one."""
    harmful = isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value)
    return f"'{value}" if harmful else value


def short(value: object) -> str:
    """`value` as text of at most 80 characters."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def shown(value: Any) -> str:
    """A loaded value in words: 'text (four)', 'a number (2.5)', 'a list' …"""
    if value is None or isinstance(value, list | dict):
        return kind(value)
    return f"{kind(value)} ({short(str(value).lower() if isinstance(value, bool) else value)})"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The known name that is nearest to `word`, as a question; or all that are known."""
    known = list(known)
    close = difflib.get_close_matches(str(word), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}" * bool(known)


def kind(value: Any) -> str:
    """What a person would call the type of a loaded value: 'text', 'a number', 'a list' …"""
    if isinstance(value, bool):
        return "a boolean"
    names = {type(None): "nothing (null)", str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return names.get(type(value), f"a {type(value).__name__}")


def number_advice(text: str) -> str:
    """How to write the number that `text` looks like: without quotes, or with the minus of a keyboard; nothing if it looks like none."""
    plain = text.translate(DASHES)
    if not re.fullmatch(r"[-+0-9.eE]{0,40}[0-9]", plain):
        return ""
    dash = next((letter for letter, sign in zip(text, plain, strict=True) if letter != sign), None)
    if dash:
        return f"; its minus is another character (U+{ord(dash):04X}); write {short(plain)}"
    return "; write the number without quotes"
