"""Truth: every array of every stage in ball arithmetic, on the exact binary parameters of the case.

A ball is a midpoint of 128 bits and a radius that the exact number cannot leave (Johansson 2017, "Arb: efficient
arbitrary-precision midpoint-radius interval arithmetic"). The formulas are those of the stages; nothing is rounded in between, so
that float16 cases are answered for their parameters and not for their arithmetic. Arrays of balls are NumPy object arrays.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain

import numpy as np
from flint import arb, arb_mat, ctx

from worked_attention.stages import masks, positions
from worked_attention.stages.catalogue import BOOLEAN
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import latest, split_heads

BITS = 128
Balls = np.ndarray  # of dtype object


@contextmanager
def working_bits(bits: int = BITS) -> Iterator[None]:
    """Ball arithmetic with midpoints of so many bits."""
    before, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = before


def balls(array: np.ndarray) -> Balls:
    """Each number of a float array as a ball of radius 0."""
    out = np.empty(array.shape, dtype=object)
    out.ravel()[:] = [arb(number) for number in array.astype(np.float64).ravel().tolist()]
    return out


def settle(x: Balls) -> tuple[np.ndarray, np.ndarray]:
    """(midpoint, radius) in float64: the exact number lies within radius of midpoint, whose own rounding is part of it."""
    flat = x.ravel().tolist()
    middle = np.array([float(ball) for ball in flat]).reshape(x.shape)
    sharp = np.array([ball.rel_accuracy_bits() > 60 for ball in flat], dtype=bool).reshape(x.shape)
    radius = np.where(np.isinf(middle), 0.0, np.abs(middle) * 2.0**-52)
    for index in zip(*np.nonzero(~sharp), strict=True):
        ball = x[index]
        radius[index] = 0.0 if ball.is_exact() else float(ball.rad()) * (1 + 2.0**-20) + abs(middle[index]) * 2.0**-52
    return middle, radius


def each(function: Callable, *x: Balls) -> Balls:
    """`function` of every element."""
    return np.frompyfunc(function, len(x), 1)(*x)


def matmul(a: Balls, b: Balls) -> Balls:
    """a b for a [..., n, d] and b [..., d, m]."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (n, d), m = a.shape[-2:], b.shape[-1]
    out = np.empty((*lead, n, m), dtype=object)
    a, b = np.broadcast_to(a, (*lead, n, d)), np.broadcast_to(b, (*lead, d, m))
    for index in np.ndindex(lead):
        product = arb_mat(n, d, a[index].ravel().tolist()) * arb_mat(d, m, b[index].ravel().tolist())
        out[index].ravel()[:] = product.entries()
    return out


def linear(x: Balls, w: Balls | None, b: Balls | None) -> Balls:
    """X W^T + b; what is None is left out."""
    y = x if w is None else matmul(x, w.T)
    return y if b is None else y + b


def repeat(x: Balls, heads: int) -> Balls:
    """Each key or value head for its block of query heads."""
    return np.repeat(x, heads // x.shape[-3], axis=-3)


def root(x: Balls) -> Balls:
    return each(lambda ball: ball.sqrt(), x)


# Positions


def sinusoids(where: list[int], width: int, base: float) -> Balls:
    """sin and cos of p / base^(2i/width), [L, width]."""
    steps = [arb(base) ** (-arb(2 * i) / width) for i in range((width + 1) // 2)]
    rows = [list(chain.from_iterable(((p * step).sin(), (p * step).cos()) for step in steps))[:width] for p in map(arb, where)]
    return np.array(rows, dtype=object).reshape(len(where), width)


def frequencies(dims: int, base: float, scaling: dict | None) -> tuple[list[arb], arb]:
    """theta_i of the pairs and the stretch of cosine and sine; see attention.positions.frequencies for the rules and their sources."""
    rule, factor = (scaling["rule"], arb(scaling["factor"])) if scaling else (None, arb(1))
    ball = arb(base)
    if rule == "ntk":
        ball = ball * factor ** (arb(dims) / (dims - 2))
    theta = [ball ** (-arb(2 * i) / dims) for i in range(dims // 2)]
    if rule == "linear":
        return [t / factor for t in theta], arb(1)
    if rule not in ("llama3", "yarn"):
        return theta, arb(1)
    length = scaling["original_length"]
    if rule == "llama3":
        low, high = arb(scaling.get("low", 1.0)), arb(scaling.get("high", 4.0))
        kept = [between((length * t / (2 * arb.pi()) - low) / (high - low)) for t in theta]
    else:

        def pair(turns: float) -> float:
            return float(dims * (length / (2 * arb.pi() * turns)).log() / (2 * arb(base).log()))

        first = max(math.floor(pair(scaling.get("beta_fast", 32.0))), 0)
        last = min(math.ceil(pair(scaling.get("beta_slow", 1.0))), dims - 1)
        kept = [1 - between(arb(i - first) / (max(last - first, 0) or arb(0.001))) for i in range(dims // 2)]
    blended = [k * t + (1 - k) * t / factor for k, t in zip(kept, theta, strict=True)]
    return blended, factor.log() / 10 + 1 if rule == "yarn" else arb(1)


def between(x: arb) -> arb:
    """x kept within 0 and 1."""
    return arb(0) if x < 0 else arb(1) if x > 1 else x


def turns(where: list[int], width: int, options: dict) -> tuple[Balls, Balls]:
    """cos and sin of every position and pair, [L, dims/2]; angles that the case rounds to a named precision are taken as rounded."""
    dims, base = options.get("dims", width), options.get("base", 10000.0)
    theta, stretch = frequencies(dims, base, options.get("scaling"))
    if options.get("angles", "float64") == "float64":
        angle = np.array([[p * t for t in theta] for p in where], dtype=object).reshape(len(where), -1)
    else:
        rounded, _ = positions.frequencies(dims, base, options.get("scaling"))
        angle = balls(positions.angles(np.array(where), rounded, np.dtype(options["angles"])))
    return each(lambda x: stretch * x.cos(), angle), each(lambda x: stretch * x.sin(), angle)


# Stages: each takes the case and balls by name (booleans stay booleans), and returns balls by name


def projections(case: dict, a: dict) -> dict:
    wanted, made = case["arrays"]["projections"], dict(a)
    where = {"q": case["query_positions"], "k": case["key_positions"]}
    if "x_pos" in wanted:
        made["x_pos"] = a["x"] + sinusoids(where["q"], case["dims"]["d_model"], case["sinusoidal"]["base"])
    if "x_kv_pos" in wanted:
        made["x_kv_pos"] = a["x_kv"] + sinusoids(where["k"], case["dims"]["d_kv"], case["sinusoidal"]["base"])
    sources = {"q": ("x_pos", "x"), "k": ("x_k", "x_kv_pos", "x_kv", "x_pos", "x"), "v": ("x_v", "x_kv_pos", "x_kv", "x_pos", "x")}
    for name in "qkv":
        if name in wanted and name not in made:
            made[name] = linear(next(made[s] for s in sources[name] if s in made), a.get(f"w_{name}"), a.get(f"b_{name}"))
        if f"{name}_heads" in wanted and f"{name}_heads" not in made:
            made[f"{name}_heads"] = split_heads(made[name], case["heads"] if name == "q" else case["kv_heads"])
    for name in "qk":
        if f"{name}_norm" in wanted:
            made[f"{name}_norm"] = normed(made[f"{name}_heads"], case["qk_norm"], a.get(f"g_{name}"))
        if f"{name}_rot" in wanted:
            x = made.get(f"{name}_norm", made[f"{name}_heads"])
            made[f"{name}_rot"] = positions.rotate(x, *turns(where[name], x.shape[-1], case["rotary"]), case["rotary"]["pairing"])
    if "present_k" in wanted:
        made["present_k"] = np.concatenate([a["past_k"], latest(made, "k")], axis=-2)
        made["present_v"] = np.concatenate([a["past_v"], made["v_heads"]], axis=-2)
    for name in "kv" if "k_extended" in wanted else "":
        x = latest(made, name)
        more = [split_heads(a[f"bias_{name}"][None], case["kv_heads"])] if f"bias_{name}" in a else []
        more += [balls(np.zeros((1, x.shape[-1])))] if case["extra_key"] == "zero" else []
        made[f"{name}_extended"] = np.concatenate([x, *(np.broadcast_to(m, (*x.shape[:-2], 1, x.shape[-1])) for m in more)], axis=-2)
    return {name: made[name] for name in wanted}


def normed(x: Balls, options: dict, gain: Balls | None) -> Balls:
    size = (x * x).sum(axis=-1, keepdims=True) / (x.shape[-1] if options["kind"] == "rms" else 1)
    y = x / root(size + arb(options["eps"]))
    return y if gain is None else y * gain


def scale_of(case: dict) -> arb:
    """The scale as the case says it, exactly."""
    dims, scale = case["dims"], case["scale"]
    if scale == "1/sqrt(d_k)":
        return 1 / arb(dims.get("d_k", 1)).sqrt()
    if scale == "1/sqrt(d_model)":
        return 1 / arb(dims.get("d_model", dims["H"] * dims["d_k"])).sqrt()
    return 1 / arb(dims["d_k"]) if scale == "1/d_k" else arb(case["scale_factor"])


def slopes(heads: int, rule: str) -> list[arb]:
    below = 2 ** int(math.log2(heads))
    if rule == "geometric" or below == heads:
        return [arb(2) ** (-arb(8 * h) / heads) for h in range(1, heads + 1)]
    return slopes(below, rule) + slopes(2 * below, rule)[::2][: heads - below]


def added(case: dict, a: dict) -> Balls | None:
    """All additive terms together."""
    i, j = np.array(case["query_positions"])[:, None], np.array(case["context_positions"])[None, :]
    terms = [a[name] for name in ("bias_table", "mask_add") if name in a]
    if "mask_key_add" in a:
        terms.append(a["mask_key_add"][..., None, None, :])
    if case["alibi"]:
        steps = {"distance": -abs(i - j), "relative": j - i, "key_index": j + 0 * i}[case["alibi"]["form"]]
        slope = np.array(slopes(case["heads"], case["alibi"]["slopes"]), dtype=object)
        terms.append(slope[:, None, None] * balls(steps))
    if "t5_table" in a:
        found = positions.t5_buckets(j - i, len(a["t5_table"]), case["t5"]["longest"], case["t5"]["direction"])
        terms.append(np.moveaxis(a["t5_table"][found], -1, 0))
    if not terms:
        return None
    total = sum(terms[1:], terms[0])
    extra = case["dims"]["Lk"] - case["dims"]["Lc"]
    return np.concatenate([total, balls(np.zeros((*total.shape[:-1], extra)))], axis=-1) if extra else total


def scores(case: dict, a: dict) -> dict:
    made = {}
    if "scaled" in a:
        made["scaled"] = a["scaled"]
    else:
        made["qk"] = matmul(latest(a, "q"), np.swapaxes(repeat(latest(a, "k"), case["heads"]), -1, -2))
        made["scaled"] = made["qk"] * scale_of(case)
    x = made["scaled"]
    if case["softcap"]:
        cap = arb(case["softcap"])
        x = made["capped"] = each(lambda s: cap * (s / cap).tanh(), x)
    if (bias := added(case, a)) is not None:
        made["bias"] = np.broadcast_to(bias, x.shape)
        x = x + made["bias"]
    if (keep := masks.combined(case, a)) is not None:
        made["keep"] = np.broadcast_to(keep, x.shape)
        with np.errstate(over="ignore"):
            fill = np.asarray(masks.fill_value(case["mask"]["fill"], np.dtype(case["dtype"]))).astype(case["dtype"])
        x = np.where(made["keep"], x, balls(fill)[()])
    return {**made, "masked": x}


def weights(case: dict, a: dict) -> dict:
    x = a["masked"]
    middle = np.array([float(ball) for ball in x.ravel().tolist()]).reshape(x.shape)
    if case["softmax"] == "hardmax":
        chosen = np.arange(x.shape[-1]) == middle.argmax(axis=-1)[..., None]
        p = balls((chosen & (middle > -np.inf)).astype(float))
    else:
        p = softmax(case, x, middle, balls(np.zeros(case["heads"])) if case["softmax"] == "plus_one" else a.get("sinks"))
    made = {"weights": p}
    if "dropout_keep" in a:
        made["dropped"] = p * balls(a["dropout_keep"]) / (1 - arb(case["dropout"]))
    return made


def softmax(case: dict, x: Balls, middle: np.ndarray, sinks: Balls | None) -> Balls:
    """Shifted by the largest score or sink: the quotient is the same, and no exponential overflows."""
    largest = middle.max(axis=-1, keepdims=True)
    if sinks is not None:
        sinks = np.broadcast_to(sinks[:, None, None], largest.shape)
        largest = np.maximum(largest, each(float, sinks).astype(float))
    empty = largest == -np.inf
    shift = balls(np.where(empty, 0.0, largest))
    e = each(lambda s, m: (s - m).exp(), x, np.broadcast_to(shift, x.shape))
    total = e.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + each(lambda s, m: (s - m).exp(), sinks, shift)
    if not empty.any():
        return e / total
    policy = {"zero": arb(0), "nan": arb("nan"), "uniform": 1 / arb(x.shape[-1])}.get(case["mask"]["empty_row"], arb("nan"))
    return np.where(empty, policy, e / np.where(empty, arb(1), total))


def contexts(case: dict, a: dict) -> dict:
    if not case["arrays"]["contexts"]:
        return {}
    made = matmul(a.get("dropped", a.get("weights")), repeat(latest(a, "v"), case["heads"]))
    return {"contexts": made, "concat": merge_heads(made)}


def outputs(case: dict, a: dict) -> dict:
    return {"output": linear(a["concat"], a.get("w_o"), a.get("b_o"))} if "concat" in a else {}


def backward(case: dict, a: dict) -> dict:
    """The chain rule as in attention.backward."""
    if not case["backward"]:
        return {}
    d = {"output": a["upstream"] if "upstream" in a else balls(np.ones(a["output"].shape))}
    d["concat"] = d["output"]
    if "w_o" in a:
        d["concat"], d["w_o"], d["b_o"] = linear_backward(d["output"], a["concat"], a["w_o"])
    d["contexts"] = split_heads(d["concat"], case["heads"])
    values, keys = repeat(latest(a, "v"), case["heads"]), repeat(latest(a, "k"), case["heads"])
    d_values = matmul(np.swapaxes(a.get("dropped", a["weights"]), -1, -2), d["contexts"])
    d["weights"] = matmul(d["contexts"], np.swapaxes(values, -1, -2))
    if "dropout_keep" in a:
        d["weights"] = d["weights"] * balls(a["dropout_keep"]) / (1 - arb(case["dropout"]))
    p = a["weights"]
    blocked = each(lambda s: s == arb("-inf"), a["masked"]).astype(bool)
    d["masked"] = np.where(blocked, arb(0), p * (d["weights"] - (p * d["weights"]).sum(axis=-1, keepdims=True)))
    d["scaled"] = np.where(a["keep"], d["masked"], arb(0)) if "keep" in a else d["masked"]
    if case["softcap"]:
        d["scaled"] = d["scaled"] * (1 - (a["capped"] / arb(case["softcap"])) ** 2)
    d["qk"] = d["scaled"] * scale_of(case)
    new = slice(case["dims"]["Lp"], case["dims"]["Lc"])

    def grouped(x: Balls) -> Balls:
        return x.reshape(*x.shape[:-3], case["kv_heads"], -1, *x.shape[-2:]).sum(axis=-3)[..., new, :]

    d["v_heads"] = grouped(d_values)
    d["q_heads"] = matmul(d["qk"], keys)
    d["k_heads"] = grouped(matmul(np.swapaxes(d["qk"], -1, -2), latest(a, "q")))
    for name, where in (("q", case["query_positions"]), ("k", case["key_positions"])):
        if case["rotary"]:
            cos, sin = turns(where, a[f"{name}_heads"].shape[-1], case["rotary"])
            d[f"{name}_heads"] = positions.rotate(d[f"{name}_heads"], cos, -sin, case["rotary"]["pairing"])
        if case["qk_norm"]:
            d[f"{name}_heads"] = norm_backward(d[f"{name}_heads"], a[f"{name}_heads"], case["qk_norm"], a.get(f"g_{name}"))
    sources = {"q": ("x",), "k": ("x_k", "x_kv", "x"), "v": ("x_v", "x_kv", "x")}
    for name in "qkv":
        d[name] = merge_heads(d[f"{name}_heads"])
        source = next((s for s in sources[name] if s in a), None)
        if source is None:
            continue
        d_source = d[name]
        if f"w_{name}" in a:
            d_source, d[f"w_{name}"], d[f"b_{name}"] = linear_backward(d[name], a.get(f"{source}_pos", a[source]), a[f"w_{name}"])
        d[source] = d[source] + d_source if source in d else d_source
    return {name: d[name[2:]] for name in case["arrays"]["backward"]}


def linear_backward(dy: Balls, x: Balls, w: Balls) -> tuple[Balls, Balls, Balls]:
    rows, inputs = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    return matmul(dy, w), matmul(rows.T, inputs), rows.sum(axis=0)


def norm_backward(dy: Balls, x: Balls, options: dict, gain: Balls | None) -> Balls:
    n = x.shape[-1] if options["kind"] == "rms" else 1
    r = root((x * x).sum(axis=-1, keepdims=True) / n + arb(options["eps"]))
    unit, dy = x / r, dy if gain is None else dy * gain
    return (dy - unit * (unit * dy).sum(axis=-1, keepdims=True) / n) / r


STAGES = {f.__name__: f for f in (projections, scores, weights, contexts, outputs, backward)}


def truth(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Every array of every stage by name as (midpoint, radius), float64, from the exact parameters of the case.

    arrays: at least the case's parameters, as attention.parameters.stage makes them. Booleans (`keep`) have radius 0.
    """
    with working_bits():
        known = _given({name: arrays[name] for name in case["arrays"]["parameters"]})
        made: dict = {}
        for stage in STAGES.values():
            new = stage(case, known)
            made |= new
            known |= new
        return {name: _settled(value) for name, value in made.items()}


def stage_truth(case: dict, stage: str, arrays: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The arrays of one stage as (midpoint, radius), recomputed from `arrays`, which are taken as exact."""
    with working_bits():
        known = {name: value for name, value in arrays.items() if name not in case["arrays"][stage] or name in case["arrays"]["parameters"]}
        return {name: _settled(value) for name, value in STAGES[stage](case, _given(known)).items()}


def _given(arrays: dict[str, np.ndarray]) -> dict:
    return {name: value if name in BOOLEAN else balls(value) for name, value in arrays.items()}


def _settled(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return settle(value) if value.dtype == object else (value, np.zeros(value.shape))
