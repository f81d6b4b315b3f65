"""The sizes of a case: those it states, those its arrays show, and what follows from them."""

from worked_attention.cases.literals import Report
from worked_attention.stages.catalogue import CATALOGUE, RANKS, axes, shape, size

INPUTS = ("x", "x_kv", "x_k", "x_v", "q", "k", "v", "q_heads", "k_heads", "v_heads", "scaled", "past_k", "past_v")


def find_sizes(options: dict, begins_at: str, shapes: dict[str, tuple | None], fail: Report) -> dict[str, int]:
    """Every size by name (`B` only if there is a batch); what is wrong goes to `fail`.

    options: those of the case, with every default. shapes: every parameter of the case, with its shape if it is written out.
    """
    extra = ("bias_k" in shapes) + (options["extra_key"] == "zero")
    same = _same_sizes(begins_at, shapes, extra)
    stated = {name: n for name, n in options["sizes"].items() if n is not None}
    dims = {
        "H": options["heads"],
        "H_kv": options["kv_heads"] or options["heads"],
        **{same.get(k, k): n for k, n in reversed(stated.items())},
    }
    origin = {
        "H": "heads",
        "H_kv": "kv_heads" if options["kv_heads"] else "heads",
        **dict.fromkeys((same.get(k, k) for k in stated), "sizes"),
    }
    known = {name: got for name, got in shapes.items() if got is not None}
    for name, n in stated.items():
        other = next(other for other in stated if same.get(other, other) == same.get(name, name))
        if n != stated[other]:
            fail(("sizes", name), f"is {n}, but in this case it is the same as {other} = {stated[other]}; leave one of them out")
            return dims
    if "Lp" in stated and "past_k" not in shapes:
        fail(("sizes", "Lp"), "counts keys in the cache, but there is no past_k; remove it")
    if dims["H"] % dims["H_kv"]:
        fail(("kv_heads",), f"{dims['H_kv']} key heads do not divide {dims['H']} query heads; use a divisor of {dims['H']}")
        return dims
    for name, got in known.items():
        if not _show(name, got, same, dims, origin, fail):
            return dims
    if begins_at == "x" and "d_model" in dims:
        for width in [width for width in ("d_k", "d_v") if width not in dims]:
            if dims["d_model"] % dims["H"]:
                message = f"{dims['H']} heads do not divide d_model = {dims['d_model']}; use a divisor of it, or give sizes.{width}"
                fail(("heads",), message)
                return dims
            dims[width] = dims["d_model"] // dims["H"]
    dims |= {name: dims[other] for name, other in same.items() if other in dims}
    _lengths(dims, same, extra, "past_k" in shapes, fail)
    if "d_v" not in dims and "d_k" in dims:
        dims["d_v"] = dims["d_k"]
    if "w_o" in shapes:
        dims.setdefault("d_out", dims.get("d_model", dims["H"] * dims.get("d_v", 1)))
    elif "d_v" in dims and dims.setdefault("d_out", size("H*d_v", dims)) != size("H*d_v", dims):
        fail(("sizes", "d_out"), f"is {dims['d_out']}, but without w_o it is H*d_v = {size('H*d_v', dims)}; leave it out, or give w_o")
    needed = {axis for name in shapes for part in CATALOGUE[name].axes if part != "..." for axis in part.split("*")}
    for axis in sorted({same.get(axis, axis) for axis in needed} - set(dims)):
        fail(("sizes", axis), "is needed, since no array given here shows it; add it")
        return dims
    if begins_at == "x" and "w_q" not in shapes:
        widths = size("H*d_k", dims), size("H_kv*d_k", dims), size("H_kv*d_v", dims)
        if widths != (dims["d_model"], dims["d_kv"], dims["d_vv"]):
            fail(("sizes",), "without w_q, w_k and w_v the heads cut up the input itself, so H*d_k = d_model, H_kv*d_k = H_kv*d_v = d_kv")
    for name, got in known.items():
        _check_shape(name, got, same, dims, origin, fail)
    return dims


def _same_sizes(begins_at: str, shapes: dict, extra: int) -> dict[str, str]:
    """Sizes that are one and the same in this case: name -> the name that the case uses for it."""
    same = {}
    if begins_at == "x" and not {"x_kv", "x_k"} & set(shapes):
        same = {"d_kv": "d_model", "d_vv": "d_model", "Ln": "Lq"}
    elif "x_k" not in shapes:
        same = {"d_vv": "d_kv"}
    if "past_k" not in shapes and not extra:
        same |= {"Lc": same.get("Ln", "Lk"), "Ln": same.get("Ln", "Lk")}
        same["Lk"] = same["Ln"]
    return {name: other for name, other in same.items() if name != other}


def _lengths(dims: dict[str, int], same: dict[str, str], extra: int, past: bool, fail: Report) -> None:
    """Ln new keys, Lc = Lp + Ln with the past, Lk = Lc + extra with those the layer appends; those not known follow."""
    if not past:
        dims["Lp"] = 0
    if "Lp" not in dims or "Lq" not in dims:
        return
    if "Lk" in dims and "Ln" not in dims and "Ln" not in same:
        dims["Ln"] = dims["Lk"] - extra - dims["Lp"]
    new = dims.setdefault("Ln", dims["Lq"])
    dims["Lc"] = dims["Lp"] + new
    if dims.setdefault("Lk", dims["Lc"] + extra) != dims["Lc"] + extra or new < 1:
        parts = f"{dims['Lp']} in the cache, {new} new and {extra} that the layer appends"
        fail(("sizes", "Lk"), f"is {dims['Lk']}, but the case has other keys: {parts}; leave it out")


def _show(name: str, got: tuple, same: dict, dims: dict, origin: dict, fail: Report) -> bool:
    """Take from the shape `got` of array `name` what it shows of the sizes; False if it does not fit at all."""
    ranks = RANKS.get(name)
    bare = [same.get(axis, axis) for axis in CATALOGUE[name].axes if axis != "..."]
    batch = "..." in CATALOGUE[name].axes
    if ranks:
        if len(got) not in ranks:
            allowed = " or ".join(map(str, ranks))
            fail(
                place(name),
                f"has rank {len(got)}, which libraries read differently; rank {allowed} is meant to be [B, H, Lq, Lk] from the right",
            )
        return len(got) in ranks
    if len(got) - len(bare) not in ((0, 1) if batch else (0,)):
        batched = f" or [B, {', '.join(bare)}]" if batch else ""
        fail(place(name), f"has shape {list(got)}, should be [{', '.join(bare)}]{batched}")
        return False
    if len(got) > len(bare) and name in INPUTS:
        origin.setdefault("B", name)
        dims.setdefault("B", got[0])
    for axis, n in zip(reversed(bare), reversed(got), strict=False):
        factors = axis.split("*")
        if factors[-1] in dims:
            continue
        heads = dims[factors[0]] if len(factors) > 1 else 1
        if n % heads:
            transposed = _transposed(name, got, dims.get(bare[-1]))
            if transposed:
                fail(place(name), f"has shape {list(got)}, should be [{', '.join(bare)}]{transposed}")
            else:
                fail(("heads",), f"{heads} heads do not divide {axis} = {n} of {name}; use a divisor of {n}")
            return False
        origin.setdefault(factors[-1], name)
        dims[factors[-1]] = n // heads
    return True


def _check_shape(name: str, got: tuple, same: dict, dims: dict, origin: dict, fail: Report) -> None:
    """Whether the shape `got` of array `name` is what the sizes say."""
    expected, named = shape(name, dims), [same.get(axis, axis) for axis in axes(name, dims)]
    if name in RANKS:
        expected = shape("masked", {**dims, "Lk": dims["Lc"]})
        fitting = len(got) <= len(expected) and all(n in (1, m) for n, m in zip(reversed(got), reversed(expected), strict=False))
        rule = "[Lq, Lk], or [B, H, Lq, Lk] where 1 stands for all"
        if not fitting or got[-1] != expected[-1]:
            fail(place(name), f"has shape {list(got)}, should fit {list(expected)}: {rule}")
    elif got != expected:
        sizes = [f"{axis} = {dims[axis]} as in {origin[axis]}" for axis in "*".join(named).split("*") if axis in origin]
        fail(
            place(name),
            f"has shape {list(got)}, should be [{', '.join(named)}] = {list(expected)}{', for ' * bool(sizes)}{', '.join(sizes)}"
            f"{_transposed(name, got, expected[-1])}",
        )


def _transposed(name: str, got: tuple, width: int | None) -> str:
    """Advice for a weight of shape `got` whose first axis, and not its last, has the `width` of its input; else nothing."""
    return "; weights are stored [out, in], so give its transpose" if name.startswith("w_") and got[0] == width != got[-1] else ""


def place(name: str) -> tuple[str, str]:
    """Where in a case an array is written."""
    return ("mask", name.removeprefix("mask_")) if name.startswith("mask_") else ("parameters", name)
