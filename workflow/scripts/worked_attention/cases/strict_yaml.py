"""YAML read strictly: what is written is what is meant, or it is a problem with a line number.

Numbers follow YAML 1.2 (`1e-3` is a number). A plain scalar that YAML 1.1 and 1.2 read differently (`no`, `010`,
`1_000`, a date) is refused instead of guessed. So are keys without a value, duplicate keys, tags, merge keys, and aliases
that nest without end or make much of little. UTF-8 in every locale.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from worked_attention.cases.escapes import printable
from worked_attention.cases.words import short

INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$")
CONSTANTS = {"null": None, "~": None, "true": True, "false": False}
LARGEST_INTEGER = 2**63 - 1
DEEPEST = 20  # levels; a number in a parameter of four dimensions stands on the eighth
MOST_REPEATED = 1_000_000  # values that aliases may add to those written
HINTS = {  # what would be right, by words of the parser's complaint
    "mapping values are not allowed": 'quote a text that holds ": ", and write one key a line, with a space behind its colon',
    "could not find expected ':'": "write a colon and a space between a key and its value, as in heads: 2",
    "cannot start any token": "quote a text that begins so",
    "expected ',' or": "put a comma, or close the bracket",
    "expected node content": "put a value, or close the bracket",
    "expected key": "begin keys of one mapping in one column, and quote a text that holds quotes",
    "expected '-'": "begin items of one list in one column",
    "end of stream": "close the quote",
    "undefined alias": "write the anchor (&name) before its alias (*name)",
    "nesting depth": "a parameter has at most four dimensions",
    "another document": "remove the line ---",
    "escape": "use single quotes, where \\ is a plain character",
    "control characters": "save the file as plain text",
}
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
        named = [f"case {short(self.case)}"] * bool(self.case) + [short(self.field)] * bool(self.field)
        text = ": ".join([where, *named, self.message])
        return printable(text)


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
    """A YAML file as plain Python values (`data`), able to say on which line each of them stands.

    `problems` lists what is not plain in it (such values are kept as text). A file that is no YAML at all raises `Problems`.
    """

    def __init__(self, path: Path, name: str):
        """Read `path`; problems call the file `name`."""
        self.name = name
        self.problems: list[Problem] = []
        self._built: dict[int, tuple[Any, int]] = {}  # value and size by node, so that an alias is the same object and is read once
        self._size = 0  # values so far, those that aliases repeat included
        try:
            self._text = text = path.read_bytes().decode("utf-8-sig")
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
            self._fail(*_complaint(error, text))
        except yaml.YAMLError as error:
            line = text[: getattr(error, "position", None) or 0].count("\n") + 1
            reason = getattr(error, "reason", str(error))
            self._fail(line, f"not YAML: {reason}{_hint(reason)}")

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
        start, line = self._size, node.start_mark.line + 1
        if id(node) in self._built:
            value, size = self._built[id(node)]
            self._size += size
        elif isinstance(node, yaml.ScalarNode):
            value, wrong = _read(node)
            self._size += 1
            if wrong:
                self._problem(node, path, wrong)
        elif len(path) > DEEPEST:
            self._fail(line, "nested too deeply, or an alias that holds itself; a parameter has at most four dimensions")
        else:
            value = self._collection(node, path)
            self._built[id(node)] = value, self._size - start
        if self._size > len(self._text) + MOST_REPEATED:
            self._fail(line, f"aliases repeat more than {MOST_REPEATED:,} values; write out what is meant")
        return value

    def _collection(self, node: yaml.Node, path: tuple) -> list | dict:
        if node.tag not in ("sequence", "mapping"):
            self._problem(node, path, f"{_tag(node)} is not supported; write the plain value")
            return []
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
            key, line = key_node.value, key_node.start_mark.line + 1
            value, wrong = _read(key_node)
            if wrong or not isinstance(value, str):
                message = f'the name {short(key)} is not text in every version of YAML; quote it: "{short(key)}"'
                self._problem(key_node, (*path, key), message)
            if key in lines:
                self._problem(key_node, (*path, key), f"duplicate key, first on line {lines[key]}; keep one of them")
            lines.setdefault(key, line)
            if child.value == "" and (glued := re.fullmatch(r"(\w+)[: ](.+)", key)):  # {heads:2} and {heads 2} are a key without a value
                self._problem(key_node, (*path, key), f"has no value; write a colon and a space: {short(f'{glued[1]}: {glued[2]}')}")
                continue
            result.setdefault(key, self._value(child, (*path, key)))
        return result


def _read(node: yaml.ScalarNode) -> tuple[Any, str | None]:
    """The value of a scalar, and what is wrong with it (it is then its text)."""
    if node.tag == "quoted" or (node.tag == "plain" and node.style):
        return node.value, None
    if node.tag != "plain":
        return node.value, f"{_tag(node)} is not supported; write the plain value"
    return read_plain(node.value)


def read_plain(text: str) -> tuple[Any, str | None]:
    """The value of a text without quotes, and what is wrong with it (it is then the text)."""
    if INTEGER.match(text):
        if len(text) <= 20 and abs(int(text)) <= LARGEST_INTEGER:
            return int(text), None
        ends = f"seeds and sizes end at {LARGEST_INTEGER}, and a number of a parameter beyond it is written 1.0e+25"
        return text, f"{short(text)} is too large; {ends}"
    if FLOAT.match(text):
        return float(text), None
    if text in CONSTANTS:
        return CONSTANTS[text], None
    if special := SPECIAL.match(text):
        return math.nan if special[3] else float(special[1] + "inf"), None
    if AMBIGUOUS.match(text):
        plain = "true, false or null" if text.isalpha() else "a plain number such as 10 or 0.5"
        return (
            text,
            f'{short(text)} changes its meaning between YAML versions; quote it if it is text ("{short(text)}"), else write {plain}',
        )
    return text, None if text else "has no value; write one, or null to remove what is inherited"


def _complaint(error: yaml.MarkedYAMLError, text: str) -> tuple[int | None, str]:
    """Line and message for what the YAML parser says."""
    mark = error.problem_mark
    line = "".join(text.splitlines()[mark.line : mark.line + 1])
    begun = f" {error.context} that begins on line {error.context_mark.line + 1}:" if error.context else ""
    hint = "; indent with spaces, not with tabs" if line[mark.column : mark.column + 1] == "\t" else _hint(error.problem)
    return mark.line + 1, f"not YAML:{begun} {error.problem}{hint}"


def _hint(complaint: str) -> str:
    return next((f"; {hint}" for words, hint in HINTS.items() if words in complaint), "")


def _tag(node: yaml.Node) -> str:
    return f"tag {short(node.tag.replace('tag:yaml.org,2002:', '!!'))}"
