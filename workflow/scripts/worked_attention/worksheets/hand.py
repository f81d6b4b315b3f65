"""A case by hand: each result from the numbers that somebody goes on with, and how far rounding may lead away from it.

Whoever calculates by hand rounds to n decimals: every product, exponential, root, sum and quotient, or some of them, or only what is
written down. All of that is right. So a result may be off by as much as the numbers before it, carried through the formula as
intervals, and by half a unit of the last decimal for each rounding on the way. Where all numbers on the way have at most n decimals,
nothing is rounded, and nothing may be off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from worked_attention.stages import weights
from worked_attention.stages.catalogue import CATALOGUE, source
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.masks import fill_value
from worked_attention.stages.projections import last_form, project, split_heads
from worked_attention.stages.scores import products, repeat_heads, softcap

Result = tuple[np.ndarray, np.ndarray]  # the right numbers, and how far off they may be


@dataclass(frozen=True)
class Known:
    """Numbers of an array that somebody goes on with: `value`, how far theirs may be `off`, and how many decimals (`places`) each has."""

    value: np.ndarray
    off: np.ndarray
    places: np.ndarray

    def laid(self, how: Callable[[np.ndarray], np.ndarray]) -> "Known":
        """The same numbers in another shape or order."""
        return Known(how(self.value), how(self.off), how(self.places))


def places(value: np.ndarray) -> np.ndarray:
    """How many decimals each number has, as the shortest decimal that means it."""
    found = [max(0, -Decimal(repr(float(x))).normalize().as_tuple().exponent) if np.isfinite(x) else 0 for x in value.ravel().tolist()]
    return np.array(found, dtype=int).reshape(value.shape)


def before_masks(case: dict) -> str:
    """The scores to which biases are added."""
    return "capped" if "capped" in case["shapes"] else "scaled"


def weighing(case: dict) -> str:
    """The weights that the contexts use."""
    return "dropped" if "dropped" in case["shapes"] else "weights"


def copied(case: dict, name: str) -> str | None:
    """The array whose numbers array `name` has, only laid out otherwise, masked or put to 0; None if it has numbers of its own."""
    there = case["shapes"]
    if name in case["arrays"]["parameters"]:
        return None
    if name in ("q", "k", "v"):
        return None if f"w_{name}" in there else source(name, there)
    heads = {f"{side}_heads": side for side in "qkv"}
    return heads.get(name) or {
        "scaled": "qk" if case["scale"] == "none" else None,
        "masked": None if "bias" in there else before_masks(case),
        "weights": "masked" if case["softmax"] == "none" else None,
        "concat": "contexts",
        "output": None if "w_o" in there else "concat",
    }.get(name)


LAID: dict[str, Callable[[dict, np.ndarray], np.ndarray]] = {
    "q_heads": lambda case, x: split_heads(x, case["heads"]),
    "k_heads": lambda case, x: split_heads(x, case["kv_heads"]),
    "v_heads": lambda case, x: split_heads(x, case["kv_heads"]),
    "weights": lambda case, x: np.where(x == -np.inf, 0, x),  # softmax: none
    "concat": lambda case, x: merge_heads(x),
}


class Hand:
    """Somebody's way through a case: what they know so far, and what should come next."""

    def __init__(self, case: dict, digits: int, given: dict[str, np.ndarray]):
        """digits: decimals that each result is rounded to. given: arrays by name, taken as they stand."""
        self.case, self.digits, self.half = case, digits, 0.5 * 10.0**-digits
        self.known: dict[str, Known] = {}
        for name, array in given.items():
            self.take(name, array, np.zeros(array.shape))

    def take(self, name: str, value: np.ndarray, off: np.ndarray) -> None:
        """Go on with these numbers of array `name`, which may be off by so much."""
        self.known[name] = Known(value, off, places(value))

    def __contains__(self, name: str) -> bool:
        return name in self.known

    def __getitem__(self, name: str) -> Known:
        """What is known of array `name`, if need be by laying out otherwise what it copies. Raises KeyError if nothing is."""
        if name not in self.known:
            of = copied(self.case, name)
            if of is None:
                raise KeyError(name)
            how = LAID.get(name)
            known = self[of].laid(lambda x: how(self.case, x)) if how else self[of]
            self.known[name] = self.masked(known) if name == "masked" else known
        return self.known[name]

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array that is known, and those that only lay one of these out otherwise, by name."""
        copies = [name for name in CATALOGUE if name in self.case["shapes"] and copied(self.case, name) in self]
        return {name: self[name].value for name in [*copies, *self.known]}

    def masked(self, scores: Known) -> Known:
        """Scores with what takes the place of those that a mask blocks."""
        if "keep" not in self:
            return scores
        keep, fill = self["keep"].value, fill_value(self.case["mask"]["fill"], scores.value.dtype)
        return Known(np.where(keep, scores.value, fill), np.where(keep, scores.off, 0.0), np.where(keep, scores.places, 0))

    def right(self, name: str) -> Result:
        """(the right numbers of array `name` from what is known, how far off they may be); KeyError if it is nothing to be worked out."""
        with np.errstate(all="ignore"):
            return RESULTS[name](self)

    def rounding(self, number: Known, more: int = 0) -> np.ndarray:
        """What it costs to round each number, times one with `more` decimals: nothing where both together are short."""
        return np.where(((number.places + more > self.digits) | (number.off > 0)) & (number.value != 0), self.half, 0.0)

    def sum_of_products(self, a: Known, b: Known, plus: Known | None = None) -> np.ndarray:
        """How far off sums over the last axis of a b (plus one number more) may be."""
        off = np.abs(a.value) * b.off + np.abs(b.value) * a.off + a.off * b.off
        long = ((a.places + b.places > self.digits) | (a.off > 0) | (b.off > 0)) & (a.value != 0) & (b.value != 0)
        total, rounded = (off + self.half * long).sum(axis=-1), long.any(axis=-1)
        if plus is not None:
            total, rounded = total + plus.off, rounded | (plus.places > self.digits)
        return total + self.half * rounded


def projected(side: str) -> Callable[[Hand], Result]:
    """X W^T + b: queries, keys, values (`side` q, k or v), or the output (o)."""

    def result(hand: Hand) -> Result:
        x = hand["concat" if side == "o" else source(side, hand.case["shapes"])]
        w, b = hand[f"w_{side}"], hand.known.get(f"b_{side}")
        value = project(x.value, w.value, None if b is None else b.value, "float64")
        return value, hand.sum_of_products(x.laid(lambda n: n[..., :, None, :]), w, b)

    return result


def multiplied(hand: Hand) -> Result:
    """Q K^T."""
    q, k = (
        hand[last_form(hand.case["shapes"], "q")],
        hand[last_form(hand.case["shapes"], "k")].laid(lambda n: repeat_heads(n, hand.case["heads"])),
    )
    off = hand.sum_of_products(q.laid(lambda n: n[..., :, None, :]), k.laid(lambda n: n[..., None, :, :]))
    return products(q.value, k.value), off


def scaled(hand: Hand) -> Result:
    """Q K^T times the scale, or divided by a root: the factor itself is rounded where it is no short decimal."""
    qk, factor = hand["qk"], hand.case["scale_factor"]
    decimals = int(places(np.array(factor)))
    root = hand.half * (np.abs(qk.value) + qk.off) if decimals > hand.digits else 0.0
    return qk.value * factor, abs(factor) * qk.off + root + hand.rounding(qk, decimals)


def capped(hand: Hand) -> Result:
    """c tanh(s / c): a quotient, a tangent and a product are rounded."""
    s, cap = hand["scaled"], hand.case["softcap"]
    return softcap(s.value, cap), s.off + 2 * cap * hand.half + hand.half


def biased(hand: Hand) -> Result:
    """Scores plus their bias, under the mask."""
    s, bias = hand[before_masks(hand.case)], hand["bias"]
    total = Known(s.value + bias.value, s.off + bias.off, np.maximum(s.places, bias.places))
    made = hand.masked(Known(total.value, total.off + hand.rounding(total), total.places))
    return made.value, made.off


def softmaxed(hand: Hand) -> Result:
    """The softmax of each row, its exponentials rounded as they are, or with the largest score taken away first."""
    s, seen = hand["masked"], hand["masked"].value != -np.inf
    sinks = {"sinks": hand["sinks"].value} if "sinks" in hand else {}
    rows = {"masked": s.value, "qk": s.value, "keep": seen}  # a row is empty where nothing is seen
    value = weights.stage(hand.case, rows | sinks)["weights"]
    sink = np.zeros(hand.case["heads"]) if hand.case["softmax"] == "plus_one" else sinks.get("sinks")
    off = np.zeros(value.shape)
    for shift in (0.0, s.value.max(axis=-1, keepdims=True)):
        e = np.where(seen, np.exp(s.value - shift), 0.0)
        low, high = np.maximum(e * np.exp(-s.off) - hand.half, 0.0) * seen, (e * np.exp(s.off) + hand.half) * seen
        more = 0.0 if sink is None else np.exp(sink[:, None, None] - shift)
        least, most = (np.maximum(more + sign * hand.half * (sink is not None), 0.0) for sign in (-1, 1))
        from_below = low / (low + (high.sum(axis=-1, keepdims=True) - high + most))
        from_above = high / (high + (low.sum(axis=-1, keepdims=True) - low + least))
        off = np.fmax(off, np.fmax(value - from_below, from_above - value))
    return value, (off + hand.half) * seen


def hardmaxed(hand: Hand) -> Result:
    """1 at the first largest score; where rounding decides which that is, either."""
    s = hand["masked"]
    value = weights.hardmax(s.value)
    near = s.value + s.off >= (s.value - s.off).max(axis=-1, keepdims=True)
    return value, (near & (near.sum(axis=-1, keepdims=True) > 1)).astype(float)


SOFTMAX = {"plain": softmaxed, "plus_one": softmaxed, "hardmax": hardmaxed}


def dropped(hand: Hand) -> Result:
    """Weights that are kept, divided by 1 - p."""
    w, keep, p = hand["weights"], hand["dropout_keep"].value, hand.case["dropout"]
    return weights.dropout(w.value, keep, p), keep * (w.off / (1 - p) + hand.half)


def mixed(hand: Hand) -> Result:
    """The values mixed with the weights."""
    p, v = hand[weighing(hand.case)], hand[last_form(hand.case["shapes"], "v")].laid(lambda n: repeat_heads(n, hand.case["heads"]))
    columns = v.laid(lambda n: np.swapaxes(n, -1, -2)[..., None, :, :])
    return p.value @ v.value, hand.sum_of_products(p.laid(lambda n: n[..., :, None, :]), columns)


RESULTS: dict[str, Callable[[Hand], Result]] = {  # what can be asked: results that are sums, products, quotients and exponentials
    **{side: projected(side) for side in "qkv"},
    "qk": multiplied,
    "scaled": scaled,
    "capped": capped,
    "masked": biased,
    "weights": lambda hand: SOFTMAX[hand.case["softmax"]](hand),
    "dropped": dropped,
    "contexts": mixed,
    "output": projected("o"),
}


def inputs(case: dict, name: str) -> list[str]:
    """The arrays that array `name`, one of RESULTS or a copy, is made from directly."""
    of = copied(case, name)
    named = {
        **{side: [source(side, case["shapes"]), f"w_{side}", f"b_{side}"] for side in "qkv"},
        "qk": [last_form(case["shapes"], "q"), last_form(case["shapes"], "k")] if "qk" in case["shapes"] else [],
        "scaled": ["qk"],
        "capped": ["scaled"],
        "masked": [before_masks(case), "bias", "keep"],
        "weights": ["masked", "sinks"],
        "dropped": ["weights", "dropout_keep"],
        "contexts": [weighing(case), last_form(case["shapes"], "v")] if "contexts" in case["shapes"] else [],
        "output": ["concat", "w_o", "b_o"],
    }
    found = [of, "keep"] if name == "masked" and of else [of] if of else named[name]
    return [made for made in found if made in case["shapes"]]
