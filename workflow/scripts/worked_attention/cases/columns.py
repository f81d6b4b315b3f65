"""What a table of cases says of each: the columns of results/cases.csv, and what a study can draw against what."""

from collections.abc import Iterator
from functools import cache

from worked_attention.cases.options import DESCRIBING, is_array, schema

WORDS = {
    "suite": "name",
    "case": "name",
    "title": "title",
    "extends": "the case that it is a variant of",
    "sweep": "the sweep that made it",
    "choices": "of the sweep, by option",
    "begins_at": "x, qkv, heads or scaled",
    "uses": "options that are not as they are by default",
}
COUNTED = {
    "parameters": "numbers in weights, biases and gains",
    "multiply_adds": "of the matrix products of all stages",
    "bytes": "of the arrays of all stages",
    "looked_at": "queries that all columns from here on are of: all, or a sample of those of a large case",
    "entropy": "-sum p ln p of a row of weights, mean over rows",
    "largest_weight": "largest of all weights",
    "claims": "printed numbers that were checked",
    "errata": "printed numbers that are wrong",
}
MEASURED = {"max_abs": "largest difference from ours, over all arrays", "ulp": "the same in units in the last place of the array"}


@cache
def options() -> dict[str, dict]:
    """The options of a case that are one word or number each, by dotted name, with their rules in the schema."""

    def walk(block: dict, prefix: str) -> Iterator[tuple[str, dict]]:
        for name, rule in block["properties"].items():
            if name in DESCRIBING or name == "positions" or is_array(rule):  # positions are lists once they are resolved
                continue
            if "properties" in rule:
                yield from walk(rule, f"{prefix}{name}.")
            elif "array" not in _types(rule):
                yield prefix + name, rule

    return dict(walk(schema("suite")["$defs"]["case"], ""))


@cache
def references() -> list[str]:
    """Who cases are compared with, the exact numbers first."""
    return ["truth", *schema("suite")["properties"]["references"]["items"]["enum"]]


def libraries() -> dict[str, list[str]]:
    """The names of all references by library; each is the adapter references/{library}_{name}.py."""
    found: dict[str, list[str]] = {}
    for reference in references()[1:]:
        library, name = reference.split(".")
        found.setdefault(library, []).append(name)
    return found


def sizes() -> dict[str, dict]:
    """The sizes that a case may state, by name, with their rules in the schema."""
    return schema("suite")["$defs"]["case"]["properties"]["sizes"]["properties"]


def said(case: dict, name: str) -> object:
    """An option or a size of a resolved case by its name; None where the case does not have it."""
    if name in sizes():
        return case["dims"].get(name)
    value: object = case
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def columns() -> dict[str, str]:
    """Every column and what it means, in order."""
    found = {**WORDS, **{name: rule["description"] for name, rule in {**options(), **sizes()}.items()}, **COUNTED}
    for reference in references():
        found[f"{reference}.verdict"] = f"of the comparison with {reference}"
        found |= {f"{reference}.{name}": meaning for name, meaning in MEASURED.items()}
    return found


def numbers() -> list[str]:
    """The columns that hold numbers."""
    counted = [name for name, rule in options().items() if not {"number", "integer"}.isdisjoint(_types(rule))]
    return [*counted, *sizes(), *COUNTED, *(f"{reference}.{name}" for reference in references() for name in MEASURED)]


def _types(rule: dict) -> list[str]:
    types = rule.get("type", [])
    return [types] if isinstance(types, str) else types
