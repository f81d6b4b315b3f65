"""What a script imports of this project, as one digest, so that an edited module reruns its rules and a touched one does not.

Snakemake itself looks at the time of a script only, and at no module; profiles/default turns that off, for `code` says it better.
"""

import hashlib
import os
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
IMPORT = re.compile(r"^ *(?:from|import) +([\w.]+)(?: +import +(\([^)]*\)|.*))?", re.MULTILINE)


def ours_first() -> None:
    """Put this folder first on the path of jobs: Snakemake puts it last, where an installed worked_attention would be taken for ours."""
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *([others] if others else [])])


def code(script: str, *others: str, without: str = "") -> str:
    """A digest of `script` (a name in this folder, without .py), of the modules that it imports, and of `others` with theirs.

    others: paths from this folder, of modules that are imported by name at run time, or from the project's, of templates.
    without: a folder of the package that does not count, for what it makes has a digest of its own.
    """
    digest = hashlib.sha256()
    for path in modules(script, *others, without=without):
        digest.update(f"{path} {_digest(ROOT / path)}\n".encode())
    return digest.hexdigest()[:12]


def modules(script: str, *others: str, without: str = "") -> list[str]:
    """The paths that `code` digests, from the project's folder; sorted."""
    waiting = [HERE / f"{script}.py", *(HERE / other if other.endswith(".py") else ROOT / other for other in others)]
    found = set(waiting)
    left_out = HERE / "worked_attention" / without if without else None
    while waiting:
        for path in _imported(waiting.pop()) - found:
            if left_out not in path.parents:
                found.add(path)
                waiting.append(path)
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _imported(path: Path) -> frozenset[Path]:
    """The modules of this folder that one file names in its imports."""
    if path.suffix != ".py":
        return frozenset()
    names = set()
    for module, members in IMPORT.findall(path.read_text("utf-8")):
        names |= {module, *(f"{module}.{member}" for member in re.findall(r"\w+", members))}
    paths = {HERE.joinpath(*name.split(".")) for name in names}
    found = {path.with_suffix(".py") for path in paths if path.with_suffix(".py").is_file()}
    return frozenset(found | {HERE / folder / "__init__.py" for path in found for folder in path.relative_to(HERE).parents if folder.name})
