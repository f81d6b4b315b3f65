"""One case made complete: where it begins, which arrays it has, their sizes and shapes, and what they cost.

A case begins at `x`, at `q`/`k`/`v` (whole or per head) or at `scaled` scores. What it leaves out is left out of the
formula: without `w_q`, `w_k`, `w_v` the queries, keys and values are the input itself, without `w_o` the output is the
concatenated heads, without a mask every key is seen.
"""

import math
from math import prod
from pathlib import Path

from worked_attention.cases.literals import PRINTED, SPELLED, Report, given_shape
from worked_attention.cases.sizes import find_sizes, place
from worked_attention.cases.strict_yaml import did_you_mean, short, shown
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE, DRAWABLE, GRADIENTS, STAGES, WEIGHTS, shape, size
from worked_attention.stages.dtypes import DTYPES, usual_precision

MASK_ARRAYS = ("keep", "block", "add", "key_keep", "key_block", "key_add")
ANYWHERE = {"w_o", "b_o", "sinks", "bias_table", "t5_table", "dropout_keep", "upstream", *(f"mask_{name}" for name in MASK_ARRAYS)}
KEYS = {"g_q", "g_k", "bias_k", "bias_v", "past_k", "past_v"}
PROJECTIONS = {f"{kind}_{name}" for kind in "wb" for name in "qkv"}
BEGINNINGS = {  # what each beginning needs, and what it may have besides
    "x": ({"x"}, {"x_kv", "x_k", "x_v"} | PROJECTIONS | KEYS),
    "qkv": ({"q", "k", "v"}, KEYS),
    "heads": ({"q_heads", "k_heads", "v_heads"}, KEYS),
    "scaled": ({"scaled"}, {"v", "v_heads"}),
}
BEGIN_WORDS = {"x": "x", "qkv": "q, k and v", "heads": "q_heads, k_heads and v_heads", "scaled": "scaled scores"}
TOGETHER = [  # parameters that make sense only with another one
    ("x_k", "x_v"),
    ("x_v", "x_k"),
    ("bias_k", "bias_v"),
    ("bias_v", "bias_k"),
    ("past_k", "past_v"),
    ("past_v", "past_k"),
    *((f"b_{name}", f"w_{name}") for name in "qkvo"),
]
TURNS = {  # per rule of rotary.scaling: the turns below which all is divided, and those above which nothing changes, by default
    "yarn": {"beta_slow": 1, "beta_fast": 32},
    "llama3": {"low": 1, "high": 4},
}


def resolve(raw: dict, suite: str, name: str, folder: Path, limits: dict, report: Report) -> dict | None:
    """The resolved case, as case.json holds it; None after `report(path, message)` if something is wrong.

    raw: the case as its suite says it, schema-checked, with what it extends. folder: where parameter files lie.
    """
    problems = []

    def fail(where: tuple, message: str) -> None:
        problems.append(where)
        report(where, message)

    mask = {"fill": "-inf", "empty_row": "zero", **raw.get("mask", {})}
    given = raw.get("parameters", {}) | {f"mask_{key}": mask.pop(key) for key in MASK_ARRAYS if key in mask}
    dtype = raw.get("dtype", "float64")
    biggest = limits["max_array_mb"] * 1e6 / DTYPES[dtype].bytes
    names = set(given) | set(_drawn(raw, given, fail))
    begins_at = _begin(names, fail)
    shapes = {n: given_shape(given[n], folder, biggest, _dtype(n, dtype), place(n), fail) for n in given}
    _options(raw, mask, names, begins_at, fail)
    if problems:
        return None
    dims = find_sizes(raw, begins_at, {n: shapes.get(n) for n in CATALOGUE if n in names}, fail)
    if problems:
        return None
    arrays = _computed(raw, mask, begins_at, names)
    shapes = {n: shapes.get(n) or shape(n, dims) for stage in arrays.values() for n in stage}
    for array, axes in shapes.items():
        if prod(axes) > biggest:
            megabytes = prod(axes) * DTYPES[dtype].bytes / 1e6
            limit = f"limits.max_array_mb = {limits['max_array_mb']:g}; make the case smaller or raise the limit"
            fail((), f"{array} {list(axes)} would take {megabytes:,.0f} MB, more than {limit}")
            return None
    tokens = raw.get("tokens")
    same = begins_at == "x" and not {"x_kv", "x_k"} & names or dims["Lq"] == dims["Lk"]
    key_tokens = raw.get("key_tokens", tokens if same and dims["Lq"] == dims["Lk"] else None)
    for key, axis, labels in (("tokens", "Lq", tokens), ("key_tokens", "Lk", raw.get("key_tokens"))):
        if labels is not None and len(labels) != dims[axis]:
            fail((key,), f"names {len(labels)}, but the case has {axis} = {dims[axis]}; name each once")
    scale = raw.get("scale", "1/sqrt(d_k)")
    case = {
        "suite": suite,
        "name": name,
        "title": raw.get("title", name),
        "look": raw.get("look", ""),
        "begins_at": begins_at,
        "dtype": dtype,
        "precision": usual_precision(dtype) | raw.get("precision", {}),
        "heads": dims["H"],
        "kv_heads": dims["H_kv"],
        "scale": scale,
        "scale_factor": _scale_factor(scale, dims),
        "softcap": raw.get("softcap"),
        "mask": _documents(mask),
        "softmax": raw.get("softmax", "plain"),
        "dropout": raw.get("dropout"),
        "extra_key": raw.get("extra_key", "none"),
        "qk_norm": {"eps": 1e-6, **raw["qk_norm"]} if "qk_norm" in raw else None,
        "sinusoidal": {"base": 10000, **raw["sinusoidal"]} if "sinusoidal" in raw else None,
        "rotary": raw.get("rotary"),
        "alibi": {"form": "distance", **raw["alibi"]} if "alibi" in raw else None,
        "t5": {"longest": 128, "direction": "both", **raw.get("t5", {})} if "t5_table" in names else None,
        **_positions(raw.get("positions", {}), dims, fail),
        "backward": raw.get("backward"),
        "tokens": tokens or [str(i + 1) for i in range(dims["Lq"])],
        "key_tokens": key_tokens or [str(j + 1) for j in range(dims["Lk"])],
        "parameters": given,
        "torch_draws": raw.get("torch_draws"),
        "spelled": sorted(n for n in given if isinstance(given[n], list) and any(word in str(given[n]) for word in SPELLED)),
        "dims": dims,
        "arrays": arrays,
        "shapes": {array: list(axes) for array, axes in shapes.items()},
        "parameter_count": sum(prod(shapes[n]) for n in arrays["parameters"] if n in WEIGHTS),
        "multiply_adds": _multiply_adds(arrays, dims),
        "bytes": {stage: sum(prod(shapes[n]) * (1 if n in BOOLEAN else DTYPES[dtype].bytes) for n in arrays[stage]) for stage in STAGES},
        "claims": _claims(raw.get("claims", {}), arrays, shapes, fail),
    }
    _fits(case, fail)
    return None if problems else case


def _drawn(raw: dict, given: dict, fail: Report) -> list[str]:
    """Parameters that torch draws."""
    drawn = []
    for i, parameter in enumerate(raw.get("torch_draws", {}).get("order", [])):
        if parameter not in DRAWABLE:
            fail(("torch_draws", "order", i), f"{short(parameter)} cannot be drawn{did_you_mean(parameter, DRAWABLE)}")
        elif parameter in given:
            fail(("parameters", parameter), "is given here and drawn in torch_draws.order; keep one of them")
        else:
            drawn.append(parameter)
    return drawn


def _begin(names: set[str], fail: Report) -> str:
    """Which of the beginnings the case has: x, qkv, heads or scaled."""
    begins = [key for key, (needed, _) in BEGINNINGS.items() if names & (needed - {"v", "v_heads"})]
    if len(begins) != 1:
        got = " and ".join(n for key in begins for n in sorted(BEGINNINGS[key][0] & names))
        advice = f"this one gives {got}; keep one beginning" if got else "this one gives none of them; give one"
        fail(("parameters",), f"a case begins at x, at q, k and v, or at scaled scores; {advice}")
        return "x"
    needed, besides = BEGINNINGS[begins[0]]
    for name in sorted(names - needed - besides - ANYWHERE):
        fail(place(name), f"has no place in a case that begins at {BEGIN_WORDS[begins[0]]}; remove it")
    for name in sorted(needed - names):
        fail(place(name), f"is missing; give all of {BEGIN_WORDS[begins[0]]}")
    if names & PROJECTIONS:
        for name in sorted({"w_q", "w_k", "w_v"} - names):
            fail(place(name), "is missing; give all of w_q, w_k and w_v, or none for x itself")
    for name, other in TOGETHER:
        if name in names and other not in names and other not in ("w_q", "w_k", "w_v"):
            fail(place(other), f"is missing, but {name} is there; give both, or neither")
    if "x_kv" in names and "x_k" in names:
        fail(place("x_kv"), "is there as well as x_k and x_v; keep x_kv for one input of both, or the other two")
    if begins[0] == "scaled" and "w_o" in names and not names & {"v", "v_heads"}:
        fail(place("v"), "is missing, but w_o is there; give v, or no w_o")
    return begins[0]


def _options(raw: dict, mask: dict, names: set[str], begins_at: str, fail: Report) -> None:
    """Options that need each other, or exclude each other."""
    if begins_at == "scaled":
        for key in ("scale", "qk_norm", "sinusoidal", "rotary", "extra_key", "backward"):
            if key in raw:
                fail((key,), "has no place in a case that begins at scaled scores; remove it")
    if "sinusoidal" in raw and begins_at not in ("x", "scaled"):
        fail(("sinusoidal",), "is added to x, but this case begins later; remove it")
    if "sinusoidal" in raw and "x_k" in names:
        fail(("sinusoidal",), "is added to x and x_kv; give x_kv in place of x_k and x_v")
    if "prefix" in mask and "causal" not in mask:
        fail(("mask", "prefix"), "widens a causal mask; add mask.causal")
    if "causal" in mask and mask.get("window", {}).get("align", mask["causal"]) != mask["causal"]:
        fail(("mask", "window", "align"), f"is {mask['window']['align']}, but mask.causal is {mask['causal']}; leave it out")
    for option, parameter in (("dropout", "dropout_keep"), ("t5", "t5_table")):
        if option in raw and parameter not in names:
            fail(("parameters", parameter), f"is missing, but {option} is there; give both, or neither")
    if "dropout_keep" in names and "dropout" not in raw:
        fail(("dropout",), "is missing, but dropout_keep is there; give the probability that it was drawn with")
    if "g_q" in names | ({"g_q"} if "g_k" in names else set()) and "qk_norm" not in raw:
        fail(("qk_norm",), "is missing, but its gain g_q or g_k is there; add it")
    if "sinks" in names and raw.get("softmax", "plain") != "plain":
        fail(("softmax",), f"is {raw['softmax']}, but sinks join the plain softmax; remove one of them")
    if "scaling" in raw.get("rotary", {}):
        _scaling(raw["rotary"], fail)
    if ("upstream" in names) != (raw.get("backward") == "given"):
        fail(("backward",), "is `given` if and only if parameters.upstream is there; add the other one")
    if raw.get("backward") and raw.get("softmax") == "hardmax":
        fail(("backward",), "does not go through hardmax; remove one of them")


def _scaling(rotary: dict, fail: Report) -> None:
    """Options of the rule for longer contexts: only those that it has, and in their order."""
    scaling = rotary["scaling"]
    rule = scaling["rule"]
    limits = TURNS.get(rule, {})
    known = ["factor", *["original_length"] * bool(limits), *limits]
    for key in [key for key in scaling if key not in ("rule", *known)]:
        fail(("rotary", "scaling", key), f"is not used by {rule}, which has {', '.join(known)}; remove it")
    if not limits:
        return
    if "original_length" not in scaling:
        fail(("rotary", "scaling"), f"original_length is missing; {rule} needs it")
    (slow, least), (fast, most) = ((key, scaling.get(key, default)) for key, default in limits.items())
    if least >= most and slow in scaling:
        fail(("rotary", "scaling", slow), f"is {least}, should be less than {fast} = {most}")
    elif least >= most:
        fail(("rotary", "scaling", fast), f"is {most}, should be more than {slow} = {least}")
    if rule == "yarn" and rotary.get("base", 10000) <= 1:
        fail(("rotary", "base"), f"is {rotary['base']}, should be more than 1 for yarn")


def _fits(case: dict, fail: Report) -> None:
    """Options whose values depend on the sizes."""
    dims, mask, rotary = case["dims"], case["mask"], case["rotary"]
    if rotary:
        turned = rotary.get("dims", dims["d_k"])
        if turned % 2 and "dims" not in rotary:
            advice = "add dims, an even number up to d_k" if turned > 1 else "make d_k even"
            fail(("rotary",), f"turns columns in pairs, but d_k = {turned} is odd; {advice}")
        elif turned % 2 or turned > dims["d_k"]:
            fail(("rotary", "dims"), f"is {turned}, should be even and at most d_k = {dims['d_k']}")
        elif rotary.get("scaling", {}).get("rule") == "ntk" and turned < 4:
            fail(("rotary", "scaling", "rule"), "ntk needs at least 4 rotated columns")
    if "key_lengths" in mask:
        if len(mask["key_lengths"]) != dims.get("B", 1):
            fail(
                ("mask", "key_lengths"),
                f"names {len(mask['key_lengths'])}, but the batch has {dims.get('B', 1)}; give one for each sequence",
            )
        for i, length in enumerate(mask["key_lengths"]):
            if length > dims["Lc"]:
                fail(("mask", "key_lengths", i), f"is {length}, but there are {dims['Lc']} keys")
    for side, axis in (("queries", "Lq"), ("keys", "Lc")):
        if "documents" in mask and len(mask["documents"][side]) != dims[axis]:
            fail(("mask", "documents"), f"names {len(mask['documents'][side])} {side}, but the case has {axis} = {dims[axis]}")
    if case["t5"] and case["t5"]["direction"] == "both" and dims["buckets"] % 2:
        fail(("parameters", "t5_table"), f"has {dims['buckets']} buckets, should have an even number for direction: both")
    if case["t5"] and dims["buckets"] < 4:
        fail(("parameters", "t5_table"), f"has {dims['buckets']} buckets, should have at least 4")
    elif case["t5"]:
        alone = dims["buckets"] // (4 if case["t5"]["direction"] == "both" else 2)
        if case["t5"]["longest"] <= alone:
            fail(("t5", "longest"), f"is {case['t5']['longest']}, should be more than {alone}, for so many buckets hold one distance each")


def _positions(raw: dict, dims: dict, fail: Report) -> dict[str, list[int]]:
    """Positions of the queries, of the new keys and of all keys: as listed, or counted on from the past."""
    offset = raw.get("offset", dims["Lp"])
    queries = raw.get("queries", [offset + i for i in range(dims["Lq"])])
    keys = raw.get("keys", [offset + j for j in range(dims["Ln"])])
    for side, listed, axis in (("queries", queries, "Lq"), ("keys", keys, "Ln")):
        if len(listed) != dims[axis]:
            fail(("positions", side), f"lists {len(listed)}, but the case has {axis} = {dims[axis]}; list each once")
    return {"query_positions": queries, "key_positions": keys, "context_positions": [*range(dims["Lp"]), *keys]}


def _documents(mask: dict) -> dict:
    """`mask` with documents as {queries, keys}, also where one list names both."""
    if isinstance(mask.get("documents"), list):
        return {**mask, "documents": {"queries": mask["documents"], "keys": mask["documents"]}}
    return mask


def _scale_factor(scale: str | float, dims: dict[str, int]) -> float:
    named = {"none": lambda: 1.0, "1/sqrt(d_k)": lambda: 1 / math.sqrt(dims.get("d_k", 1)), "1/d_k": lambda: 1 / dims["d_k"]}
    named["1/sqrt(d_model)"] = lambda: 1 / math.sqrt(dims.get("d_model", size("H*d_k", dims)))
    return named[scale]() if isinstance(scale, str) else float(scale)


def _computed(raw: dict, mask: dict, begins_at: str, names: set[str]) -> dict[str, list[str]]:
    """Names of the arrays of each stage in this case."""
    values = begins_at != "scaled" or bool(names & {"v", "v_heads"})
    extra = "bias_k" in names or raw.get("extra_key") == "zero"
    masked = bool({"causal", "window", "documents", "key_lengths"} & set(mask) or names & set(BOOLEAN) - {"dropout_keep"})
    added = bool("alibi" in raw or names & {"bias_table", "t5_table", "mask_add", "mask_key_add"})
    made = {
        "x_pos": "sinusoidal" in raw,
        "x_kv_pos": "sinusoidal" in raw and "x_kv" in names,
        "q": begins_at in ("x", "qkv"),
        "k": begins_at in ("x", "qkv"),
        "v": begins_at in ("x", "qkv") or "v" in names,
        "q_heads": begins_at != "scaled",
        "k_heads": begins_at != "scaled",
        "v_heads": values,
        "q_norm": "qk_norm" in raw,
        "k_norm": "qk_norm" in raw,
        "q_rot": "rotary" in raw,
        "k_rot": "rotary" in raw,
        "present_k": "past_k" in names,
        "present_v": "past_k" in names,
        "k_extended": extra,
        "v_extended": extra,
        "qk": begins_at != "scaled",
        "scaled": True,
        "capped": "softcap" in raw,
        "bias": added,
        "keep": masked,
        "masked": True,
        "weights": True,
        "dropped": "dropout_keep" in names,
        "contexts": values,
        "concat": values,
        "output": values,
    }
    every = names | {name for name, there in made.items() if there}
    for name in GRADIENTS.split() if raw.get("backward") else []:
        made[f"d_{name}"] = name in every
    stages = {stage: [n for n in CATALOGUE if made.get(n) and _stage(n) == stage] for stage in STAGES}
    return {**stages, "parameters": [n for n in CATALOGUE if n in names]}


def _stage(name: str) -> str:
    return CATALOGUE[name].stage


def _multiply_adds(arrays: dict[str, list[str]], dims: dict[str, int]) -> dict[str, int]:
    """Multiply-adds of each stage's matrix products (softmax has none); a backward product costs as much as its forward one."""
    made = {name for stage in arrays.values() for name in stage}
    batch = dims.get("B", 1)
    forward = {
        w: batch * prod(shape(w, dims)) * dims["Lq" if w in ("w_q", "w_o") else "Ln"] for w in ("w_q", "w_k", "w_v", "w_o") if w in made
    }
    counts = dict.fromkeys(STAGES, 0)
    counts["projections"] = sum(forward.get(w, 0) for w in ("w_q", "w_k", "w_v"))
    counts["scores"] = batch * size("H*Lq*Lk*d_k", dims) if "qk" in made else 0
    counts["contexts"] = batch * size("H*Lq*Lk*d_v", dims) if "contexts" in made else 0
    counts["outputs"] = forward.get("w_o", 0)
    counts["backward"] = 2 * sum(counts.values()) if arrays["backward"] else 0
    return counts


def _dtype(name: str, dtype: str) -> str:
    return "bool" if name in BOOLEAN else dtype


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
    if not isinstance(values, str) or not (PRINTED.fullmatch(values) or values in SPELLED):
        fail(where, f'is {shown(values)}, should be a printed number in quotes, such as "0.2831"')
        return False
    return True
