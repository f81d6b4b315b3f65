"""Stage projections of one sequence: queries, keys and values, in heads, normed, rotated, behind what the cache holds."""

import numpy as np
from flint import arb

from worked_attention.referee.truth.balls import ANYTHING, NAN, Balls, balls, each, linear
from worked_attention.referee.truth.parts import Part
from worked_attention.referee.truth.positions import frequencies, rotated, sinusoids, turns

INPUTS = {"q": ("x",), "k": ("x_k", "x_kv", "x"), "v": ("x_v", "x_kv", "x")}  # the first that the case gives
STEPS = {  # what becomes of a query, key or value of a head, step by step; the last one that a case has enters the scores or contexts
    "q": ("q_heads", "q_norm", "q_rot"),
    "k": ("k_heads", "k_norm", "k_rot", "present_k", "k_extended"),
    "v": ("v_heads", "present_v", "v_extended"),
}


def entering(part: Part, name: str) -> Balls:
    """Queries, keys or values (`name` q, k or v) as the scores and contexts use them."""
    return part.first(*reversed(STEPS[name]))


def inputs(case: dict, part: Part) -> dict[str, Balls]:
    """x with its sinusoids, as far as the case has them, [L, columns], and the frequencies of its rotations."""
    wanted, dims, made = case["arrays"]["projections"], case["dims"], {}
    for name, plain, where, width in (("x_pos", "x", "query", "d_model"), ("x_kv_pos", "x_kv", "key", "d_kv")):
        if name in wanted:
            made[name] = part[plain] + sinusoids(case[f"{where}_positions"], dims[width], case["sinusoidal"]["base"])
    if "inv_freq" in wanted:
        options = case["rotary"]
        made["inv_freq"] = np.array(frequencies(options["dims"], arb(options["base"]), options["scaling"])[0], dtype=object)
    return made


def projected(case: dict, part: Part, name: str) -> dict[str, Balls]:
    """Queries, keys or values (`name` q, k or v) in all the forms that the case has: tokens [L, columns], heads [H, L, d] or [H_kv, L, d].

    part: from x, with its sinusoids, or from queries, keys and values; it gets them as well.
    """
    wanted, dims = case["arrays"]["projections"], case["dims"]
    if name in wanted and name not in part:
        alone = part.cut()  # so that balls of the input and of the weight do not stay
        part.add({name: linear(source(alone, name), alone.maybe(f"w_{name}"), alone.maybe(f"b_{name}"))})
    if f"{name}_heads" in wanted and f"{name}_heads" not in part:
        part.add({f"{name}_heads": columns(part[name], case["heads"] if name == "q" else case["kv_heads"])})
    if f"{name}_norm" in wanted:
        part.add({f"{name}_norm": normed(part[f"{name}_heads"], case["qk_norm"], part.maybe(f"g_{name}"))})
    if f"{name}_rot" in wanted:
        word = {"q": "query", "k": "key"}[name]
        turn = turns(case[f"{word}_positions"], case["rotary"])
        part.add({f"{word}_cos": each(lambda z: z.real, turn), f"{word}_sin": each(lambda z: z.imag, turn)})
        part.add({f"{name}_rot": np.stack([rotated(x, turn, case["rotary"]["pairing"]) for x in entering(part, name)])})
    if (past := f"present_{name}") in wanted:
        part.add({past: np.stack([np.vstack(both) for both in zip(part[f"past_{name}"], entering(part, name), strict=True)])})
    if f"{name}_extended" in wanted:
        more = appended(case, part.maybe(f"bias_{name}"), dims[f"d_{name}"])
        part.add({f"{name}_extended": np.stack([np.vstack([x, m]) for x, m in zip(entering(part, name), more, strict=True)])})
    own = {name, *STEPS[name], *({"q": ("query_cos", "query_sin"), "k": ("key_cos", "key_sin")}.get(name, ()))}
    return {made: part[made] for made in wanted if made in own and made not in case["arrays"]["parameters"]}


def source(part: Part, name: str) -> Balls:
    """What queries, keys or values (`name` q, k or v) are projected from: x, or an input of their own, with its sinusoids."""
    given = next(x for x in INPUTS[name] if x in part)
    return part.first(f"{given}_pos", given)


def columns(x: Balls, heads: int) -> Balls:
    """[heads, L, d] from x [L, heads * d]: the first d columns are those of the first head, and so on."""
    d = x.shape[1] // heads
    return np.stack([x[:, h * d : (h + 1) * d] for h in range(heads)])


def appended(case: dict, bias: Balls | None, d: int) -> Balls:
    """The keys or values that the layer puts behind all others, [H_kv, 1 or 2, d]: a learned one (`bias` [H_kv * d]), and zeros."""
    learned = [] if bias is None else [columns(bias[None, :], case["kv_heads"])]
    zeros = balls(np.zeros((case["kv_heads"], EXTRA[case["extra_key"]], d)))
    return np.concatenate([*learned, zeros], axis=1)


EXTRA = {"none": 0, "zero": 1}  # how many keys of zeros


def normed(x: Balls, options: dict, gain: Balls | None) -> Balls:
    """x [H, L, d], each row over its size, times the gain [d]; what 0/0 is, the options say.

    The size is sqrt(mean(x^2) + eps) for `rms` (Zhang and Sennrich 2019, equation 4), sqrt(sum(x^2) + eps) for `l2`.
    """
    share = SHARE[options["kind"]](x.shape[-1])
    size = each(lambda s: (s * share + arb(options["eps"])).nonnegative_part().sqrt(), (x * x).sum(axis=-1, keepdims=True))
    nothing = ZERO_VECTOR[options["zero_vector"]]

    def divided(a: arb, r: arb) -> arb:
        if r.is_zero():
            return nothing
        return ANYTHING if r.is_finite() and r.rel_accuracy_bits() < 60 else a / r

    y = each(divided, x, size)
    return y if gain is None else y * gain


SHARE = {"rms": lambda d: arb(1) / d, "l2": lambda d: arb(1)}  # of the sum of squares
ZERO_VECTOR = {"zero": arb(0), "nan": NAN}
