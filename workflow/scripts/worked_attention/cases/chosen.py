"""Which cases are meant: of the suites that come with the project, or of somebody's own suite files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import worked_attention
from worked_attention.cases.options import filled, schema
from worked_attention.cases.suites import load_suite
from worked_attention.cases.words import did_you_mean, short


@dataclass
class Chosen:
    """Loaded suites by name with the cases that are meant, the folder of each one's parameter files, and `suite/case` of the others."""

    suites: dict[str, dict]
    folders: dict[str, Path]
    others: frozenset[str]


def shipped() -> dict[str, Path]:
    """The suites that come with the project, by name: packed with an installed package, in config/ of a checkout."""
    packed = Path(worked_attention.__file__).parent / "suites"
    folder = packed if packed.is_dir() else packed.parents[3] / "config" / "suites"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def chosen(suites: Sequence[str], globs: Sequence[str]) -> Chosen:
    """The cases that fit one of the `globs` (`masks/*`) in one of the `suites` (names, or paths of .yaml files); none given means all.

    Raises ValueError if a suite or a case is not there, and Problems if a suite cannot be read.
    """
    known = shipped()
    for glob in globs:
        if "/" not in glob:
            raise ValueError(f"case {short(glob)}: should be suite/case, such as handworked/two_heads or masks/*")
    paths = {}
    for suite in suites or [name for name in known if not globs or any(fnmatchcase(name, glob.partition("/")[0]) for glob in globs)]:
        path = Path(suite) if suite.endswith(".yaml") else known.get(suite)
        if path is None:
            raise ValueError(f"suite {short(suite)}: there is no such suite{did_you_mean(suite, known)}; a file of your own ends in .yaml")
        if paths.setdefault(path.stem, path) != path:
            raise ValueError(f"suite {suite}: another one is called {path.stem}, too; rename the file")
    limits = filled(schema("config"), {})["limits"] | {"max_truth_mb": math.inf}  # who chooses cases here asks for no exact numbers
    loaded = {name: load_suite(path, limits) for name, path in paths.items()}
    keys = [f"{suite}/{case}" for suite, content in loaded.items() for case in content["cases"]]
    for glob in globs:
        if not any(fnmatchcase(key, glob) for key in keys):
            if any(fnmatchcase(suite, glob.partition("/")[0]) for suite in known if suite not in loaded):
                raise ValueError(f"case {short(glob)}: is in no suite that is asked for ({', '.join(loaded)}); add its suite, or name none")
            raise ValueError(f"case {short(glob)}: there is no such case{did_you_mean(glob, keys or known)}")
    meant = {key for key in keys if not globs or any(fnmatchcase(key, glob) for glob in globs)}
    for suite, content in loaded.items():
        content["cases"] = {name: case for name, case in content["cases"].items() if f"{suite}/{name}" in meant}
    found = {suite: content for suite, content in loaded.items() if content["cases"]}
    return Chosen(found, {suite: paths[suite].parent for suite in found}, frozenset(keys) - meant)
