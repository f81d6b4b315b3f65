"""Letters as outlines, from the fonts that matplotlib brings and, for letters that these lack, from those of the system."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.font_manager import FontProperties, findSystemFonts
from matplotlib.ft2font import FT2Font
from matplotlib.textpath import text_to_path

matplotlib.rcdefaults()  # the same figures whatever a user's own matplotlibrc says
matplotlib.rcParams.update({"svg.hashsalt": "attention", "svg.fonttype": "none", "hatch.linewidth": 0.5})
FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")  # named by file, so that no other DejaVu of the machine is taken
REGULAR, BOLD = (FontProperties(fname=FONTS / file) for file in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"))


@lru_cache(4096)
def outline(text: str, font: FontProperties) -> tuple[np.ndarray, np.ndarray]:
    """Points [n, 2] and codes [n] of the text's outline at a size of one point, in inches, once for all figures.

    Letters that `font` lacks are taken from a font of the system that has them; if none has, they are the boxes of `font`.
    """
    points, codes, start = [np.empty((0, 2))], [np.empty(0)], 0.0
    for found, letters in groupby(text, lambda letter: font_of(letter, font)):
        run, used = "".join(letters), found or font
        points_of, kinds = text_to_path.get_text_path(used, run, ismath=False)
        points.append(np.reshape(points_of, (-1, 2)) + [start, 0])
        codes.append(kinds)
        start += (
            text_to_path.get_text_width_height_descent(run, used, ismath=False)[0] * text_to_path.FONT_SCALE / used.get_size_in_points()
        )
    return np.concatenate(points) / (72 * text_to_path.FONT_SCALE), np.concatenate(codes).astype(np.uint8)


@lru_cache(4096)
def font_of(letter: str, font: FontProperties) -> FontProperties | None:
    """`font` if it has the letter, else the first of the system's fonts that does; None if there is none."""
    if ord(letter) in _letters(font.get_file()):
        return font
    return next((FontProperties(fname=path) for path in _system_fonts() if ord(letter) in _letters(path)), None)


@lru_cache
def _system_fonts() -> list[str]:
    """Fonts of the system in a fixed order, those for Chinese, Japanese and Korean first; looked for only where a letter is missing."""
    return sorted(findSystemFonts(), key=lambda path: ("CJK" not in path, "Regular" not in path, path))


@lru_cache
def _letters(path: str) -> frozenset[int]:
    """The letters that a font can draw as outlines; none if it holds pictures only."""
    try:
        font = FT2Font(path)
    except RuntimeError:  # a file that FreeType cannot read
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()


def undrawn(words: Iterable[str]) -> str:
    """The letters of `words` that no font of this machine has, each once."""
    return "".join(dict.fromkeys(letter for text in words for letter in text if font_of(letter, REGULAR) is None))


def width(lines: list[str], size: float = 8, font: FontProperties = REGULAR) -> float:
    """Width of the widest line in inches."""
    return size * max(outline(line, font)[0][:, 0].max(initial=0) for line in lines)
