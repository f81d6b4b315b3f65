"""What the verdicts on a submission come to: the words that there are, which of them are faults, and how a program should end."""

import xml.etree.ElementTree as xml
from collections.abc import Collection, Iterator
from pathlib import Path

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


def grouped(cases: dict[str, dict]) -> list[list[str]]:
    """Names of cases in groups: those that share verdict, first wrong stage, mistakes and problems are together, right ones apart.

    cases: the verdicts by suite/case. What equals no known mistake is together only with what is off by the same in the same place.
    """
    groups: dict[tuple, list[str]] = {}
    for key, case in cases.items():
        found = case["diagnosis"]
        how = tuple(mistake["name"] for mistake in found["mistakes"]) if found else says(case, 17)
        alone = key if case["verdict"] == "right" else ""
        groups.setdefault((case["verdict"], case["first_wrong_stage"], how, tuple(case["problems"]), alone), []).append(key)
    return list(groups.values())


def named(keys: list[str]) -> str:
    """A group of cases in a few words."""
    return keys[0] + f" and {len(keys) - 1} more" * (len(keys) > 1)


def says(case: dict, digits: int) -> str:
    """One verdict in a line, with so many significant `digits` of each number."""
    parts = []
    if case["verdict"] == "right":
        parts.append(f"in {case['contract']}" + ", by typical errors" * (case["evidence"] == "typical"))
    if case["verdict"] == "convention":
        parts.append(f"follows {case['convention']}, in {case['contract']}")
    if case["verdict"] == "undecided":
        worst = case["worst"]
        place = f"{worst['array']}{worst['index']}"
        parts.append(f"{place} may be off by {_short(worst['bound'], 2)}, its array goes up to {_short(worst['largest'], 2)}")
        if "unless" in worst:
            parts.append(f"wrong in all that is stricter than {worst['unless']}")
    if case["first_wrong_stage"]:
        parts.append(f"first wrong: {case['first_wrong_stage']}")
        worst = case["worst"]
        if "reason" in worst:
            parts.append(f"{worst['array']} {worst['reason']}")
        else:
            parts.append(
                f"{worst['array']}{worst['index']} is {_short(worst['got'], digits)}, should be {_short(worst['expected'], digits)}"
            )
    if case["diagnosis"]:
        parts.append(case["diagnosis"]["sentence"])
    return "; ".join(parts + case["problems"])


def remedies(case: dict) -> list[str]:
    """What would mend the mistake that a verdict names, in one sentence or more; none where it names no mistake."""
    return [case["diagnosis"]["remedy"]] if case["diagnosis"] else []


def _short(number: float | str | bool, digits: int) -> str:
    return f"{number:.{digits}g}" if isinstance(number, float) else str(number)


def junit(cases: dict[str, dict], allowed: Collection[str], digits: int) -> str:
    """The verdicts as JUnit XML: a test suite for each suite, a test case for each case; what is `allowed` counts as skipped."""
    root = xml.Element("testsuites", name="worked-attention")
    for suite in dict.fromkeys(key.partition("/")[0] for key in cases):
        inside = xml.SubElement(root, "testsuite", name=suite)
        kinds = dict.fromkeys(("failure", "error", "skipped"), 0)
        own = {key: case for key, case in cases.items() if key.startswith(f"{suite}/")}
        for key, case in own.items():
            test = xml.SubElement(inside, "testcase", classname=suite, name=key.partition("/")[2])
            word = case["verdict"]
            if word != "right":
                kind = "skipped" if word in allowed else "error" if word == "failed" else "failure"
                kinds[kind] += 1
                xml.SubElement(test, kind, type=word, message=says(case, digits)).text = " ".join(remedies(case)) or None
        for name, count in (("tests", len(own)), ("failures", kinds["failure"]), ("errors", kinds["error"]), ("skipped", kinds["skipped"])):
            inside.set(name, str(count))
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def annotations(cases: dict[str, dict], allowed: Collection[str], file: Path | None, digits: int) -> Iterator[str]:
    """A line for GitHub Actions on each group of equal faults, at the `file` if there is one."""
    faults = {key: case for key, case in cases.items() if case["verdict"] != "right" and case["verdict"] not in allowed}

    def escaped(text: str, more: str = "") -> str:
        for c in "%\r\n" + more:
            text = text.replace(c, f"%{ord(c):02X}")
        return text

    for keys in grouped(faults):
        first = faults[keys[0]]
        word, text = first["verdict"], "\n".join([says(first, digits), *remedies(first)])
        title = f"{named(keys)}: {word}"
        place = f"file={escaped(file.as_posix(), ':,')}," if file else ""
        yield f"::error {place}title={escaped(title, ':,')}::{escaped(text or WORDS[word])}\n"
