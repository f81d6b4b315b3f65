"""The options of configs and suites, as the schemas state them."""

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
