"""From config/ to fully resolved cases: read, check against the schemas, follow `extends`, resolve.

Everything wrong with the config and with all its suites is collected and raised at once as `Problems`.
"""

import difflib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cases import resolve
from strict_yaml import Document, Problem, Problems, kind

NAME = re.compile(r"[a-z0-9_]+")
RESERVED = ("archive", "logs", "studies", "conformance", "judge")  # folders of results/ that are not suites
NOT_INHERITED = ("title", "look", "extends", "claims")
SCHEMAS = Path(__file__).parent.parent / "schemas"


def load_config(path: Path, overrides: dict) -> dict:
    """The checked config: the file at `path`, what the command line gave (`overrides`) over it, defaults under it.

    Raises `Problems`.
    """
    document = Document(path, path.as_posix())
    schema = _schema("config")
    data = document.data
    problems = []
    if not isinstance(data, dict):
        message = f"holds {kind(data)}, should hold a mapping such as `suites: all`"
        raise Problems([Problem(document.name, None, None, None, message)])
    for source, values, line in ((document.name, data, document.line), ("--config", overrides, lambda _: None)):
        for where, message in _violations(schema, values):
            problems.append(Problem(source, line(where), None, _dotted(where), message))
    if problems:
        raise Problems(problems)
    config = {}
    for key, rule in schema["properties"].items():
        value = overrides.get(key, data.get(key, rule["default"]))
        if rule["type"] == "object":
            inner = {name: sub["default"] for name, sub in rule["properties"].items()}
            value = inner | data.get(key, {}) | overrides.get(key, {})
        config[key] = value
    return config


def load_suites(config: dict, folder: Path) -> dict[str, dict]:
    """Every suite that `config` names, from `folder`, by name: {description, figures, files, cases}. Raises `Problems`."""
    found = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    problems = [Problem(path.as_posix(), None, None, None, "suites end in .yaml; rename the file") for path in sorted(folder.glob("*.yml"))]
    names = list(found) if config["suites"] == "all" else config["suites"]
    if not names:
        problems.append(Problem(folder.as_posix(), None, None, None, "holds no suite; add one, as config/README.md shows"))
    suites = {}
    for name in names:
        try:
            if name not in found:
                raise Problems([Problem("config", None, None, "suites", f"no suite {name} in {folder}{_did_you_mean(name, found)}")])
            suites[name] = load_suite(found[name], config["limits"])
        except Problems as error:
            problems += error.problems
    if problems:
        raise Problems(problems)
    return suites


def load_suite(path: Path, limits: dict) -> dict:
    """One suite: {name, description, figures: [case], files: [parameter files], cases: {name: resolved case}}.

    `limits` is the config's. Raises `Problems`.
    """
    document = Document(path, path.as_posix())
    suite = _Suite(document, path, limits)
    if suite.problems:
        raise Problems(sorted(suite.problems, key=lambda p: p.line or 0))
    return suite.result


class _Suite:
    """The loading of one suite: `problems` found, and `result` if there are none."""

    def __init__(self, document: Document, path: Path, limits: dict):
        self.document, self.problems = document, []
        self.schema = _schema("suite")
        self.case_schema = {"$defs": self.schema["$defs"], **self.schema["$defs"]["case"]}
        data = document.data
        if not NAME.fullmatch(path.stem) or path.stem in RESERVED:
            message = f"suites are called by small letters, digits and _, and not {', '.join(RESERVED)}; rename the file"
            self._report((), message)
        if not isinstance(data, dict):
            self._report((), f"holds {kind(data)}, should hold a mapping with `cases:`")
            return
        for where, message in _violations(self.schema, data):
            self._report(where, message)
        self.raw = data.get("cases")
        self.raw = {n: c for n, c in self.raw.items() if isinstance(c, dict)} if isinstance(self.raw, dict) else {}
        cases = {name: self._case(name, path, limits) for name in self.raw}
        figures = data.get("figures", "all")
        for i, name in enumerate(figures if isinstance(figures, list) else []):
            if name not in self.raw:
                self._report(("figures", i), f"no case {name} in this suite{_did_you_mean(str(name), self.raw)}")
        if not self.problems:
            specs = [spec for case in cases.values() for spec in case["parameters"].values()]
            files = [spec["file"] for spec in specs if isinstance(spec, dict) and "file" in spec]
            self.result = {
                "name": path.stem,
                "description": data.get("description", ""),
                "figures": {"all": list(cases), "none": []}[figures] if isinstance(figures, str) else figures,
                "files": sorted({(path.parent / file).as_posix() for file in files}),
                "cases": cases,
            }

    def _report(self, where: tuple, message: str, lineage: list[str] | None = None) -> None:
        """Note a problem at `where`; for a case, on the line of the case of its `lineage` that says it."""
        case, field = None, where
        if len(where) > 1 and where[0] == "cases":
            case, field = where[1], where[2:]
        places = [("cases", name, *field) for name in lineage or []] + [where]
        place = next((p for p in places if self.document.has(p)), None)
        if place is None:  # say it where the nearest thing around it stands
            place = next((p for p in places if field and self.document.has(p[:3])), where)
        problem = Problem(self.document.name, self.document.line(place), case, _dotted(field), message)
        if not any((p.line, p.field, p.message) == (problem.line, problem.field, message) for p in self.problems):
            self.problems.append(problem)

    def _lineage(self, name: str) -> list[str] | None:
        """The case, the one it extends, and so on; None if a link is wrong (which is reported)."""
        lineage = [name]
        while "extends" in self.raw[lineage[-1]]:
            parent = self.raw[lineage[-1]]["extends"]
            where = ("cases", lineage[-1], "extends")
            if not isinstance(parent, str) or parent not in self.raw:
                known = parent if isinstance(parent, str) else kind(parent)
                self._report(where, f"no case {known} in this suite{_did_you_mean(str(parent), self.raw)}")
                return None
            if parent in lineage:
                self._report(("cases", name, "extends"), f"goes in a circle: {' -> '.join([*lineage, parent])}")
                return None
            lineage.append(parent)
        return lineage

    def _case(self, name: str, path: Path, limits: dict) -> dict | None:
        lineage = self._lineage(name)
        if lineage is None:
            return None
        merged: dict = {}
        for ancestor in reversed(lineage):
            own = {k: v for k, v in self.raw[ancestor].items() if k not in NOT_INHERITED or ancestor == name}
            merged = self._merge(merged, own, ("cases", ancestor))
        merged.pop("extends", None)

        def report(where: tuple, message: str) -> None:
            self._report(("cases", name, *where), message, lineage)

        before = len(self.problems)
        violations = list(_violations(self.case_schema, merged))
        for where, message in violations:
            report(where, message)
        if violations or len(self.problems) > before:
            return None
        return resolve(merged, path.stem, name, path.parent, limits, report)

    def _merge(self, base: dict, change: dict, where: tuple) -> dict:
        """`change` over `base`: mappings of a case key by key, all else replaced whole; null removes."""
        result = dict(base)
        for key, value in change.items():
            if value is None:
                if result.pop(key, None) is None:
                    self._report((*where, key), "null removes what a case inherits, but nothing is inherited here; leave the key out")
            elif isinstance(value, dict) and len(where) == 2:
                result[key] = self._merge(base.get(key) or {}, value, (*where, key)) if isinstance(base.get(key, {}), dict) else value
            else:
                result[key] = value
        return result


def _schema(name: str) -> dict:
    path = SCHEMAS / f"{name}.schema.yaml"
    return Document(path, path.name).data


def _violations(schema: dict, value: Any) -> Iterator[tuple[tuple, str]]:
    """Each (path, message) where `value` does not fit `schema`."""
    import jsonschema

    finite = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, v: isinstance(v, int) and not isinstance(v, bool),
            "number": lambda _, v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v),
        }
    )
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=finite)
    for error in validator(schema).iter_errors(value):
        yield from _explain(error)


def _explain(error) -> Iterator[tuple[tuple, str]]:
    """A jsonschema error as (path, message) in words of the user."""
    where, value, rule = tuple(error.absolute_path), error.instance, error.validator_value
    got = f"{kind(value)} ({value})" if isinstance(value, str | int | float) else kind(value)
    match error.validator:
        case "additionalProperties":
            known = error.schema["properties"]
            for key in [key for key in value if key not in known]:
                yield (*where, key), f"unknown key{_did_you_mean(key, known)}"
        case "type":
            names = {"array": "a list", "object": "a mapping", "string": "text", "number": "a finite number", "integer": "a whole number"}
            hint = "; write it as 1.0e-9, since 1e-9 is text on the command line" if isinstance(value, str) and _numeric(value) else ""
            yield where, f"is {got}, should be {' or '.join(names[t] for t in ([rule] if isinstance(rule, str) else rule))}{hint}"
        case "pattern" if "[" in rule:
            where = where if error.parent is None else (*where, value)
            yield where, f"the name {value!r} may hold only small letters, digits and _"
        case "propertyNames":
            yield (*where, value), f"the name {value!r} may hold only small letters, digits and _"
        case "pattern":
            choices = re.sub(r"[\^$\\]|^\^?\(|\)\$$", "", rule).split("|")
            yield where, f"is {value!r}, should be {' or '.join(choices)}{_did_you_mean(value, choices, ' ')}"
        case "enum":
            yield where, f"is {value!r}, should be one of {', '.join(rule)}"
        case "required":
            for key in [key for key in rule if key not in value]:
                yield where, f"{key} is missing; add it"
        case "minItems" | "minProperties":
            yield where, "is empty; give at least one"
        case "maxProperties":
            yield where, f"says {' and '.join(map(str, value))}; choose one"
        case "uniqueItems":
            yield where, "names something twice; name each once"
        case "minimum":
            yield where, f"is {value}, should be at least {rule}"
        case "exclusiveMinimum":
            yield where, f"is {value}, should be more than {rule}"
        case "maximum":
            yield where, f"is {value}, should be at most {rule}"
        case _:
            yield where, error.message


def _numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _did_you_mean(word: str, known, otherwise: str | None = None) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return (f"; known: {', '.join(known)}" if known else "") if otherwise is None else otherwise.strip()


def _dotted(path: tuple) -> str | None:
    return ".".join(map(str, path)) or None
