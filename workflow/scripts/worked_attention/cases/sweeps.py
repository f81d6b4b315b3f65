"""Sweeps: a case that lists choices of options stands for one case for every combination of them.

It all happens before anything else is asked of a case: what comes out are cases as somebody would write them by hand.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from worked_attention.cases.options import NOT_INHERITED, filled, schema
from worked_attention.cases.violations import violations
from worked_attention.cases.words import short

UNSWEPT = (*NOT_INHERITED, "sweep")  # what all cases of a sweep have alike, or each of its own
SKIPS = {"none": False, "invalid": True}  # by kind of `skip`: whether combinations that make no sense are left out
LONGEST = 32  # letters of a choice in a name; a longer one is counted in its list


@dataclass(frozen=True)
class Combination:
    """One case of a sweep. sweep: the case that says it. chosen: by option, the choice's place in its list, and the choice.

    skip: whether it is left out where its options do not go together.
    """

    sweep: str
    chosen: dict[str, tuple[int, Any]]
    skip: bool

    @property
    def choices(self) -> dict[str, Any]:
        """The choice of each option, by its dotted name."""
        return {option: value for option, (_, value) in self.chosen.items()}

    @property
    def name(self) -> str:
        """The name of the case: that of the sweep, and of each option its last word and the choice; `no_` and the word for null."""
        parts = [self.sweep]
        for option, (place, value) in self.chosen.items():
            word = _letters(option.rsplit(".", 1)[-1])
            parts.append(f"no_{word}" if value is None else f"{word}_{_named(value, place)}")
        return "_".join(parts)

    def title(self, title: str) -> str:
        """The title of the case, from that of the sweep."""
        words = [(option.rsplit(".", 1)[-1], value) for option, value in self.choices.items()]
        return f"{title}: " + ", ".join(f"no {word}" if value is None else f"{word} = {_shown(value)}" for word, value in words)

    def places(self, field: tuple) -> Iterator[tuple]:
        """Where the suite says what the case has at `field`, from the case of the sweep on: in a list of choices, if one is about it."""
        for option, (place, _) in self.chosen.items():
            path = tuple(option.split("."))
            if field and all(a == b for a, b in zip(path, field, strict=False)):
                yield "sweep", option, place
        yield field

    def applied(self, case: dict) -> dict:
        """`case` with each choice at its option; null takes away what is there."""
        for option, value in self.choices.items():
            case = _put(case, option.split("."), value)
        return case

    def said(self, option: str) -> str:
        """One option and its choice."""
        return f"{option}: {_shown(self.choices[option])}"

    def __str__(self) -> str:
        return ", ".join(map(self.said, self.chosen))


def expanded(raw: dict[str, dict], most: float, report: Callable[[tuple, str], None]) -> tuple[dict[str, dict], dict[str, Combination]]:
    """The cases of a suite with those of each sweep in its place, and the combinations that these are, both by name.

    raw: the cases as the suite says them. most: cases that one sweep may make. What is wrong goes to `report(where, message)`, from the
    suite on; a sweep that is wrong makes no cases.
    """
    cases: dict[str, dict] = {}
    found: dict[str, Combination] = {}
    for name, case in raw.items():
        if "sweep" not in case:
            cases[name] = case
            continue
        own = {key: value for key, value in case.items() if key != "sweep"}
        title = own.get("title", name)
        for combination in _combinations(name, case["sweep"], most, report):
            called, where = combination.name, ("cases", name, "sweep")
            if called in raw or called in cases:
                other = f"that of {found[called]}" if called in found else "another one"
                alike = called in found and found[called].sweep == name
                mend = "leave one of the two choices to a case of its own" if alike else "rename one of them"
                report(where, f"the case of {combination} would be called {called}, as is {other}; {mend}")
            elif len(called) > (longest := schema("suite")["properties"]["cases"]["propertyNames"]["maxLength"]):
                report(
                    where, f"the name {short(called)} would have {len(called)} letters, more than {longest}; give the sweep a shorter one"
                )
            else:
                cases[called] = own | ({"title": combination.title(title)} if isinstance(title, str) else {})
                found[called] = combination
    return cases, found


def _combinations(name: str, sweep: Any, most: float, report: Callable[[tuple, str], None]) -> list[Combination]:
    """Every combination of a sweep, the choices of the last option next to each other; none if something is wrong."""
    rule = schema("suite")["$defs"]["case"]["properties"]["sweep"]
    wrong = list(violations(rule, sweep)) or list(_nonsense(sweep, most))
    for where, message in wrong:
        report(("cases", name, "sweep", *where), message)
    if wrong:
        return []
    options, skip = _options(sweep), SKIPS[filled(rule, sweep)["skip"]]
    return [
        Combination(name, dict(zip(options, chosen, strict=True)), skip)
        for chosen in product(*(enumerate(choices) for choices in options.values()))
    ]


def _options(sweep: dict) -> dict[str, list]:
    return {option: choices for option, choices in sweep.items() if option != "skip"}


def _nonsense(sweep: dict, most: float) -> Iterator[tuple[tuple, str]]:
    """Each (path, message) of what a sweep says against itself."""
    options = _options(sweep)
    for option in options:
        around = next((other for other in options if option.startswith(f"{other}.")), None)
        if option.split(".")[0] in UNSWEPT:
            yield (option,), "cannot be swept; say it once for all cases, or write them out"
        elif around:
            yield (option,), f"lies within {around}, which is swept, too; write it into the choices of {around}"
    if not options:
        yield (), "lists no option; add one, such as heads: [1, 2]"
    elif (count := prod(map(len, options.values()))) > most:
        yield (), f"would make {count:,} cases, more than limits.max_sweep_cases = {most:,}; leave choices out or raise the limit"


def _put(block: dict, path: list[str], value: Any) -> dict:
    """`block` with `value` at `path`, or without what is there if it is None; blocks on the way are made, and no block is changed."""
    first, *rest = path
    if value is None and first not in block:
        return block
    if rest:
        inner = block.get(first)
        return {**block, first: _put(inner if isinstance(inner, dict) else {}, rest, value)}
    return {key: old for key, old in block.items() if key != first} if value is None else {**block, first: value}


def _words(value: Any) -> str:
    """A choice in words: the names and values in it one after the other."""
    if isinstance(value, dict):
        return " ".join(f"{key} {_words(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    words = _words(value)
    return words if len(words) <= 40 else f"{words[:39]}…"


def _named(value: Any, place: int) -> str:
    """A choice as part of a name; its place in the list, counted from 1, where it has no letters or too many."""
    word = _letters(re.sub(r"-(?=[0-9.])", " minus ", _words(value).replace("e+", "e")))
    return word if 0 < len(word) <= LONGEST else str(place + 1)


def _letters(text: str) -> str:
    """`text` in small letters, digits and _."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
