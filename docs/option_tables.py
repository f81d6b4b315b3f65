"""Print the option tables of config/README.md again from the schemas: python docs/option_tables.py

A table of options is one whose columns are key, type, default and meaning. Its keys, and their order, are what the page has;
the other cells come from the schemas. So a new option is written into its schema, and its key into the table where it belongs:
| `key` |
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.cases.options import is_array, schema  # noqa: E402
from worked_attention.cases.suites import RESERVED  # noqa: E402

TABLE = re.compile(r"(?<=^\| key \| type \| default \| meaning \|\n\|---\|---\|---\|---\|\n)(?:\|.*\n)+", re.MULTILINE)
NAMES = re.compile(r"(?<=^Taken by folders of `results/`: ).*(?=\.$)", re.MULTILINE)


def options() -> dict[str, tuple[dict, bool]]:
    """{dotted name: (rule of the schema, whether required)} of every option of configs, suites, cases, arrays and claims."""
    suite = schema("suite")
    blocks = [schema("config"), suite, *(suite["$defs"][name] for name in ("case", "parameter", "claim"))]
    found = [pair for block in blocks for pair in walk(block)]
    assert len(found) == len(dict(found)), "two options of one name"
    return dict(found)


def walk(block: dict, prefix: str = "") -> Iterator[tuple[str, tuple[dict, bool]]]:
    """(dotted name, (rule, whether required)) of every option in a block of a schema; the forms of an array are not told again."""
    for name, rule in block.get("properties", {}).items():
        yield prefix + name, (rule, name in block.get("required", []))
        if not is_array(rule):
            yield from walk(rule, f"{prefix}{name}.")


def row(name: str, rule: dict, required: bool) -> str:
    """The line of one option."""
    cells = (f"`{name}`", kind(rule), default(rule, required), rule["description"])
    return " | ".join(["", *(cell.replace("|", r"\|") for cell in cells), ""]).strip() + "\n"


def kind(rule: dict) -> str:
    """What an option takes, in words."""
    if is_array(rule):
        return "array"
    types = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    return either([word for name in types for word in WORDS[name](rule)])


def either(words: list[str]) -> str:
    """`a`, `b` or `c`."""
    return " or ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])


def texts(rule: dict) -> list[str]:
    """The texts that an option takes: those of its enum or its pattern, or any."""
    pattern = rule.get("pattern", "")
    if pattern.startswith("^[a"):
        return ["name"]
    choices = rule.get("enum") or re.sub(r"^\^\(?|\)?\$$|\\", "", pattern).split("|")
    if choices != [""] and not pattern.startswith("^[^"):
        return [f"`{choice}`" for choice in choices]
    return [f"text of at most {rule['maxLength']} letters" if "maxLength" in rule else "text"]


def numbers(word: str, rule: dict) -> list[str]:
    """`word` with the range of a number."""
    least, most, above = (rule.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    ranges = {f", {plain(least)} to {most}": most is not None, f" ≥ {least}": least is not None, f" > {above}": above is not None}
    return [word + next((text for text, holds in ranges.items() if holds), "")]


def plain(number: float | None) -> str:
    """A number without an exponent."""
    return "" if number is None else f"{number:.6f}".rstrip("0").rstrip(".")


def items(rule: dict) -> list[str]:
    """A list and what it holds, where the schema says one thing of it."""
    inner, a = rule.get("items", {}), "list" if rule["type"] == "array" else "a list"
    if "type" not in inner:
        return [a]
    if isinstance(inner["type"], list):
        return [f"{a} of {', '.join(texts(inner))}, or mappings"]
    if "enum" in inner:
        return [f"{a} of {', '.join(texts(inner))}"]
    words = {"string": re.sub("^(text|name)", r"\1s", texts(inner)[0]), "integer": numbers("whole numbers", inner)[0]}
    return [f"{a} of {words[inner['type']]}"]


WORDS = {
    "string": texts,
    "boolean": lambda rule: ["`true`", "`false`"],
    "integer": lambda rule: numbers("whole number", rule),
    "number": lambda rule: numbers("a number" if "string" in rule["type"] else "number", rule),
    "array": items,
    "object": lambda rule: ["mapping" if rule["type"] == "object" else "a mapping"],
}


def default(rule: dict, required: bool) -> str:
    """What holds where an option is not given."""
    if required:
        return "required"
    if "otherwise" in rule:
        return rule["otherwise"]
    value = rule.get("default")
    if value is None:
        return "none"
    if value == {} and "properties" in rule:
        return "as below"
    return f"`{value if isinstance(value, str) and value else json.dumps(value).replace('e-0', 'e-')}`"


def printed(page: str) -> str:
    """The page with its tables of options, and the names taken by folders, as schemas and code have them.

    Raises ValueError with the keys of rows that no schema knows, and with the options that stand in no table, or in two.
    """
    known, seen = options(), []

    def table(match: re.Match) -> str:
        keys = re.findall(r"^\| `([^`]+)` \|", match[0], re.MULTILINE)
        seen.extend(keys)
        return "".join(row(key, *known[key]) for key in keys if key in known)

    page = TABLE.sub(table, page)
    if wrong := sorted(set(seen) - set(known)):
        raise ValueError(f"config/README.md: no schema has {', '.join(wrong)}; write the option into its schema, or remove the row")
    if wrong := sorted({key for key in known if seen.count(key) != 1}):
        raise ValueError(f"config/README.md: {', '.join(wrong)} should stand in one table, once; add or remove a row | `key` |")
    return NAMES.sub(", ".join(f"`{name}`" for name in RESERVED), page)


if __name__ == "__main__":
    guide = ROOT / "config" / "README.md"
    try:
        guide.write_text(printed(guide.read_text("utf-8")), "utf-8")
    except ValueError as error:
        sys.exit(str(error))
