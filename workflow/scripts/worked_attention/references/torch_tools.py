"""What the torch references share: tensors, projections by linear, positions and masks built with torch's own functions.

This is a second route to every number: rotations are complex products, masks come from tril, triu and comparisons.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from ml_dtypes import bfloat16
from torch.nn.functional import linear, normalize, rms_norm

from worked_attention.stages import dtypes

DTYPES = {name: getattr(torch, name) for name in dtypes.DTYPES}


def tensor(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor of the same dtype."""
    if array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def numpy(x: torch.Tensor) -> np.ndarray:
    """The tensor as an array of the same dtype."""
    x = x.detach().contiguous()
    return x.view(torch.uint16).numpy().view(bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def packed(p: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """w_q, w_k, w_v and their biases, to be stacked as torch's in_proj_weight and in_proj_bias; a missing bias is zeros."""
    weights = [p[f"w_{n}"] for n in "qkv"]
    return weights, [p[f"b_{n}"] if f"b_{n}" in p else w.new_zeros(len(w)) for n, w in zip("qkv", weights, strict=True)]


def inputs(case: dict, p: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What queries, keys and values are made from, sinusoids added."""
    x = p["x"]
    keys = p.get("x_k", p.get("x_kv", x))
    values = p.get("x_v", p.get("x_kv", x))
    if not case["sinusoidal"]:
        return x, keys, values
    same = keys is x
    x = x + sinusoids(case["query_positions"], x.shape[-1], case["sinusoidal"]["base"]).to(x.dtype)
    keys = x if same else keys + sinusoids(case["key_positions"], keys.shape[-1], case["sinusoidal"]["base"]).to(x.dtype)
    return x, keys, keys


def sinusoids(positions: list[int], width: int, base: float) -> torch.Tensor:
    """[L, width]: sine in the even columns, cosine in the odd ones."""
    table = torch.zeros(len(positions), width + width % 2, dtype=torch.float64)
    step = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(base) / width))
    angle = torch.tensor(positions, dtype=torch.float64)[:, None] * step
    table[:, 0::2], table[:, 1::2] = torch.sin(angle), torch.cos(angle)
    return table[:, :width]


def project(case: dict, p: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """q, k and v as far as the case has them: as given, by linear (packed where there is one input), or the input itself."""
    if "x" not in p:
        return {name: p[name] for name in "qkv" if name in p}
    x = dict(zip("qkv", inputs(case, p), strict=True))
    shown = {"x_pos": x["q"]} if case["sinusoidal"] else {}
    if case["sinusoidal"] and "x_kv" in p:
        shown["x_kv_pos"] = x["k"]
    return shown | projected(x, p)


def projected(x: dict[str, torch.Tensor], p: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """q, k and v from what each of them is made from."""
    if "w_q" not in p:
        return {name: source.clone() for name, source in x.items()}  # one tensor would have one gradient for all three
    if x["q"] is x["k"] is x["v"]:
        weight, bias = packed(p)
        made = linear(x["q"], torch.cat(weight), torch.cat(bias))
        return dict(zip("qkv", made.split([len(w) for w in weight], dim=-1), strict=True))
    return {name: linear(x[name], p[f"w_{name}"], p.get(f"b_{name}")) for name in "qkv"}


def heads(case: dict, p: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything up to what the products use; the last forms of queries, keys and values are `Q`, `K` and `V`."""
    made = project(case, p)
    count = {"q": case["heads"], "k": case["kv_heads"], "v": case["kv_heads"]}
    for name in "qkv":
        if f"{name}_heads" in p:
            made[f"{name}_heads"] = p[f"{name}_heads"]
        elif name in made:
            made[f"{name}_heads"] = made[name].unflatten(-1, (count[name], -1)).transpose(-2, -3)
    last = {name: made[f"{name}_heads"] for name in "qkv" if f"{name}_heads" in made}
    for name, positions in (("q", case["query_positions"]), ("k", case["key_positions"])):
        if case["qk_norm"]:
            made[f"{name}_norm"] = last[name] = normed(last[name], case["qk_norm"], p.get(f"g_{name}"))
        if case["rotary"]:
            made[f"{name}_rot"] = last[name] = rotated(last[name], positions, case["rotary"])
    if "past_k" in p:
        made["present_k"] = last["k"] = torch.cat([p["past_k"], last["k"]], dim=-2)
        made["present_v"] = last["v"] = torch.cat([p["past_v"], last["v"]], dim=-2)
    for name in "kv":
        if f"bias_{name}" in p or case["extra_key"] == "zero":
            x = last[name]
            if f"bias_{name}" in p:
                row = p[f"bias_{name}"].view(case["kv_heads"], 1, -1)
                x = torch.cat([x, row.expand(*x.shape[:-2], 1, -1)], dim=-2)
            if case["extra_key"] == "zero":
                x = torch.nn.functional.pad(x, (0, 0, 0, 1))
            made[f"{name}_extended"] = last[name] = x
    return made | {name.upper(): x for name, x in last.items()}


def normed(x: torch.Tensor, options: dict, gain: torch.Tensor | None) -> torch.Tensor:
    """torch's rms_norm, or x over its length, times the gain; vectors of zeros without eps as the case says."""
    wide = x if x.dtype in (torch.float64, torch.float32) else x.float()
    y = NORMS[options["kind"]](wide, options["eps"])
    if options["eps"] == 0:
        y = torch.where((wide == 0).all(dim=-1, keepdim=True), ZERO_VECTOR[options["zero_vector"]], y)
    return (y if gain is None else y * gain.to(y.dtype)).to(x.dtype)


def rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    """x over its root mean square."""
    return rms_norm(x, x.shape[-1:], eps=eps)


def length(x: torch.Tensor, eps: float) -> torch.Tensor:
    """x over its length."""
    return x * torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 + eps) if eps else normalize(x, dim=-1)


NORMS = {"rms": rms, "l2": length}
ZERO_VECTOR = {"zero": 0.0, "nan": torch.nan}
PAIRS = {  # the shape of the rotated columns, and with which axes exchanged the pairs of it are rows
    "half": ((2, -1), lambda columns: columns.transpose(-1, -2)),
    "interleaved": ((-1, 2), lambda columns: columns),
}


def rotated(x: torch.Tensor, positions: list[int], options: dict) -> torch.Tensor:
    """Each pair of columns as one complex number, times e^(i angle)."""
    dims, turn = options["dims"], turns(positions, options)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    turn = torch.view_as_complex(torch.view_as_real(turn).to(wide))
    part = x[..., :dims].to(wide)
    shape, rows = PAIRS[options["pairing"]]
    pairs = torch.view_as_complex(rows(part.unflatten(-1, shape)).contiguous())
    flat = rows(torch.view_as_real(pairs * turn)).flatten(-2)
    return torch.cat([flat.to(x.dtype), x[..., dims:]], dim=-1)


def turns(positions: list[int], options: dict) -> torch.Tensor:
    """stretch * e^(i angle) of each position and pair, complex128 [L, dims/2]."""
    theta, stretch = frequencies(options["dims"], options["base"], options["scaling"])
    precision = DTYPES[options["angles"]]
    angle = torch.tensor(positions, dtype=torch.float64).to(precision)[:, None] * theta.to(precision)
    return torch.polar(torch.full_like(angle, stretch, dtype=torch.float64), angle.double())


def tables(case: dict) -> dict[str, torch.Tensor]:
    """`inv_freq`, and cosines and sines of queries and keys, in the dtype of the case; none without rotary positions."""
    if not case["rotary"]:
        return {}
    options = case["rotary"]
    query, key = (turns(case[where], options) for where in ("query_positions", "key_positions"))
    made = {"inv_freq": frequencies(options["dims"], options["base"], options["scaling"])[0]}
    made |= {"query_cos": query.real, "query_sin": query.imag, "key_cos": key.real, "key_sin": key.imag}
    return {name: table.to(DTYPES[case["dtype"]]) for name, table in made.items()}


def distances(case: dict, p: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """`slopes` and `buckets` of a case that has them, in `dtype`."""
    made = {"slopes": slopes(case["heads"], case["alibi"]["slopes"]).to(dtype)} if case["alibi"] else {}
    return made | ({"buckets": t5_buckets(case, len(p["t5_table"])).to(dtype)} if "t5_table" in p else {})


def t5_buckets(case: dict, buckets: int) -> torch.Tensor:
    """Bucket of each key for each query [Lq, Lc]."""
    steps = torch.tensor(case["context_positions"])[None, :] - torch.tensor(case["query_positions"])[:, None]
    return torch.tensor([[t5_bucket(int(s), buckets, case["t5"]) for s in row] for row in steps])


def frequencies(dims: int, base: float, scaling: dict | None) -> tuple[torch.Tensor, float]:
    """Angle per position of each pair and the stretch of cosine and sine, by the rules' own papers, pair by pair."""
    theta, stretch = RULES[scaling["rule"] if scaling else None](dims, base, scaling)
    return torch.tensor(theta, dtype=torch.float64), stretch


def powers(dims: int, base: float, scaling: dict | None = None) -> tuple[list[float], float]:
    """base^(-2i/dims) of pair i."""
    return [base ** (-2 * i / dims) for i in range(dims // 2)], 1.0


def interpolated(dims: int, base: float, scaling: dict) -> tuple[list[float], float]:
    """Positions divided by the factor."""
    return [t / scaling["factor"] for t in powers(dims, base)[0]], 1.0


def ntk_aware(dims: int, base: float, scaling: dict) -> tuple[list[float], float]:
    """Another base."""
    return powers(dims, base * scaling["factor"] ** (dims / (dims - 2)))


def by_wavelength(dims: int, base: float, scaling: dict) -> tuple[list[float], float]:
    """Llama 3: long waves divided, short ones kept, those between blended."""
    theta, length = powers(dims, base)[0], scaling["original_length"]
    long, short = length / scaling["low"], length / scaling["high"]
    for i, t in enumerate(theta):
        wavelength = 2 * math.pi / t
        if wavelength > long:
            theta[i] = t / scaling["factor"]
        elif wavelength >= short:
            smooth = (length / wavelength - scaling["low"]) / (scaling["high"] - scaling["low"])
            theta[i] = (1 - smooth) * t / scaling["factor"] + smooth * t
    return theta, 1.0


def by_parts(dims: int, base: float, scaling: dict) -> tuple[list[float], float]:
    """YaRN: a ramp over the pairs between those with beta_fast and beta_slow turns; where it has no room, all from its start on."""

    def where(turns: float) -> float:
        return dims * math.log(scaling["original_length"] / (2 * math.pi * turns)) / (2 * math.log(base))

    theta = powers(dims, base)[0]
    low, high = max(math.floor(where(scaling["beta_fast"])), 0), min(math.ceil(where(scaling["beta_slow"])), dims - 1)
    for i, t in enumerate(theta):
        ramp = min(max((i - low) / (high - low), 0), 1) if high > low else float(i >= low)
        theta[i] = t / scaling["factor"] * ramp + t * (1 - ramp)
    return theta, 0.1 * math.log(scaling["factor"]) + 1


RULES = {None: powers, "linear": interpolated, "ntk": ntk_aware, "llama3": by_wavelength, "yarn": by_parts}


ALIGN = {"top_left": lambda rows, end: 0, "bottom_right": lambda rows, end: end - rows}  # how far the diagonal lies to the right
ENDS = {"padded": lambda case: [case["dims"]["Lc"]], "own": lambda case: case["mask"]["key_lengths"]}


def keep(case: dict, p: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """All masks together [..., H or 1, Lq, Lk], True = attend; None if there are none."""
    mask, dims = case["mask"], case["dims"]
    rows, columns = case["rows"]["of"], dims["Lc"]
    ends = ENDS[mask["diagonal"]](case)
    every = torch.ones(rows, columns, dtype=torch.bool)

    def banded(align: str, band: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """`band` of how far the diagonal lies to the right, one for all sequences or one for each."""
        bands = [band(ALIGN[align](rows, end))[case["rows"]["numbers"]] for end in ends]
        return torch.stack(bands)[:, None] if "B" in dims and mask["diagonal"] == "own" else bands[0]

    found = []
    if "causal" in mask:
        seen = banded(mask["causal"], every.tril).clone()
        seen[..., : mask["prefix"]] = True
        found.append(seen)
    if "window" in mask:
        align, left, right = (mask["window"][key] for key in ("align", "left", "right"))
        found += [] if left is None else [banded(align, lambda shift: every.triu(shift - left))]
        found += [] if right is None else [banded(align, lambda shift: every.tril(shift + right))]
        found += [every[case["rows"]["numbers"]]]
    if "documents" in mask:
        found.append(torch.tensor(mask["documents"]["queries"])[:, None] == torch.tensor(mask["documents"]["keys"]))
    if "key_lengths" in mask:
        real = torch.arange(columns) < torch.tensor(mask["key_lengths"])[:, None]
        found.append(real[:, None, None, :] if "B" in dims else real)
    for name, sign in (("mask_keep", 1), ("mask_key_keep", 1), ("mask_block", 0), ("mask_key_block", 0)):
        if name in p:
            given = p[name] if sign else p[name].logical_not()
            found.append(given[..., None, None, :] if "key" in name else given)
    if not found:
        return None
    whole = found[0]
    for other in found[1:]:
        whole = whole & other
    return torch.nn.functional.pad(whole, (0, dims["Lk"] - columns), value=True)


FORMS = {  # what an ALiBi slope multiplies, of steps [Lq, Lk] and positions of keys [Lk]
    "distance": lambda steps, keys: -steps.abs(),
    "relative": lambda steps, keys: steps,
    "key_index": lambda steps, keys: keys.expand_as(steps),
}


def bias(case: dict, p: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor | None:
    """All additive terms together [..., H or 1, Lq, Lk], in `dtype`; None if there are none."""
    steps = torch.tensor(case["context_positions"])[None, :] - torch.tensor(case["query_positions"])[:, None]
    terms = [p[name] for name in ("bias_table", "mask_add") if name in p]
    terms += [p["mask_key_add"][..., None, None, :]] if "mask_key_add" in p else []
    if case["alibi"]:
        form = FORMS[case["alibi"]["form"]](steps, torch.tensor(case["context_positions"]))
        terms.append(slopes(case["heads"], case["alibi"]["slopes"])[:, None, None] * form)
    if "t5_table" in p:
        terms.append(p["t5_table"][t5_buckets(case, len(p["t5_table"]))].permute(2, 0, 1))
    if not terms:
        return None
    total = terms[0].to(torch.promote_types(terms[0].dtype, dtype))
    for term in terms[1:]:
        total = total + term
    return torch.nn.functional.pad(total.to(dtype), (0, case["dims"]["Lk"] - case["dims"]["Lc"]))


def series(heads: int) -> list[float]:
    """ALiBi slopes by repeated multiplication with the ratio of the series."""
    ratio = 2 ** (-8 / heads)
    return [ratio**h for h in range(1, heads + 1)]


def woven(heads: int) -> list[float]:
    """The series of the power of two below, and every second slope of the next one for the heads that are left."""
    below = 1 << (heads.bit_length() - 1)
    return series(below) + series(2 * below)[::2][: heads - below]


SLOPES = {"geometric": series, "interleaved": woven}


def slopes(heads: int, rule: str) -> torch.Tensor:
    """ALiBi slopes [H]."""
    return torch.tensor(SLOPES[rule](heads), dtype=torch.float64)


SIDES = {  # buckets of a side, first bucket and distance
    "both": lambda step, buckets: (buckets // 2, buckets // 2 * (step > 0), abs(step)),
    "left": lambda step, buckets: (buckets, 0, max(-step, 0)),
}


def t5_bucket(step: int, buckets: int, options: dict) -> int:
    """Bucket of one relative position."""
    buckets, start, step = SIDES[options["direction"]](step, buckets)
    exact = buckets // 2
    if step < exact:
        return start + step
    return start + min(exact + int(math.log(step / exact) / math.log(options["longest"] / exact) * (buckets - exact)), buckets - 1)


def finish(contexts: torch.Tensor, p: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """concat and output from the contexts [..., H, Lq, d_v]."""
    concat = contexts.transpose(-2, -3).flatten(-2)
    return {"contexts": contexts, "concat": concat, "output": linear(concat, p["w_o"], p.get("b_o")) if "w_o" in p else concat}
