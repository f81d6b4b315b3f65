"""What a script imports of this project, so that an edited module reruns its rules (Snakemake itself notices edited scripts only)."""

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
REFERENCES = "worked_attention/references"
IMPORT = re.compile(r"^ *(?:from|import) +([\w.]+)(?: +import +(\([^)]*\)|.*))?", re.MULTILINE)


def modules(script: str) -> list[str]:
    """Paths of the modules that `script` (a name in this folder, without .py) imports, and those import in turn; sorted.

    The references are imported by name at run time, so whoever imports their registry counts as importing all of them.
    """
    found: set[Path] = set()
    waiting = [HERE / f"{script}.py"]
    while waiting:
        for path in _imported(waiting.pop()) - found:
            found.add(path)
            waiting.append(path)
    return sorted((Path("workflow/scripts") / path.relative_to(HERE)).as_posix() for path in found)


@cache
def _imported(path: Path) -> frozenset[Path]:
    """The modules of this folder that one file names in its imports."""
    names = set()
    for module, members in IMPORT.findall(path.read_text("utf-8")):
        names |= {module, *(f"{module}.{member}" for member in re.findall(r"\w+", members))}
    paths = {HERE.joinpath(*name.split(".")) for name in names}
    found = {path.with_suffix(".py") for path in paths if path.with_suffix(".py").is_file()}
    found |= {HERE / folder / "__init__.py" for path in found for folder in path.relative_to(HERE).parents if folder.name}
    return frozenset(found | set((HERE / REFERENCES).glob("*.py") if f"{REFERENCES}.registry".replace("/", ".") in names else ()))
