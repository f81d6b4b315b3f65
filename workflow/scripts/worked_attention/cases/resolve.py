"""One case made complete: where it begins, which arrays it has, their sizes and shapes, and what they cost.

A case begins at `x`, at `q`/`k`/`v` (whole or per head) or at `scaled` scores. What it leaves out is left out of the
formula: without `w_q`, `w_k`, `w_v` the queries, keys and values are the input itself, without `w_o` the output is the
concatenated heads, without a mask every key is seen.
"""

import math
from math import prod
from pathlib import Path

from worked_attention.cases.claims import claims
from worked_attention.cases.costs import counted
from worked_attention.cases.literals import SPELLED, Report, given_shape
from worked_attention.cases.options import filled, schema, uses
from worked_attention.cases.rules import MASK_ARRAYS, beginning, check_options, check_values, drawn
from worked_attention.cases.sizes import find_sizes, place
from worked_attention.stages import rows
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE, existing, shape, size
from worked_attention.stages.dtypes import DTYPES, overflow, usual_precision

FORMAT = 1  # of case.json and suite.json; it rises when a key goes or changes its meaning
AS_GIVEN = ("look", "source", "softcap", "softmax", "dropout", "extra_key", "qk_norm", "sinusoidal", "alibi", "backward", "torch_draws")


def resolve(raw: dict, suite: str, name: str, folder: Path, limits: dict, report: Report) -> dict | None:
    """The resolved case, as case.json holds it; None after `report(path, message)` if something is wrong.

    raw: the case as its suite says it, schema-checked, with what it extends. folder: where parameter files lie.
    """
    problems = []

    def fail(where: tuple, message: str) -> None:
        problems.append(where)
        report(where, message)

    options = filled(schema("suite")["$defs"]["case"], raw)
    given = _given(options)
    names = set(given) | set(drawn(options, given, fail))
    begins_at = beginning(names, fail)
    dtype, megabytes = options["dtype"], limits["max_array_mb"]
    most = megabytes * 1e6 / DTYPES[dtype].bytes
    shapes = {n: given_shape(given[n], folder, most, "bool" if n in BOOLEAN else dtype, place(n), fail) for n in given}
    check_options(raw, options, names, begins_at, fail)
    dims = {} if problems else find_sizes(options, begins_at, {n: shapes.get(n) for n in CATALOGUE if n in names}, fail)
    if problems:
        return None
    if options["rotary"]:
        dims["pairs"] = (options["rotary"]["dims"] or dims["d_k"]) // 2
    used = uses(options)
    arrays = existing({*used, *names})
    shapes = {n: shapes.get(n) or shape(n, dims) for stage in arrays.values() for n in stage}
    scores = _precision(options)["scores"]
    if _too_large(shapes, max(dtype, scores, key=lambda name: DTYPES[name].bytes), megabytes, fail):
        return None
    case = {
        "format": FORMAT,
        "suite": suite,
        "name": name,
        "title": options["title"] or name,
        "begins_at": begins_at,
        **_settled(options, names, dims),
        **_positions(options["positions"], dims, fail),
        **_tokens(options, dims, fail),
        **_rows(shapes["masked"], dims["Lq"], DTYPES[scores].bytes, limits),
        "uses": used,
        "parameters": given,
        "spelled": sorted(n for n in given if isinstance(given[n], list) and any(word in str(given[n]) for word in SPELLED)),
        "dims": dims,
        "arrays": arrays,
        "shapes": {array: list(axes) for array, axes in shapes.items()},
        **counted(arrays, shapes, dims, dtype, scores),
        "claims": claims(options["claims"], shapes, fail),
    }
    check_values(raw, case, fail)
    if case["sample"]:
        _check_sampled(case, limits["max_whole_mb"], fail)
    return None if problems else case


def _given(options: dict) -> dict:
    """The arrays that the case gives, by name: its parameters, and those of its masks."""
    masks = {f"mask_{key}": options["mask"][key] for key in MASK_ARRAYS}
    return {name: spec for name, spec in (options["parameters"] | masks).items() if spec is not None}


def _settled(options: dict, names: set[str], dims: dict[str, int]) -> dict:
    """The options of a case, with what follows from others where they have no constant default."""
    rotary, precision = options["rotary"], _precision(options)
    return {
        **{name: options[name] for name in AS_GIVEN},
        "dtype": options["dtype"],
        "precision": precision,
        "overflow": overflow(precision),
        "heads": dims["H"],
        "kv_heads": dims["H_kv"],
        "scale": options["scale"],
        "scale_factor": _scale_factor(options["scale"], dims),
        "rotary": rotary and {**rotary, "dims": rotary["dims"] or dims["d_k"]},
        "t5": options["t5"] if "t5_table" in names else None,
        "mask": _mask(options["mask"]),
    }


def _precision(options: dict) -> dict[str, str]:
    """`precision` with what is usual for the dtype where the case names nothing."""
    usual = usual_precision(options["dtype"])
    return {name: value or usual[name] for name, value in options["precision"].items()}


def _mask(options: dict) -> dict:
    """`mask` without what it does not say and without arrays, which are parameters; documents as {queries, keys}, also from one list."""
    mask = {key: value for key, value in options.items() if value is not None and key not in MASK_ARRAYS}
    if "causal" in mask and "window" in mask:
        mask["window"] = {**mask["window"], "align": mask["causal"]}
    if isinstance(mask.get("documents"), list):
        mask["documents"] = {"queries": mask["documents"], "keys": mask["documents"]}
    return mask


def _too_large(shapes: dict[str, tuple], dtype: str, limit: float, fail: Report) -> bool:
    """Whether an array would take more than `limit` megabytes in `dtype`; the first one goes to `fail`."""
    for array, axes in shapes.items():
        size = prod(axes) * DTYPES[dtype].bytes
        if size > limit * 1e6:
            allowed = f"limits.max_array_mb = {limit:g}; make the case smaller or raise the limit"
            fail((), f"{array} {list(axes)} would take {size / 1e6:,.0f} MB ({size:,} bytes), more than {allowed}")
            return True
    return False


def _rows(scores: tuple[int, ...], queries: int, size: int, limits: dict) -> dict:
    """`rows`, which are all, and `sample`: the queries that are looked at where scores of this shape, at `size` bytes, are more than
    `max_whole_mb` megabytes, else None."""
    whole = prod(scores) * size / 1e6 <= limits["max_whole_mb"]
    return {"rows": rows.every(queries), "sample": None if whole else rows.sample(queries)}


def _check_sampled(case: dict, limit: float, fail: Report) -> None:
    """What a case that is looked at in some rows alone cannot have; the first thing goes to `fail`."""
    larger = f"of cases larger than limits.max_whole_mb = {limit:g} a sample of rows is looked at"
    if case["backward"]:
        fail(("backward",), f"needs all queries, but {larger}; make the case smaller, raise the limit or remove it")
    elif case["claims"]:
        fail(("claims",), f"may be about any row, but {larger}; make the case smaller, raise the limit or remove them")


def _tokens(options: dict, dims: dict[str, int], fail: Report) -> dict[str, list[str]]:
    """Names of queries and keys: as listed, or counted from 1; as many keys as queries have their names."""
    tokens, keys = options["tokens"], options["key_tokens"]
    for key, axis in (("tokens", "Lq"), ("key_tokens", "Lk")):
        if options[key] and len(options[key]) != dims[axis]:
            fail((key,), f"names {len(options[key])}, but the case has {axis} = {dims[axis]}; name each once")
    shared = tokens if dims["Lq"] == dims["Lk"] else None
    return {
        "tokens": tokens or [str(i + 1) for i in range(dims["Lq"])],
        "key_tokens": keys or shared or [str(j + 1) for j in range(dims["Lk"])],
    }


def _positions(options: dict, dims: dict[str, int], fail: Report) -> dict[str, list[int]]:
    """Positions of the queries, of the new keys and of all keys: as listed, or counted on from the past."""
    offset = dims["Lp"] if options["offset"] is None else options["offset"]
    queries, keys = (
        [offset + i for i in range(dims[axis])] if options[side] is None else options[side]
        for side, axis in (("queries", "Lq"), ("keys", "Ln"))
    )
    for side, listed, axis in (("queries", queries, "Lq"), ("keys", keys, "Ln")):
        if len(listed) != dims[axis]:
            fail(("positions", side), f"lists {len(listed)}, but the case has {axis} = {dims[axis]}; list each once")
    return {"query_positions": queries, "key_positions": keys, "context_positions": [*range(dims["Lp"]), *keys]}


def _scale_factor(scale: str | float, dims: dict[str, int]) -> float:
    named = {"none": lambda: 1.0, "1/sqrt(d_k)": lambda: 1 / math.sqrt(dims.get("d_k", 1)), "1/d_k": lambda: 1 / dims["d_k"]}
    named["1/sqrt(d_model)"] = lambda: 1 / math.sqrt(dims.get("d_model", size("H*d_k", dims)))
    return named[scale]() if isinstance(scale, str) else float(scale)
