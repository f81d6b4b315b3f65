"""What a schema says against a value, in words of the user."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from worked_attention.cases.words import did_you_mean, number_advice, short, shown


def violations(schema: dict, value: Any) -> Iterator[tuple[tuple, str]]:
    """Each (path, message) where `value` does not fit `schema`."""
    for error in _validator()(schema).iter_errors(value):
        yield from _explain(error)


@cache
def _validator() -> type:
    """The class of jsonschema, with 2.0 no whole number and NaN and infinity no numbers; made once, for making it takes milliseconds."""
    import jsonschema

    strict = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, v: isinstance(v, int) and not isinstance(v, bool),
            "number": lambda _, v: isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= sys.float_info.max,
        }
    )
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=strict)


def _explain(error) -> Iterator[tuple[tuple, str]]:
    """A jsonschema error as (path, message) in words of the user."""
    where, value, rule = tuple(error.absolute_path), error.instance, error.validator_value
    if "propertyNames" in error.absolute_schema_path:
        limit = f"at most {rule} of them" if error.validator == "maxLength" else "nothing else"
        yield (*where, value), f"the name {short(value)!r} should have small letters, digits and _, {limit}"
        return
    match error.validator:
        case "additionalProperties":
            known = error.schema["properties"]
            for key in [key for key in value if key not in known]:
                yield (*where, key), f"unknown key{did_you_mean(key, known)}"
        case "type" | "pattern":
            yield where, f"is {shown(value)}, should be {_expected(error.schema, value)}"
        case "enum" if isinstance(value, str):
            yield where, f"is {shown(value)}, should be {' or '.join(rule)}"
        case "enum":
            pass  # the type is wrong, too, and says so
        case "required":
            for key in [key for key in rule if key not in value]:
                yield where, f"{key} is missing; add it"
        case "maxLength":
            yield where, f"has {len(value):,} letters, should have at most {rule}"
        case "minItems" | "minProperties":
            yield where, "is empty; give at least one"
        case "maxProperties":
            yield where, f"says {' and '.join(map(short, value))}; choose one"
        case "uniqueItems":
            twice = next(item for i, item in enumerate(value) if item in value[:i])
            yield where, f"names {shown(twice)} twice; name it once"
        case "minimum":
            yield where, f"is {value}, should be at least {rule}"
        case "exclusiveMinimum":
            yield where, f"is {value}, should be more than {rule}"
        case "maximum":
            yield where, f"is {value}, should be at most {rule}"
        case _:
            yield where, short(error.message)


def _expected(schema: dict, value: Any) -> str:
    """What `schema` takes, in words; with advice if `value` is a number in quotes."""
    names = {
        "array": "a list",
        "object": "a mapping",
        "string": "text",
        "number": "a finite number",
        "integer": "a whole number",
        "boolean": "true or false",
    }
    if "pattern" in schema:
        choices = re.sub(r"^\^\(?|\)?\$$|\\", "", schema["pattern"]).replace("|", " or ")
        sets = {"[^": "text without line ends and other control characters", "[a": "a name of small letters, digits and _"}
        names["string"] = sets.get(choices[:2], choices)
    if "enum" in schema:
        names["string"] = " or ".join(schema["enum"])
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    advice = ""
    if isinstance(value, str) and not {"number", "integer"}.isdisjoint(types):
        advice = number_advice(value)
    elif isinstance(value, str) and "array" in types and "object" not in types:
        advice = f"; write [{short(value)}]"
    return " or ".join(names[name] for name in types) + advice
