"""Implementations that we did not write, run on the same parameters; one short module per reference.

A reference module has three functions. `supports(case)` returns None or says why it cannot run the case. `run(case, arrays)` takes
the parameters of the case and returns every array that the implementation shows, named as in our catalogue; a name in
front of a dot, as in `sequence_first.output`, tells a second way of asking for the same array; arrays narrower than the case say
that it computes in that dtype only. `convention(case)` returns None, or names the convention that the implementation follows where
the case names another one, as `option: choice` of the mask; a difference is no fault if the case under that convention gives it.

The schema of suites lists them all. torch is installed with the project; the others are in envs/requirements-references.txt, and left out
where they are missing.
"""

import re
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

ON_REQUEST = ("torch.flex",)  # its first call imports torch's compiler, and a case takes it longer than all others of torch together
PACKAGES = {"onnxruntime": ("onnxruntime", "onnx")}  # what a library needs, where it is more than itself


def packages(library: str) -> tuple[str, ...]:
    """The packages that the adapters of a library import."""
    return PACKAGES.get(library, (library,))


def adapter(library: str, name: str) -> ModuleType | None:
    """The module of one reference; None where its library is missing here, as it may be in a job whose environment is its own."""
    try:
        return import_module(f"worked_attention.references.{library}_{name}")
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] not in packages(library):
            raise
        return None


def present(libraries: Iterable[str], environment: Path | None = None) -> list[str]:
    """Of the `libraries`, torch and those whose packages are there; looks for them without importing them.

    environment: conda's file, if jobs run in what it describes and not here; then those are there that it names.
    """
    if environment:
        named = set(re.findall(r"^ *- ([\w-]+)", environment.read_text("utf-8"), re.MULTILINE))
        return [library for library in libraries if named.issuperset(packages(library))]
    return [library for library in libraries if library == "torch" or all(find_spec(package) for package in packages(library))]
