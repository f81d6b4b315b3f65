"""SHA256SUMS: a line "sha256  name" for each file beside it, as `sha256sum -c SHA256SUMS` reads it."""

import re

SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def sums(hashes: dict[str, str]) -> str:
    """The text of SHA256SUMS. hashes: the sha256 of each file, by name, without line ends and backslashes."""
    return "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))


def read_sums(text: bytes) -> dict[str, str]:
    """What `sums` wrote. Raises ValueError with the first line that is none of it."""
    hashes: dict[str, str] = {}
    for i, line in enumerate(text.decode("utf-8").splitlines(), 1):
        told = LINE.fullmatch(line)
        if not told or told[2] in hashes:
            raise ValueError(f"line {i} should be a sha256, two spaces and a name, each name once")
        hashes[told[2]] = told[1]
    return hashes
