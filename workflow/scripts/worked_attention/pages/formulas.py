"""Formulas, written once in TeX, which code hosts draw, and turned into MathML Core for the pages."""

import re
from functools import cache
from html import escape

TOKEN = re.compile(r"\\[A-Za-z]+|\\[,;{}]|[A-Za-z]|[0-9]+(?:\.[0-9]+)?|\S")
SYMBOLS = {
    **{r"\alpha": "α", r"\theta": "θ", r"\varepsilon": "ε", r"\partial": "∂", r"\beta": "β", r"\ell": "ℓ"},
    **{r"\cdot": "·", r"\times": "×", r"\odot": "⊙", r"\cos": "cos", r"\sin": "sin", r"\tanh": "tanh", r"\exp": "exp", r"\max": "max"},
    **{
        r"\le": "≤",
        r"\ge": "≥",
        r"\infty": "∞",
        r"\ldots": "…",
        r"\lvert": "|",
        r"\rvert": "|",
        r"\top": "⊤",
        r"\lfloor": "⌊",
        r"\rfloor": "⌋",
    },
    **{r"\;": " ", r"\,": " ", r"\{": "{", r"\}": "}"},
}
NAMES = {r"\alpha", r"\theta", r"\varepsilon", r"\partial", r"\beta", r"\ell", r"\cos", r"\sin", r"\tanh", r"\exp", r"\max", r"\infty"}


@cache
def mathml(tex: str) -> str:
    r"""A `<math>` element, displayed as a block, from `tex`.

    It knows letters, numbers, `\frac{}{}`, `\sqrt{}`, `\text{}`, `\sum`, `_`, `^`, groups and SYMBOLS. Raises ValueError at anything else.
    """
    tokens = _tokens(tex)
    body = _row(tokens, None)
    return f'<math display="block" alttext="{escape(tex)}">{body}</math>'


def _tokens(tex: str) -> list[str]:
    """The pieces of `tex`, the last first; what stands in `\\text{...}` is one piece."""
    found, at = [], 0
    while at < len(tex):
        if words := re.match(r"\\text\{([^{}]*)\}", tex[at:]):
            found.append("\\text" + words[1])
            at += words.end()
        elif piece := TOKEN.match(tex, at):
            found.append(piece[0])
            at = piece.end()
        else:
            at += 1  # a space
    return found[::-1]


def _row(tokens: list[str], end: str | None) -> str:
    """Everything up to the token `end`, or to the last one if that is None."""
    parts = []
    while tokens and tokens[-1] != end:
        base = _atom(tokens)
        scripts = {}
        while tokens and tokens[-1] in ("_", "^"):
            kind = tokens.pop()
            scripts[kind] = _atom(tokens)
        tag = {"_": "msub", "^": "msup", "_^": "msubsup", "^_": "msubsup"}["".join(scripts)] if scripts else None
        ordered = "".join(scripts[kind] for kind in "_^" if kind in scripts)
        parts.append(f"<{tag}>{base}{ordered}</{tag}>" if tag else base)
    if end is not None:
        if not tokens:
            raise ValueError(f"no {end} in the formula")
        tokens.pop()
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def _atom(tokens: list[str]) -> str:
    """The next piece with what belongs to it."""
    token = tokens.pop()
    if token == "{":
        return _row(tokens, "}")
    if token == r"\frac":
        return f"<mfrac>{_atom(tokens)}{_atom(tokens)}</mfrac>"
    if token == r"\sqrt":
        return f"<msqrt>{_atom(tokens)}</msqrt>"
    if token == r"\sum":
        return "<mo>∑</mo>"
    if token.startswith(r"\text"):
        return f"<mtext>{escape(token[5:])}</mtext>"
    if token in SYMBOLS:
        tag = "mi" if token in NAMES else "mo"
        return f"<{tag}>{SYMBOLS[token]}</{tag}>"
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha() and token.isascii():
        return f"<mi>{token}</mi>"
    if token in "+-=()[]|,/<>:;!":
        return f"<mo>{escape({'-': '−'}.get(token, token))}</mo>"
    raise ValueError(f"the formula holds {token!r}, which is not known here")
