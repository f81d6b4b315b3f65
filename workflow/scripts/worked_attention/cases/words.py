"""Values and names in words: what a message says of what it was given."""

import difflib
from collections.abc import Iterable
from typing import Any


def short(value: object) -> str:
    """`value` as text of at most 80 characters."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def printable(text: str) -> str:
    """`text` with control characters, line ends among them, written as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


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
