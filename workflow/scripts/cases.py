"""One case made complete: where it begins, which arrays it has, their sizes and shapes, and what they cost.

A case begins at `x`, at `q`/`k`/`v` or at `scaled` scores. What it leaves out is left out of the formula: without
`w_q`, `w_k`, `w_v` the queries, keys and values are x itself, without `w_o` the output is the concatenated heads.
"""

import math
import os
import re
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path

from attention.arrays import CATALOGUE, INPUTS, STAGES, WEIGHTS, shape, size
from attention.arrays import axes as axis_names
from strict_yaml import did_you_mean, short, shown

Report = Callable[[tuple, str], None]
ITEMSIZE = {"float64": 8, "float32": 4}
LARGEST = {"float64": sys.float_info.max, "float32": float.fromhex("0x1.fffffep+127")}
PRINTED = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?")


def resolve(raw: dict, suite: str, name: str, folder: Path, limits: dict, report: Report) -> dict | None:
    """The resolved case, as case.json holds it; None after `report(path, message)` if something is wrong.

    raw: the case as its suite says it, schema-checked, with what it extends. folder: where parameter files lie.
    """
    problems = []

    def fail(where: tuple, message: str) -> None:
        problems.append(where)
        report(where, message)

    given = raw.get("parameters", {})
    drawn = []
    dtype = raw.get("dtype", "float64")
    biggest = limits["max_array_mb"] * 1e6 / ITEMSIZE[dtype]
    for i, parameter in enumerate(raw.get("torch_draws", {}).get("order", [])):
        drawable = [n for n in INPUTS + WEIGHTS if n != "scaled"]
        if parameter not in drawable:
            fail(("torch_draws", "order", i), f"{short(parameter)} cannot be drawn{did_you_mean(parameter, drawable)}")
        elif parameter in given:
            fail(("parameters", parameter), "is given here and drawn in torch_draws.order; keep one of them")
        else:
            drawn.append(parameter)
    names = set(given) | set(drawn)
    begins_at = _begin(names, fail)
    shapes = {parameter: _given_shape(spec, folder, biggest, dtype, ("parameters", parameter), fail) for parameter, spec in given.items()}
    if problems:
        return None
    dims = _dims(raw, begins_at, {n: shapes.get(n) for n in CATALOGUE if n in names}, fail)
    if problems:
        return None
    arrays = _computed(begins_at, names)
    shapes = {n: shape(n, dims) for stage in arrays.values() for n in stage}
    for array, axes in shapes.items():
        if prod(axes) > biggest:
            megabytes = prod(axes) * ITEMSIZE[dtype] / 1e6
            limit = f"limits.max_array_mb = {limits['max_array_mb']:g}; make the case smaller or raise the limit"
            fail((), f"{array} {list(axes)} would take {megabytes:,.0f} MB, more than {limit}")
            return None
    tokens = raw.get("tokens")
    same = begins_at == "x" or dims["Lq"] == dims["Lk"]
    key_tokens = raw.get("key_tokens", tokens if same else None)
    for key, axis, labels in (("tokens", "Lq", tokens), ("key_tokens", "Lk", raw.get("key_tokens"))):
        if labels is not None and len(labels) != dims[axis]:
            fail((key,), f"names {len(labels)}, but the case has {axis} = {dims[axis]}; name each once")
    if begins_at == "scaled" and "scale" in raw:
        fail(("scale",), "has no place in a case that begins at scaled scores; remove it")
    scale = raw.get("scale", "1/sqrt(d_k)")
    case = {
        "suite": suite,
        "name": name,
        "title": raw.get("title", name),
        "look": raw.get("look", ""),
        "begins_at": begins_at,
        "dtype": dtype,
        "heads": dims["H"],
        "scale": scale,
        "scale_factor": {"none": 1.0, "1/sqrt(d_k)": 1 / math.sqrt(dims.get("d_k", 1))}.get(scale, scale),
        "tokens": tokens or [str(i + 1) for i in range(dims["Lq"])],
        "key_tokens": key_tokens or [str(j + 1) for j in range(dims["Lk"])],
        "parameters": given,
        "torch_draws": raw.get("torch_draws"),
        "dims": dims,
        "arrays": arrays,
        "shapes": {array: list(axes) for array, axes in shapes.items()},
        "parameter_count": sum(prod(shapes[n]) for n in arrays["parameters"] if n in WEIGHTS),
        "multiply_adds": _multiply_adds(arrays, dims),
        "bytes": {stage: ITEMSIZE[dtype] * sum(prod(shapes[n]) for n in arrays[stage]) for stage in STAGES},
        "claims": _claims(raw.get("claims", {}), arrays, shapes, fail),
    }
    return None if problems else case


def _begin(names: set[str], fail: Report) -> str:
    """Which of the three beginnings the case has: x, qkv or scaled."""
    where = ("parameters",)
    begins = [key for key, inputs in (("x", {"x"}), ("qkv", {"q", "k"}), ("scaled", {"scaled"})) if names & inputs]
    if len(begins) != 1:
        got = " and ".join(n for n in INPUTS if n in names)
        advice = f"this one gives {got}; keep one beginning" if got else "this one gives none of them; give one"
        fail(where, f"a case begins at x, at q, k and v, or at scaled scores; {advice}")
        return "x"
    allowed = {"x": {"x", *WEIGHTS}, "qkv": {"q", "k", "v", "w_o", "b_o"}, "scaled": {"scaled", "v", "w_o", "b_o"}}[begins[0]]
    for name in sorted(names - allowed):
        beginning = {"x": "x", "qkv": "q, k and v", "scaled": "scaled scores"}[begins[0]]
        fail((*where, name), f"has no place in a case that begins at {beginning}; remove it")
    needed = {"x": ["w_q", "w_k", "w_v"] if names & set(WEIGHTS) - {"w_o", "b_o"} else [], "qkv": ["q", "k", "v"], "scaled": []}[begins[0]]
    for name in needed:
        if name not in names:
            instead = "give all of w_q, w_k and w_v, or none for x itself" if name[:2] == "w_" else "give all of q, k and v"
            fail((*where, name), f"is missing; {instead}")
    if "b_o" in names and "w_o" not in names:
        fail((*where, "w_o"), "is missing, but b_o is there; give both, or neither")
    if begins[0] == "scaled" and "w_o" in names and "v" not in names:
        fail((*where, "v"), "is missing, but w_o is there; give v, or no w_o")
    return begins[0]


def _given_shape(spec: list | dict, folder: Path, biggest: float, dtype: str, where: tuple, fail: Report) -> tuple | None:
    """Shape of a literal or a file; None if the case's sizes give it."""
    if isinstance(spec, list):
        return _literal_shape(spec, biggest, dtype, where, fail)
    return _file_shape(spec["file"], folder, biggest, dtype, (*where, "file"), fail) if "file" in spec else None


def _literal_shape(value: list, biggest: float, dtype: str, where: tuple, fail: Report) -> tuple:
    axes, inner = [], value
    while isinstance(inner, list):
        axes.append(len(inner))
        inner = inner[0] if inner else None
    if prod(axes) > biggest:
        fail(where, f"holds {prod(axes):,} numbers, more than limits.max_array_mb allows; make it smaller or raise the limit")
        return tuple(axes)

    def walk(item: object, depth: int, path: tuple) -> None:
        if depth < len(axes) and not isinstance(item, list):
            fail(path, f"is {shown(item)}, should be a list of {axes[depth]}, as the first one is")
        elif depth < len(axes) and len(item) != axes[depth]:
            fail(path, f"has length {len(item)}, the first one has {axes[depth]}; make all as long as that")
        elif depth < len(axes):
            for i, child in enumerate(item):
                walk(child, depth + 1, (*path, i))
        elif isinstance(item, bool) or not isinstance(item, int | float):
            quoted = isinstance(item, str) and PRINTED.fullmatch(item)
            fail(path, f"is {shown(item)}, should be a number{', without quotes' if quoted else ''}")
        elif not abs(item) <= LARGEST[dtype]:
            fail(path, f"is {item}, should be a finite number, in {dtype} at most {LARGEST[dtype]:.4g}")

    if 0 in axes:
        fail(where, "is empty; give at least one token and one number each")
    else:
        walk(value, 0, where)
    return tuple(axes)


def _file_shape(name: str, folder: Path, biggest: float, dtype: str, where: tuple, fail: Report) -> tuple | None:
    """Shape of the array in a .npy file; None after `fail` if the file is not what it should be."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        wrong = "lies outside the suites' folder; put it beside the suite and name it from there"
    elif not os.path.isfile(folder / name):
        wrong = f"is not there; it is looked for in {folder.as_posix()}"
    else:
        axes, wrong = _opened(folder / name, biggest, dtype)
    if wrong:
        fail(where, f"{short(name)!r} {wrong}")
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
    if array.dtype.kind not in "fiu":
        return (), f"holds {array.dtype.name}, not real numbers{mend}"
    if array.size == 0:
        return (), f"is empty, of shape {list(array.shape)}; give at least one token and one number each"
    if array.size > biggest:
        return (), f"of shape {list(array.shape)} is larger than limits.max_array_mb; make it smaller or raise the limit"
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(dtype)).all()
    return array.shape, None if finite else f"holds NaN, infinity or more than {dtype} can hold; every number must be finite"


def _dims(raw: dict, begins_at: str, shapes: dict[str, tuple | None], fail: Report) -> dict[str, int]:
    """Every size of the case: those stated, those that arrays show, the defaults; and whether all arrays agree."""
    dims = {"H": raw.get("heads", 1), **raw.get("sizes", {})}
    origin = {"H": "heads", **dict.fromkeys(raw.get("sizes", {}), "sizes")}
    known = {name: axes for name, axes in shapes.items() if axes is not None}
    for name, got in known.items():
        inputs = [axis for axis in CATALOGUE[name].axes if axis != "..."]
        if len(got) - len(inputs) not in ((0, 1) if "..." in CATALOGUE[name].axes else (0,)):
            batched = f" or [B, {', '.join(inputs)}]" if "..." in CATALOGUE[name].axes else ""
            fail(("parameters", name), f"has shape {list(got)}, should be [{', '.join(inputs)}]{batched}")
            return dims
    for name, got in known.items():
        expected = CATALOGUE[name].axes
        bare = [axis for axis in expected if axis != "..."]
        if len(got) == len(bare) + 1 and "..." in expected:
            dims.setdefault("B", got[0])
        for axis, n in zip(reversed(bare), reversed(got), strict=False):
            factors = axis.split("*")
            origin.setdefault(factors[-1], name)
            if len(factors) == 1:
                dims.setdefault(axis, n)
            elif factors[1] not in dims:
                if n % dims["H"]:
                    fail(("heads",), f"{dims['H']} heads do not divide {axis} = {n} of {name}; use a divisor of {n}")
                    return dims
                dims[factors[1]] = n // dims["H"]
    if begins_at == "x":
        dims.setdefault("Lk", dims.get("Lq"))
        for width in ("d_k", "d_v"):
            model = dims.get("d_model")
            if width not in dims and model is not None:
                if model % dims["H"]:
                    fail(("heads",), f"{dims['H']} heads do not divide d_model = {model}; use a divisor of {model}, or give sizes.{width}")
                    return dims
                dims[width] = model // dims["H"]
        if dims["Lk"] != dims.get("Lq"):
            fail(("sizes", "Lk"), f"is {dims['Lk']}, but keys are made from the same x, so Lk = Lq = {dims.get('Lq')}")
    elif begins_at == "qkv":
        dims.setdefault("Lk", dims.get("Lq"))
    if "d_v" not in dims and "v" in shapes and "d_k" in dims:
        dims["d_v"] = dims["d_k"]
    if "w_o" in shapes:
        dims.setdefault("d_out", dims.get("d_model", dims["H"] * dims.get("d_v", 1)))
    elif "d_v" in dims and dims.setdefault("d_out", dims["H"] * dims["d_v"]) != dims["H"] * dims["d_v"]:
        fail(("sizes", "d_out"), f"is {dims['d_out']}, but without w_o it is H*d_v = {dims['H'] * dims['d_v']}; leave it out, or give w_o")
    needed = {axis for name in shapes for part in CATALOGUE[name].axes if part != "..." for axis in part.split("*")}
    for axis in sorted(needed - {axis for axis, n in dims.items() if n is not None}):
        fail(("sizes", axis), "is needed, since no array given here shows it; add it")
        return dims
    if begins_at == "x" and "w_q" not in shapes and not dims["H"] * dims["d_k"] == dims["H"] * dims["d_v"] == dims["d_model"]:
        fail(("sizes",), "without w_q, w_k and w_v the heads cut up x itself, so H*d_k = H*d_v = d_model")
    for name, got in known.items():
        expected = shape(name, dims)
        if got != expected:
            named = axis_names(name, dims)
            sizes = [f"{axis} = {dims[axis]} as in {origin[axis]}" for axis in "*".join(named).split("*") if axis in origin]
            fail(("parameters", name), f"has shape {list(got)}, should be [{', '.join(named)}] = {list(expected)}, for {', '.join(sizes)}")
    return dims


def _computed(begins_at: str, names: set[str]) -> dict[str, list[str]]:
    """Names of the arrays of each stage in this case."""
    arrays = {stage: [n for n, array in CATALOGUE.items() if array.stage == stage] for stage in STAGES}
    arrays["parameters"] = [n for n in CATALOGUE if n in names]
    if begins_at == "scaled":
        values = "v" in names
        arrays["projections"] = ["v", "v_heads"] if values else []
        arrays["scores"] = ["scaled", "masked"]
        if not values:
            arrays["contexts"] = arrays["outputs"] = []
    return arrays


def _multiply_adds(arrays: dict[str, list[str]], dims: dict[str, int]) -> dict[str, int]:
    """Multiply-adds of each stage's matrix products (softmax has none)."""
    made = {name for stage in arrays.values() for name in stage}
    products = {
        "projections": [(w, "Lq" if w == "w_q" else "Lk") for w in ("w_q", "w_k", "w_v") if w in made],
        "outputs": [("w_o", "Lq")] if "w_o" in made else [],
    }
    batch = dims.get("B", 1)
    counts = {stage: batch * sum(prod(shape(w, dims)) * dims[rows] for w, rows in products.get(stage, [])) for stage in STAGES}
    counts["scores"] = batch * size("H*Lq*Lk*d_k", dims) if "qk" in made else 0
    counts["contexts"] = batch * size("H*Lq*Lk*d_v", dims) if "contexts" in made else 0
    return counts


def _claims(raw: dict, arrays: dict, shapes: dict, fail: Report) -> list[dict]:
    """The claims as a flat list of {array, at, values}, each fitting its array."""
    claims = []
    for array, entries in raw.items():
        if array not in shapes:
            fail(("claims", array), f"this case computes no such array{did_you_mean(array, shapes)}")
            continue
        for i, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            where = ("claims", array, i) if isinstance(entries, list) else ("claims", array)
            at, axes = entry.get("at", []), shapes[array]
            if len(at) > len(axes) or any(index >= n for index, n in zip(at, axes, strict=False)):
                fail((*where, "at"), f"{at} lies outside {array}, whose shape is {list(axes)}; count from 0")
            elif _printed(entry["values"], axes[len(at) :], (*where, "values"), fail):
                claims.append({"array": array, "at": at, "values": entry["values"]})
    return claims


def _printed(values: object, axes: tuple, where: tuple, fail: Report) -> bool:
    """Whether `values` are printed numbers nested to the shape `axes`."""
    if axes:
        if not isinstance(values, list) or len(values) != axes[0]:
            got = f"a list of {len(values)}" if isinstance(values, list) else shown(values)
            fail(where, f"is {got}, should be a list of {axes[0]}, for what is left of the shape is {list(axes)}")
            return False
        return all([_printed(value, axes[1:], (*where, i), fail) for i, value in enumerate(values)])
    if not isinstance(values, str) or not PRINTED.fullmatch(values):
        fail(where, f'is {shown(values)}, should be a printed number in quotes, such as "0.2831"')
        return False
    return True
