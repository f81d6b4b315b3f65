"""The options of configs and suites, as the schemas state them: each default is written there and nowhere else.

Two keywords of ours stand in the schemas: `otherwise` says in words what holds where an option without a constant default is
not given, `only_for: {OTHER: [KIND]}` that an option belongs to these kinds of another option beside it.
"""

from functools import cache
from pathlib import Path
from typing import Any

from worked_attention.cases.strict_yaml import Document

SCHEMAS = Path(__file__).parent.parent / "schemas"


@cache
def schema(name: str) -> dict:
    """A schema with every `$ref: "#/$defs/NAME"` replaced by what it names, which is quicker than to follow it for each case."""
    path = SCHEMAS / f"{name}.schema.yaml"
    stated = Document(path, path.name).data

    def inlined(node: Any) -> Any:
        if isinstance(node, list):
            return [inlined(item) for item in node]
        if not isinstance(node, dict):
            return node
        named = inlined(stated["$defs"][node["$ref"].rsplit("/", 1)[1]]) if "$ref" in node else {}
        return named | {key: inlined(item) for key, item in node.items() if key != "$ref"}

    return inlined(stated)


def applies(rule: dict, given: dict) -> bool:
    """Whether an option belongs to what stands beside it. rule: of the option; given: its block, where the other options stand."""
    return "only_for" not in rule or all(given.get(other) in kinds for other, kinds in rule["only_for"].items())


def filled(block: dict, given: dict) -> dict:
    """`given` with every option of the schema `block`: its default where it is not given, None where it has none.

    Of forms that exclude each other (`maxProperties: 1`, at the latest as `else`) only the given one is there.
    """
    exclusive = block.get("else", block).get("maxProperties") == 1
    whole = {}
    for name, rule in block["properties"].items():
        if name in given or not exclusive:
            value = given[name] if name in given else rule.get("default") if applies(rule, given) else None
            whole[name] = filled(rule, value) if isinstance(value, dict) and "properties" in rule else value
    return whole


NOT_INHERITED = ("title", "look", "source", "extends", "claims")  # what each case says for itself
DESCRIBING = (
    "title",
    "look",
    "source",
    "extends",
    "sweep",
    "tokens",
    "key_tokens",
    "sizes",
    "parameters",
    "torch_draws",
    "claims",
)  # what a case is, not what it does


def uses(options: dict) -> list[str]:
    """The options of a case that are not as they are by default, `block` or `block.option`, in the order of the schema.

    options: complete, as `filled` returns them. Arrays among them (of masks) are parameters and are not listed.
    """
    found = []
    for name, rule in schema("suite")["$defs"]["case"]["properties"].items():
        value = options[name]
        usual = rule.get("default", options.get(str(rule.get("otherwise")).strip("`")))  # another option of the case, for one
        if name in DESCRIBING or value is None or value == usual:
            continue
        inner = rule.get("properties", {}) if isinstance(value, dict) else {}
        found += [] if inner and rule.get("default") == {} else [name]
        found += [f"{name}.{key}" for key in inner if value[key] not in (None, inner[key].get("default")) and not is_array(inner[key])]
    return found


def is_array(rule: dict) -> bool:
    """Whether an option is an array that a case gives."""
    return "file" in rule.get("properties", {})
