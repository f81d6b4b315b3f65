"""YAML read strictly: what is written is what is meant, or it is a problem with a line number.

Numbers follow YAML 1.2 (`1e-3` is a number). A plain scalar that YAML 1.1 and 1.2 read differently (`no`, `010`,
`1_000`, a date) is refused instead of guessed. Duplicate keys, tags and merge keys are refused. UTF-8 in every locale.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$")
CONSTANTS = {"null": None, "~": None, "": None, "true": True, "false": False}
AMBIGUOUS = re.compile(
    r"(yes|no|on|off|null|true|false)$"  # 1.1 booleans, and constants in unusual capitals
    r"|[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?$"  # 010, 1_000
    r"|0[xob][0-9a-f_]+$"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$"  # 1:30 is ninety in YAML 1.1
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the input.

    Printed as one line: file, line, case, field, what is wrong and what would be right.
    """

    file: str
    line: int | None
    case: str | None
    field: str | None
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        named = [f"case {self.case}"] * bool(self.case) + [self.field] * bool(self.field)
        text = ": ".join([where, *map(str, named), self.message])
        return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


class Problems(Exception):
    """Raised with every `Problem` found, once all input has been looked at."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


class _Loader(yaml.CSafeLoader):
    """Composes nodes only; `resolve` leaves every scalar as text and says whether it was quoted."""

    def resolve(self, kind, value, implicit):
        if kind is yaml.ScalarNode:
            return "plain" if implicit[0] else "quoted"
        return kind.id


class Document:
    """A YAML file as plain Python values (`data`), able to say on which line each of them stands."""

    def __init__(self, path: Path, name: str):
        """Read `path`; problems call the file `name`. Raises `Problems`."""
        self.name = name
        self.problems: list[Problem] = []
        self._built: dict[int, Any] = {}  # by node, so that an alias is the same object and is read once
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            byte = error.object[error.start]
            self._fail(line, f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8")
        except OSError as error:
            self._fail(None, f"cannot be read: {error.strerror}")
        try:
            self.root = _Loader(text).get_single_node()
            self.data = self._value(self.root, ()) if self.root else None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._fail(mark.line + 1 if mark else None, f"not YAML: {error.problem or error.context}")
        except yaml.YAMLError as error:
            line = text[: getattr(error, "position", None) or 0].count("\n") + 1
            self._fail(line, f"not YAML: {getattr(error, 'reason', error)}")
        except RecursionError:
            self._fail(None, "nested too deeply; a parameter has at most four dimensions")
        if self.problems:
            raise Problems(self.problems)

    def line(self, path: tuple) -> int | None:
        """Line of the value at `path` (keys and indices), or of the nearest thing around it that exists."""
        node, line = self.root, None
        for step in path:
            if isinstance(node, yaml.MappingNode):
                found = [(k, v) for k, v in node.value if k.value == str(step)]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                found = [(node.value[step], node.value[step])]
            else:
                found = []
            if not found:
                break
            key, node = found[0]
            line = key.start_mark.line + 1
        return line

    def has(self, path: tuple) -> bool:
        """Whether the file itself holds something at `path`."""
        value = self.data
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return False
        return True

    def _fail(self, line: int | None, message: str):
        raise Problems([*self.problems, Problem(self.name, line, None, None, message)])

    def _problem(self, node: yaml.Node, path: tuple, message: str) -> None:
        case = path[1] if len(path) > 1 and path[0] == "cases" else None
        field = ".".join(map(str, path[2:] if case else path)) or None
        self.problems.append(Problem(self.name, node.start_mark.line + 1, case, field, message))

    def _value(self, node: yaml.Node, path: tuple) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) not in self._built:
            self._built[id(node)] = self._collection(node, path)
        return self._built[id(node)]

    def _collection(self, node: yaml.Node, path: tuple) -> list | dict:
        if node.tag not in ("sequence", "mapping"):
            self._problem(node, path, f"tag {node.tag} is not supported; write the plain value")
        if isinstance(node, yaml.SequenceNode):
            return [self._value(child, (*path, i)) for i, child in enumerate(node.value)]
        result, lines = {}, {}
        for key_node, child in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, path, "a key is a list or a mapping; keys are names")
                continue
            if key_node.tag == "plain" and key_node.value == "<<":
                self._problem(key_node, path, "merge keys (<<) are not supported; use `extends`")
                continue
            key, before = self._scalar(key_node, (*path, key_node.value)), len(self.problems)
            if not isinstance(key, str) and before == len(self.problems):
                self._problem(key_node, path, f'name {key_node.value} reads as {kind(key)}; quote it: "{key_node.value}"')
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in lines:
                self._problem(key_node, (*path, key), f"duplicate key, first on line {lines[key]}; keep one of them")
            lines.setdefault(key, line)
            result[key] = self._value(child, (*path, key))
        return result

    def _scalar(self, node: yaml.ScalarNode, path: tuple) -> Any:
        text = node.value
        if node.tag == "quoted":
            return text
        if node.tag != "plain":
            self._problem(node, path, f"tag {node.tag} is not supported; write the plain value")
        elif INTEGER.match(text):
            return int(text) if len(text) < 4000 else math.inf
        elif FLOAT.match(text):
            return float(text)
        elif text in CONSTANTS:
            return CONSTANTS[text]
        elif special := SPECIAL.match(text):
            return math.nan if special[3] else float(special[1] + "inf")
        elif AMBIGUOUS.match(text):
            self._problem(node, path, f'{text} changes its meaning between YAML versions; quote it ("{text}") or write it out')
        return text


def kind(value: Any) -> str:
    """What a person would call the type of a loaded value: 'text', 'a number', 'a list' …"""
    if isinstance(value, bool):
        return "a boolean"
    names = {type(None): "nothing (null)", str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return names[type(value)]
