"""Text that may hold anything, made fit for a terminal or a page."""


def printable(text: str) -> str:
    """`text` with control characters, line ends among them, written as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
