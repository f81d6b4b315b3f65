"""What the verdicts on a submission come to: the words that there are, which of them are faults, and how a program should end."""

from collections.abc import Collection, Iterator

WORDS = {  # each verdict on a case: what it means, in the order in which people should read them
    "wrong": "an array is farther from the right one than its bound",
    "failed": "it raised an error, or ended, and gave no answer",
    "unreadable": "what was sent is no array of the case",
    "undecided": "the arithmetic is so coarse that neither right nor wrong can be shown",
    "convention": "it follows another named convention than the case",
    "unsupported": "it says that the case is beyond it",
    "right": "every array that was sent is within its bound",
}
JUDGED = ("right", "wrong", "convention", "undecided")
ALLOWABLE = ("undecided", "convention", "unsupported")


def counts(words: Collection[str]) -> dict[str, int]:
    """{word: how often} of verdicts, in the order of WORDS. Raises ValueError on a word that is none."""
    if unknown := set(words) - set(WORDS):
        raise ValueError(f"no verdict is called {', '.join(sorted(unknown))}; there are {', '.join(WORDS)}")
    return {word: count for word in WORDS if (count := list(words).count(word))}


def objection(found: dict[str, int], allowed: Collection[str]) -> str | None:
    """Why verdicts that were `found` so often are no success, None if all is right or `allowed`, and something was judged."""
    faults = {word: count for word, count in found.items() if word != "right" and word not in allowed}
    if faults:
        return ", ".join(f"{count} {word}" for word, count in faults.items())
    return None if any(word in JUDGED for word in found) else "nothing was judged"


def grouped(cases: dict[str, dict], says: dict[str, str]) -> Iterator[tuple[list[str], str, str]]:
    """(names of cases, verdict, what is said of them), with cases together that share both, but right ones apart.

    cases: the verdicts by suite/case. says: a line on each.
    """
    groups: dict[tuple, list[str]] = {}
    for key, case in cases.items():
        apart = (key,) if case["verdict"] == "right" else ()
        groups.setdefault((case["verdict"], says[key], *apart), []).append(key)
    for (word, text, *_), keys in groups.items():
        yield keys, word, text
