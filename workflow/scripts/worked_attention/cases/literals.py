"""The arrays that a case writes out or names as a file: their shapes, and whether they hold what they should."""

import math
import os
import re
from collections.abc import Callable
from math import prod
from pathlib import Path

from worked_attention.cases.words import did_you_mean, number_advice, short, shown
from worked_attention.stages.dtypes import DTYPES

Report = Callable[[tuple, str], None]
PRINTED = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?")
ENDING = ".safetensors"
REAL = ("F64", "F32", "F16", "BF16")  # dtypes of its tensors that are taken
SPELLED = ("NaN", "Infinity", "-Infinity")  # as the JSON files spell them; .nan and .inf are taken for slips


def given_shape(spec: list | dict, folder: Path, biggest: float, dtype: str, where: tuple, fail: Report) -> tuple | None:
    """Shape of a literal or a file; None if the case's sizes give it."""
    if isinstance(spec, list):
        return _literal_shape(spec, biggest, dtype, where, fail)
    return _file_shape(spec["file"], spec.get("tensor"), folder, biggest, dtype, where, fail) if "file" in spec else None


def _literal_shape(value: list, biggest: float, dtype: str, where: tuple, fail: Report) -> tuple:
    axes, inner = [], value
    while isinstance(inner, list):
        axes.append(len(inner))
        inner = inner[0] if inner else None
    if prod(axes) > biggest:
        fail(where, f"holds {prod(axes):,} numbers, more than limits.max_array_mb allows; make it smaller or raise the limit")
        return tuple(axes)

    if 0 in axes:
        fail(where, "is empty; give at least one token and one number each")
    elif dtype == "bool" or not _plain(value, axes, DTYPES[dtype].largest):
        _walk(value, axes, dtype, where, fail)
    return tuple(axes)


def _walk(value: list, axes: list[int], dtype: str, where: tuple, fail: Report) -> None:
    """What does not fit among lists that should be nested to the shape `axes`, item by item."""

    def walk(item: object, depth: int, path: tuple) -> None:
        if depth < len(axes) and not isinstance(item, list):
            fail(path, f"is {shown(item)}, should be a list of {axes[depth]}, as the first one is")
        elif depth < len(axes) and len(item) != axes[depth]:
            fail(path, f"has length {len(item)}, the first one has {axes[depth]}; make all as long as that")
        elif depth < len(axes):
            for i, child in enumerate(item):
                walk(child, depth + 1, (*path, i))
        elif dtype == "bool":
            if item not in (0, 1):
                fail(path, f"is {shown(item)}, should be true or false (or 1 or 0)")
        elif isinstance(item, str) and item in SPELLED:
            pass
        elif isinstance(item, bool) or not isinstance(item, int | float):
            fail(path, f"is {shown(item)}, should be a number{number_advice(item) if isinstance(item, str) else ''}")
        elif not abs(item) <= DTYPES[dtype].largest:
            meant = (
                f'; if you mean it, write "{SPELLED[0] if math.isnan(item) else SPELLED[1 + (item < 0)]}"'
                if not math.isfinite(item)
                else ""
            )
            fail(path, f"is {item}, should be a finite number, in {dtype} at most {DTYPES[dtype].largest:.4g}{meant}")

    walk(value, 0, where)


def _plain(value: list, axes: list[int], largest: float) -> bool:
    """Whether lists nested to the shape `axes` hold numbers alone, none beyond `largest`: nearly all do, and this sees it quickly."""
    level = [value]
    for length in axes:
        if not all(type(item) is list and len(item) == length for item in level):
            return False
        level = [child for item in level for child in item]
    return {*map(type, level)} <= {int, float} and all(abs(item) <= largest for item in level)


def _file_shape(name: str, tensor: str | None, folder: Path, biggest: float, dtype: str, where: tuple, fail: Report) -> tuple | None:
    """Shape of the array in a .npy file, or of the `tensor` in a .safetensors file; None after `fail` if it is not what it should be."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        wrong = "lies outside the suites' folder; put it beside the suite and name it from there"
    elif {"{", "}"} & set(name):
        wrong = "has braces in its name, which Snakemake takes for a wildcard; rename the file"
    elif not os.path.isfile(folder / name):
        wrong = f"is not there; it is looked for in {folder.as_posix()}"
    elif tensor is None and name.endswith(ENDING):
        wrong = f"holds tensors by name; say which one, as in {{file: {short(name)}, tensor: name}}"
    elif tensor is not None and not name.endswith(ENDING):
        wrong = f"does not end in {ENDING}, and only such a file holds tensors by name; leave `tensor` out"
    elif tensor is None:
        axes, wrong = _opened(folder / name, biggest, dtype)
    else:
        axes, wrong = _opened_tensor(folder / name, tensor, biggest, dtype)
    if wrong:
        fail((*where, "file"), f"{short(name)!r} {wrong}")
        return None
    return axes


def _opened(path: Path, biggest: float, dtype: str) -> tuple[tuple, str | None]:
    """Shape of the array in the .npy file at `path`, and what is wrong with it."""
    import numpy as np

    mend = "; save it with numpy.save from an array of floats"
    try:
        with path.open("rb") as file:
            if file.read(6) != b"\x93NUMPY":
                return (), f"is not a .npy file (pickles, text and .npz are not read){mend}"
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header makes numpy raise all sorts
        return (), f"{'holds Python objects' if 'Python objects' in str(error) else 'is damaged or cut short'}{mend}"
    if array.dtype.kind not in ("b" if dtype == "bool" else "fiu"):
        return (), f"holds {array.dtype.name}, not real numbers{mend}"
    return array.shape, _unfit(array.shape, lambda: array, biggest, dtype)


def _opened_tensor(path: Path, tensor: str, biggest: float, dtype: str) -> tuple[tuple, str | None]:
    """Shape of a `tensor` in the .safetensors file at `path`, and what is wrong with it."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        return (), "needs the package safetensors, which is not installed"
    from worked_attention.stages.parameters import read

    try:
        with safe_open(path, "np") as file:
            names = file.keys()
            if tensor not in names:
                return (), f"holds no tensor {short(tensor)!r}{did_you_mean(tensor, names)}"
            one = file.get_slice(tensor)
            shape, kind = tuple(one.get_shape()), one.get_dtype()
    except (SafetensorError, OSError):
        return (), f"is no {ENDING} file, or is damaged"
    if kind not in (("BOOL",) if dtype == "bool" else REAL):
        return (), f"holds {short(tensor)!r} in {kind}, should be {'BOOL' if dtype == 'bool' else ' or '.join(REAL)}"
    return shape, _unfit(shape, lambda: read(path, tensor), biggest, dtype)


def _unfit(shape: tuple, array: Callable, biggest: float, dtype: str) -> str | None:
    """What is wrong with the numbers of an array of this shape, which `array()` gives."""
    import numpy as np

    if prod(shape) == 0:
        return f"is empty, of shape {list(shape)}; give at least one token and one number each"
    if prod(shape) > biggest:
        return f"of shape {list(shape)} is larger than limits.max_array_mb; make it smaller or raise the limit"
    if dtype == "bool" or bool((np.abs(array()) <= DTYPES[dtype].largest).all()):
        return None
    return f"holds NaN, infinity or more than {dtype} can hold; every number must be finite"
