"""From config/ to fully resolved cases: read, check against the schemas, write sweeps out, follow `extends`, resolve.

Everything wrong with the config and with all its suites is collected and raised at once as `Problems`.
"""

import math
import re
from pathlib import Path
from typing import Any

from worked_attention.cases.costs import truth_megabytes
from worked_attention.cases.fitting import STUDIES, fitting, undrawable
from worked_attention.cases.options import NOT_INHERITED, filled, schema
from worked_attention.cases.resolve import FORMAT, resolve
from worked_attention.cases.strict_yaml import LARGEST_INTEGER, Document, Problem, Problems, read_plain
from worked_attention.cases.sweeps import Combination, expanded
from worked_attention.cases.violations import violations
from worked_attention.cases.words import did_you_mean, kind, short, shown
from worked_attention.stages.rows import looked_at

NAME = re.compile(r"[a-z0-9_]+")
RESERVED = (  # folders of results/
    *("archive", "logs", "studies", "conformance", "judge", "export", "power", "onnx_node_tests", "questions", "worksheets", "grades"),
    *("reproduce", "compare"),
)
UNLIMITED = dict.fromkeys(("max_array_mb", "max_whole_mb", "max_truth_mb", "max_sweep_cases"), math.inf)  # for who checked before


def load_config(path: Path, overrides: dict) -> dict:
    """The checked config: the file at `path`, what the command line gave (`overrides`) over it, defaults under it.

    Raises `Problems`.
    """
    document = Document(path, path.as_posix())
    options = schema("config")
    data = document.data
    problems = list(document.problems)
    overrides = _as_meant(overrides, options)
    if not isinstance(data, dict):
        problems.append(Problem(document.name, None, None, None, f"{_holds(data)}, should hold a mapping such as `suites: all`"))
        raise Problems(problems)
    for source, values, line in ((document.name, data, document.line), ("--config", overrides, lambda _: None)):
        for where, message in violations(options, values):
            problem = Problem(source, line(where), None, _dotted(where), message)
            if not _said(problem, document.problems):
                problems.append(problem)
    if problems:
        raise Problems(problems)
    inner = {key: data.get(key, {}) | value for key, value in overrides.items() if isinstance(value, dict)}
    return filled(options, data | overrides | inner)


def _as_meant(given: Any, rule: dict) -> Any:
    """`given` as its schema asks for it: Snakemake makes text of `true` and of numbers in mappings, and null of an empty text."""
    if isinstance(given, dict):
        known = rule.get("properties", {})
        return {key: _as_meant(value, known.get(key, {})) for key, value in given.items()}
    if isinstance(given, list):
        return [_as_meant(item, {}) for item in given]
    if isinstance(given, int) and abs(given) > LARGEST_INTEGER:
        return math.inf if given > 0 else -math.inf  # which no option takes; Python does not even print what is longer than 4,300 digits
    if given is None and rule.get("default") == "":
        return ""
    if isinstance(given, str) and rule.get("type") == "boolean":
        return {"true": True, "false": False}.get(given.lower(), given)
    if isinstance(given, str) and rule.get("type") in ("number", "integer"):
        value, wrong = read_plain(given)
        return value if wrong is None else given
    return given


def suites_in(folder: Path) -> dict[str, Path]:
    """The files of suites in `folder` by name; a hidden file, such as some systems put beside each file that they copy, is none."""
    return {path.stem: path for path in sorted(folder.glob("[!.]*.yaml"))}


def load_suites(config: dict, folder: Path) -> dict[str, dict]:
    """Every suite that `config` names, from `folder`, by name: {description, figures, studies, files, cases}. Raises `Problems`."""
    found = suites_in(folder)
    misnamed = [path for path in sorted(folder.glob("[!.]*.[yY]*")) if path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml"]
    problems = [Problem(path.as_posix(), None, None, None, "the name of a suite ends in .yaml; rename the file") for path in misnamed]
    names = list(found) if config["suites"] == "all" else config["suites"]
    if not names and not misnamed:
        problems.append(Problem(folder.as_posix(), None, None, None, "holds no suite; add one, as config/README.md shows"))
    suites = {}
    for name in names:
        try:
            if name not in found:
                source = f"{(folder.parent / 'config.yaml').as_posix()} or --config"
                message = f"no suite {short(name)} in {folder.as_posix()}{did_you_mean(name, found)}"
                raise Problems([Problem(source, None, None, "suites", message)])
            if name in RESERVED:
                message = f"the name {name} is taken by a folder of results/; rename the file"
                raise Problems([Problem(found[name].as_posix(), None, None, None, message)])
            suites[name] = load_suite(found[name], config["limits"])
        except Problems as error:
            problems += error.problems
    if problems:
        raise Problems(problems)
    return suites


def load_suite(path: Path, limits: dict) -> dict:
    """One suite: {format, name, description, figures: [case], studies: [study], files: [parameter files], cases: {name: resolved case},
    skipped: {name: why}}, the last being combinations of sweeps that are no cases.

    `limits` are those of the config; one that is left out is none. Raises `Problems`.
    """
    document = Document(path, path.as_posix())
    suite = _Suite(document, path, UNLIMITED | limits)
    if suite.problems:
        raise Problems(sorted(suite.problems, key=lambda p: p.line or 0))
    return suite.result


class _Suite:
    """The loading of one suite: `problems` found, and `result` if there are none."""

    def __init__(self, document: Document, path: Path, limits: dict):
        self.document, self.problems = document, list(document.problems)
        self.handed_down: dict[str, dict] = {}  # what a case hands down to those that extend it, by name
        self.swept: dict[str, Combination] = {}  # the cases that sweeps make, by name
        self.skipped: dict[str, tuple[tuple, str]] = {}  # of these, those that make no sense: where, and why
        self.told: set[tuple] = set()  # line, field and message of each problem
        data = document.data
        if not NAME.fullmatch(path.stem):
            self._report((), f"the name {path.stem} should have only small letters, digits and _; rename the file")
        if not isinstance(data, dict):
            self._report((), f"{_holds(data)}, should hold a mapping with `cases:`")
            return
        for where, message in violations(schema("suite"), data):
            self._report(where, message)
        self.raw = data.get("cases")
        self.raw = {n: c for n, c in self.raw.items() if isinstance(c, dict)} if isinstance(self.raw, dict) else {}
        unread = {problem.case for problem in document.problems}
        self.raw = {name: case for name, case in self.raw.items() if name not in unread or "sweep" not in case}
        self.raw, self.swept = expanded(self.raw, limits["max_sweep_cases"], self._report)
        cases = {name: self._case(name, path, limits) for name in self.raw}
        cases = self._left(cases)
        whole = filled(schema("suite"), data)
        if whole["references"] != "none":
            self._check_truth(cases, limits)
        figures, studies = whole["figures"], whole["studies"]
        for i, name in enumerate(figures if isinstance(figures, list) else []):
            if isinstance(name, str) and name not in cases:
                self._report(("figures", i), f"no case {name} in this suite{did_you_mean(name, cases)}")
        for i, study in enumerate([] if self.problems else studies):
            if isinstance(study, dict):
                for axis, wrong in undrawable(study["columns"], cases, whole["references"] != "none"):
                    self._report(("studies", i, "columns", axis), wrong)
            elif not fitting(study, cases):
                self._report(("studies", i), f"no case of this suite fits {study}: it needs {STUDIES[study][0]}")
        if not self.problems:
            specs = [spec for case in cases.values() for spec in case["parameters"].values()]
            files = [spec["file"] for spec in specs if isinstance(spec, dict) and "file" in spec]
            self.result = {
                "format": FORMAT,
                "name": path.stem,
                "description": whole["description"],
                "figures": {"all": list(cases), "none": []}[figures] if isinstance(figures, str) else figures,
                "studies": studies,
                "references": whole["references"],
                "files": sorted({(path.parent / file).as_posix() for file in files}),
                "cases": cases,
                "skipped": {name: ": ".join(filter(None, (_dotted(where), why))) for name, (where, why) in self.skipped.items()},
            }

    def _left(self, cases: dict[str, dict | None]) -> dict[str, dict | None]:
        """The cases without those that a sweep skips; each but the first of a sweep extends the first that is left.

        A choice that stands in no case that is left is a slip, and so is a case that extends one that is not.
        """
        left = {name: case for name, case in cases.items() if name not in self.skipped}
        standing = {choice for name in left if name in self.swept for choice in self._chosen(name)}
        for name, (where, why) in self.skipped.items():
            if lost := [choice for choice in self._chosen(name) if choice not in standing]:
                standing |= set(lost)
                why = f"{why}; no case is left with {self.swept[name].said(lost[0][1])}"
                self._report(("cases", name, *where), why, self._lineage(name))
        first: dict[str, str] = {}
        for name, case in left.items():
            if case and case["extends"] in self.skipped:
                self._report(("cases", name, "extends"), f"{case['extends']} is skipped: {self.skipped[case['extends']][1]}")
            if case and name in self.swept and first.setdefault(self.swept[name].sweep, name) != name:
                case["extends"] = first[self.swept[name].sweep]
        return left

    def _chosen(self, name: str) -> list[tuple[str, str, int]]:
        """(sweep, option, place in its list) of each choice of a case of a sweep."""
        return [(self.swept[name].sweep, option, place) for option, (place, _) in self.swept[name].chosen.items()]

    def _check_truth(self, cases: dict[str, dict | None], limits: dict) -> None:
        """Whether the exact numbers of a case need more memory than they may."""
        for name, case in cases.items():
            need = truth_megabytes(looked_at(case)) if case else 0
            if need > limits["max_truth_mb"]:
                limit = f"limits.max_truth_mb = {limits['max_truth_mb']:g}; make the case smaller, raise the limit or say references: none"
                self._report(("cases", name), f"its exact numbers would take about {need:,.0f} MB, more than {limit}")

    def _report(self, where: tuple, message: str, lineage: list[str] | None = None) -> None:
        """Note a problem at `where`; for a case, on the line of the case of its `lineage` that says it."""
        case, field, places = None, where, [where]
        if len(where) > 1 and where[0] == "cases":
            case, field = where[1], where[2:]
            places = [place for name in [*(lineage or []), case] for place in self._places(name, field)]
        place = next((p for p in places if self.document.has(p)), None)
        if place is None:  # say it where the nearest thing around it stands
            place = next((p for p in places if field and self.document.has(p[:3])), places[-1])
        line, again = self.document.line(place), len(self.told)
        self.told.add((line, field, message))
        if case in self.swept:
            message += f" (in the combination {self.swept[case]})"
        problem = Problem(self.document.name, line, case, _dotted(field), message)
        if len(self.told) > again and not _said(problem, self.document.problems):
            self.problems.append(problem)

    def _places(self, name: str, field: tuple) -> list[tuple]:
        """Where the file may say what a case has at `field`: in the case; for one of a sweep, among the choices, then in its case."""
        if name not in self.swept:
            return [("cases", name, *field)]
        return [("cases", self.swept[name].sweep, *place) for place in self.swept[name].places(field)]

    def _lineage(self, name: str) -> list[str] | None:
        """The case, the one it extends, and so on; None if a link is wrong (which is reported)."""
        lineage, seen = [name], {name}
        while "extends" in self.raw[lineage[-1]]:
            parent = self.raw[lineage[-1]]["extends"]
            where = ("cases", lineage[-1], "extends")
            if not isinstance(parent, str):
                self._report(where, f"is {shown(parent)}, should be the name of a case")
                return None
            if parent not in self.raw:
                others = [other for other in self.raw if other not in lineage]
                if made := next((other for other, combination in self.swept.items() if combination.sweep == parent), None):
                    self._report(where, f"{short(parent)} is a sweep and no case; extend one of its cases, such as {made}")
                else:
                    self._report(where, f"no case {short(parent)} in this suite{did_you_mean(parent, others)}")
                return None
            if parent in seen:
                circle = lineage[lineage.index(parent) :]
                first = circle.index(min(circle, key=list(self.raw).index))  # so that each circle is told once
                circle = circle[first:] + circle[: first + 1]
                self._report(("cases", circle[0], "extends"), f"goes in a circle: {' -> '.join(circle)}; remove one of these")
                return None
            lineage.append(parent)
            seen.add(parent)
        return lineage

    def _case(self, name: str, path: Path, limits: dict) -> dict | None:
        lineage = self._lineage(name)
        if lineage is None:
            return None
        merged: dict = {}
        for ancestor in reversed(lineage):
            if ancestor not in self.handed_down:
                own = {key: value for key, value in self.raw[ancestor].items() if key not in NOT_INHERITED}
                merged = self._merge(merged, own, ("cases", ancestor))
                self.handed_down[ancestor] = self.swept[ancestor].applied(merged) if ancestor in self.swept else merged
            merged = self.handed_down[ancestor]
        alone = {key: self.raw[name][key] for key in ("title", "look", "source", "claims") if key in self.raw[name]}
        merged = self._merge(merged, alone, ("cases", name))

        def report(where: tuple, message: str) -> None:
            self._report(("cases", name, *where), message, lineage)

        before = len(self.problems)
        wrong = list(violations(schema("suite")["$defs"]["case"], _unwritten(merged)))
        for where, message in wrong:
            report(where, message)
        unread = {problem.case for problem in self.document.problems}
        if wrong or len(self.problems) > before or not unread.isdisjoint(lineage):
            return None
        combination = self.swept.get(name)

        def left_out(where: tuple, why: str) -> None:
            if "limits." in why:  # too large here and now, and no nonsense
                report(where, why)
            else:
                self.skipped.setdefault(name, (where, why))

        skips = combination and combination.skip
        case = resolve(merged, path.stem, name, path.parent, limits, left_out if skips else report)
        sweep = combination and {"name": combination.sweep, "choices": combination.choices}
        return case and {**case, "extends": lineage[1] if len(lineage) > 1 else None, "sweep": sweep}

    def _merge(self, base: dict, change: dict, where: tuple) -> dict:
        """`change` over `base`: mappings of a case key by key, all else replaced whole; null removes."""
        result = dict(base)
        for key, value in change.items():
            if value is None:
                if result.pop(key, None) is None:
                    self._report((*where, key), "null removes what is inherited, but nothing is inherited here; leave the key out")
            elif isinstance(value, dict) and len(where) == 2:
                result[key] = self._merge(base.get(key) or {}, value, (*where, key)) if isinstance(base.get(key, {}), dict) else value
            else:
                result[key] = value
        return result


def _unwritten(case: dict) -> dict:
    """A case without the parameters that are lists: the schema has no more to say of these, and to ask it takes most of the time."""
    known, given = schema("suite")["$defs"]["case"]["properties"]["parameters"]["properties"], case.get("parameters")
    if not isinstance(given, dict):
        return case
    return case | {"parameters": {n: spec for n, spec in given.items() if not (spec and isinstance(spec, list) and n in known)}}


def _said(problem: Problem, problems: list[Problem]) -> bool:
    """Whether one of `problems` is about the same place."""
    return any(p.field == problem.field and (p.line == problem.line or p.case == problem.case) for p in problems)


def _holds(data: Any) -> str:
    return "is empty" if data is None else f"holds {kind(data)}"


def _dotted(path: tuple) -> str | None:
    return ".".join(map(str, path)) or None
