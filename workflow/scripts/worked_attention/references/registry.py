"""Implementations that we did not write, run on the same parameters; one short module per reference.

A reference module has three functions. `supports(case)` returns None or says why it cannot run the case. `run(case, arrays)` takes
the parameters of the case and returns every array that the implementation shows, named as in our catalogue; a name in
front of a dot, as in `sequence_first.output`, tells a second way of asking for the same array; arrays narrower than the case say
that it computes in that dtype only. `convention(case)` returns None, or names the convention that the implementation follows where
the case names another one, as `option: choice` of the mask; a difference is no fault if the case under that convention gives it.

torch is installed with the project. The others are in envs/requirements-references.txt, and left out where they are missing.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

LIBRARIES = {
    "torch": ("mha", "sdpa", "flash", "flex", "manual"),
    "onnx": ("reference",),
    "onnxruntime": ("cpu",),
    "jax": ("nn",),
}
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


def present() -> list[str]:
    """torch, and the other libraries whose packages are there; looks for them without importing them."""
    return [library for library in LIBRARIES if library == "torch" or all(find_spec(package) for package in packages(library))]
