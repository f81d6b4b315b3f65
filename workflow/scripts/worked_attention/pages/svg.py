"""Drawings as inline SVG, in the colours of the page: the frame that all of them have, and words in them."""

from collections.abc import Iterable
from html import escape

from worked_attention.pages.blocks import Picture


def picture(width: float, height: float, said: str, parts: Iterable[str], caption: str) -> Picture:
    """The drawing of these `parts`; `said` is what it shows, in words, for those who do not see it."""
    frame = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(said)}" fill="none"'
    return Picture(f"<svg {frame}>{''.join(parts)}</svg>", caption)


def text(x: float, y: float, words: str, anchor: str = "start", bold: bool = False) -> str:
    """A word of the drawing."""
    looks = f' text-anchor="{anchor}"' * (anchor != "start") + ' font-weight="bold"' * bold
    return f'<text x="{x}" y="{y}" font-size="13"{looks}>{escape(words)}</text>'
