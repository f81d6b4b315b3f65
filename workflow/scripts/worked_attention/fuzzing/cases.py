"""Random cases as a suite would say them, around the edges of a kernel's blocks.

A case follows from a row of choices, each the place in a list whose first item is the simplest: so it can be drawn by any generator of
random numbers, and shrunk by making choices smaller and leaving them out. No list has more than a hundred items: in larger ranges
Hypothesis also tries numbers that stand in whatever modules are loaded.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from worked_attention.fuzzing.options import CHOICES, PARTS, rotary_parts
from worked_attention.stages.catalogue import CATALOGUE
from worked_attention.stages.weights import KINDS

DTYPES = ("float64", "float32", "bfloat16", "float16")
SAID = 3  # options of a case on average, beside sizes and data
SEEDS = 100
Choose = Callable[[Sequence], Any]  # one of the items

REGIMES: dict[str, dict[str, dict[str, float]]] = {  # what the numbers are like: of queries, of values, beside normal ones
    "plain": {},
    "saturated": {"queries": {"std": 8}},  # weights near 0 and 1, exponentials that overflow
    "one_hot": {"queries": {"std": 60}},  # weights that are 0 and 1
    "tiny": {"queries": {"std": 0.0009765625}, "values": {"std": 0.0009765625}},
    "offset": {"values": {"mean": 64}},
}
LEADING = ("q", "k", "v", "q_heads", "k_heads", "v_heads")
QUERIES, VALUES = ("q", "q_heads", "w_q"), ("v", "v_heads", "past_v", "bias_v", "b_v")


@dataclass
class Case:
    """A case in the making. new: keys that are neither cached nor appended. block: around whose edges lengths are drawn."""

    choose: Choose
    block: int
    dtype: str
    queries: int
    new: int
    heads: tuple[int, int]
    width: int
    begin: tuple[str, ...] = ("q_heads", "k_heads", "v_heads")
    names: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    mask: dict[str, Any] = field(default_factory=dict)
    written: dict[str, Any] = field(default_factory=dict)
    past: int = 0
    appended: int = 0

    @property
    def cached(self) -> int:
        """Keys that masks cover."""
        return self.past + self.new

    def one(self, *choices: Any) -> Any:
        """One of the `choices`, the first of which is the simplest."""
        return self.choose(choices)

    def length(self, most: int) -> int:
        """A length around an edge of a block, at most `most`."""
        return self.choose([n for n in around(self.block) if n < most] + [most])

    def parts(self, option: str) -> dict[str, Any]:
        """An option with parts."""
        return {name: self.choose(choices) for name, choices in PARTS[option].items()}


def around(block: int) -> list[int]:
    """Lengths up to 2·block + 1 around the edges of blocks, those of this size four times, and around smaller powers of two once."""
    small = [1 << i for i in range(1, block.bit_length()) if 1 << i < block]
    edges = [1, block - 1, block, block + 1, 2 * block, 2 * block + 1]
    return sorted(4 * edges + [n + step for n in small for step in (-1, 0, 1)])


# The options: each enters its part into a case


def from_qkv(case: Case) -> None:
    case.begin = ("q", "k", "v")


def from_x(case: Case) -> None:
    case.begin, case.new = ("x", "w_q", "w_k", "w_v"), case.queries
    case.sizes |= {"d_model": 4}


def from_two(case: Case) -> None:
    case.begin = ("x", "x_kv", "w_q", "w_k", "w_v")
    case.sizes |= {"d_model": 4, "d_kv": 3}


def biases(case: Case) -> None:
    if "x" not in case.begin:
        from_x(case)
    case.names += ["b_q", "b_k", "b_v"]


def sinusoidal(case: Case) -> None:
    if "x" not in case.begin:
        from_x(case)
    case.options["sinusoidal"] = {}


def batch(case: Case) -> None:
    case.sizes["B"] = case.one(2, 1, 3)


def groups(case: Case) -> None:
    case.heads = (case.heads[0], case.one(2, 3))


def other_width(case: Case) -> None:
    case.sizes["d_v"] = case.one(1, 3, 6)


def cache(case: Case) -> None:
    case.past = case.length(case.block + 1)
    case.names += ["past_k", "past_v"]


def appended_zero(case: Case) -> None:
    case.options["extra_key"] = "zero"
    case.appended += 1


def appended_bias(case: Case) -> None:
    case.names += ["bias_k", "bias_v"]
    case.appended += 1


def scale(case: Case) -> None:
    case.options["scale"] = case.choose(CHOICES["scale"])


def softcap(case: Case) -> None:
    case.options["softcap"] = case.choose(CHOICES["softcap"])


def qk_norm(case: Case) -> None:
    case.options["qk_norm"] = case.choose(CHOICES["qk_norm"])
    case.names += case.one([], ["g_q", "g_k"])


def rotation(case: Case) -> None:
    choices = rotary_parts(case.width)
    case.options["rotary"] = {name: case.choose(choices[name]) for name in choices if name == "pairing" or case.one(False, True)}


def positions(case: Case) -> None:
    case.options["positions"] = {"offset": case.one(0, 3)}
    if "rotary" not in case.options:
        case.options["alibi"] = case.parts("alibi")


def alibi(case: Case) -> None:
    case.options["alibi"] = case.parts("alibi")


def t5(case: Case) -> None:
    case.options["t5"] = case.parts("t5")
    case.sizes["buckets"] = case.one(4, 8, 32)
    case.names.append("t5_table")


def bias_table(case: Case) -> None:
    case.names.append("bias_table")


def softmax(kind: str) -> Callable[[Case], None]:
    def enter(case: Case) -> None:
        case.options["softmax"] = kind

    return enter


def sinks(case: Case) -> None:
    if "softmax" not in case.options:  # sinks join the plain one
        case.names.append("sinks")


def dropout(case: Case) -> None:
    case.options["dropout"] = 0.25
    case.written["dropout_keep"] = {"grid": {"m": 4}}


def causal(kind: str) -> Callable[[Case], None]:
    def enter(case: Case) -> None:
        case.mask["causal"] = kind

    return enter


def prefix(case: Case) -> None:
    case.mask.setdefault("causal", "top_left")
    case.mask["prefix"] = case.length(case.cached)


def window(case: Case) -> None:
    sides = case.one(("left",), ("left", "right"), ("right",))
    reach = sorted({0, *(n for n in around(case.block) if n <= case.block + 1)})
    case.mask["window"] = {side: case.choose(reach) for side in sides}


def documents(case: Case) -> None:
    def listed(n: int) -> list[int]:
        first = case.length(n)
        return [1] * first + [2] * (n - first)

    same = case.queries == case.cached
    case.mask["documents"] = listed(case.queries) if same else {"queries": listed(case.queries), "keys": listed(case.cached)}


def key_lengths(case: Case) -> None:
    case.mask["key_lengths"] = [case.one(case.length(case.cached), 0, 1) for _ in range(case.sizes.get("B", 1))]


def own_diagonal(case: Case) -> None:
    case.mask |= {"causal": "bottom_right", "diagonal": "own"}
    if "key_lengths" not in case.mask:
        key_lengths(case)


def pattern(name: str, *periods: int) -> Callable[[Case], None]:
    """A boolean mask that is false once in so many cells."""

    def enter(case: Case) -> None:
        case.mask[name] = {"grid": {"m": case.one(*periods)}}

    return enter


def added(name: str) -> Callable[[Case], None]:
    def enter(case: Case) -> None:
        case.mask[name] = {"normal": {"seed": case.one(*range(SEEDS))}}

    return enter


def fill(case: Case) -> None:
    if case.options.get("softmax") == "none":  # what is blocked weighs nothing there
        return
    case.mask["fill"] = case.choose(CHOICES["fill"])
    if not set(case.mask) - {"fill", "add", "key_add"}:  # it takes the place of what a boolean mask blocks
        case.mask["keep"] = {"grid": {"m": 2}}


def last_projection(case: Case) -> None:
    case.names += case.one(["w_o"], ["w_o", "b_o"])
    case.sizes["d_out"] = case.one(3, 1)


OPTIONS: dict[str, Callable[[Case], None]] = {  # in the order in which they enter, for masks need to know how many keys there are
    "q, k, v": from_qkv,
    "x": from_x,
    "x, x_kv": from_two,
    "b_q, b_k, b_v": biases,
    "sinusoidal": sinusoidal,
    "batch": batch,
    "kv_heads": groups,
    "d_v": other_width,
    "past_k, past_v": cache,
    "extra_key": appended_zero,
    "bias_k, bias_v": appended_bias,
    "scale": scale,
    "softcap": softcap,
    "qk_norm": qk_norm,
    "rotary": rotation,
    "positions": positions,
    "alibi": alibi,
    "t5_table": t5,
    "bias_table": bias_table,
    **{f"softmax: {kind}": softmax(kind) for kind in KINDS if kind != "plain"},
    "sinks": sinks,
    "dropout": dropout,
    "mask.causal: top_left": causal("top_left"),
    "mask.causal: bottom_right": causal("bottom_right"),
    "mask.prefix": prefix,
    "mask.window": window,
    "mask.documents": documents,
    "mask.key_lengths": key_lengths,
    "mask.diagonal: own": own_diagonal,
    "mask.keep": pattern("keep", 2, 3, 11),
    "mask.block": pattern("block", 2),
    "mask.add": added("add"),
    "mask.key_keep": pattern("key_keep", 2, 3, 11),
    "mask.key_block": pattern("key_block", 2),
    "mask.key_add": added("key_add"),
    "mask.fill": fill,
    "w_o": last_projection,
}


@dataclass(frozen=True)
class Drawn:
    """A case as a suite would say it (`raw`), and what it is made of: options, dtype and regime that are not the simplest, and sizes."""

    raw: dict
    options: frozenset[str]
    sizes: tuple[int, ...]

    def holds(self, other: "Drawn") -> bool:
        """Whether it has the options that the `other` case has; if these are none, it may not be smaller either."""
        return other.options <= self.options and bool(other.options or all(a <= b for a, b in zip(other.sizes, self.sizes, strict=True)))


def made(choose: Choose, block: int, dtype: str, options: Collection[str], lengths: Sequence[int], regime: str) -> Drawn:
    """The case with these of OPTIONS, of REGIMES and of DTYPES; what is left is chosen by `choose`."""
    case = Case(choose, block, dtype, choose(lengths), choose(lengths), (choose([1, 2, 3]), 1), choose([2, 4, 8]))
    for name, enter in OPTIONS.items():
        if name in options:
            enter(case)
    if regime == "offset" and "w_v" in case.begin and "b_v" not in case.names:
        biases(case)
    kv_heads, of_each = case.heads
    sizes = {"Lq": case.queries, "Lk": case.cached + case.appended, "d_k": case.width, "d_v": case.width} | case.sizes
    raw = {"dtype": dtype, "heads": kv_heads * of_each, "sizes": sizes, **case.options}
    if of_each > 1:
        raw["kv_heads"] = kv_heads
    if case.past:
        sizes["Lp"] = case.past
    if case.mask:
        raw["mask"] = case.mask
    seed = choose(range(SEEDS))
    others = sorted({*case.begin, *case.names} - set(LEADING), key=list(CATALOGUE).index)
    leading = [name for name in LEADING if name in case.begin]  # so that no other array changes their numbers
    raw["parameters"] = {}
    for i, name in enumerate([*leading, *others]):
        role = "queries" if name in QUERIES else "values" if name in VALUES else "others"
        raw["parameters"][name] = {"normal": {"seed": seed + i} | REGIMES[regime].get(role, {})}
    raw["parameters"] |= case.written
    said = frozenset({*options, dtype, regime} - {"plain"})
    return Drawn(raw, said, (sizes["Lq"], sizes["Lk"], kv_heads, of_each, sizes.get("B", 0), case.width))


def any_case(choose: Choose, block: int, dtypes: Sequence[str], options: Sequence[str]) -> Drawn:
    """A case in one of the `dtypes` with some of the `options`, of lengths around the edges of blocks of `block`."""
    dtype = choose(dtypes)
    last = max(len(options) // SAID, 2) - 1
    said = [name for name in options if choose(range(last + 1)) == last]  # one by one, so that each can be left out alone
    drawn = made(choose, block, dtype, said, around(block), choose(list(REGIMES)))
    return replace(drawn, options=drawn.options - {dtypes[0]})


def case_with(choose: Choose, block: int, dtype: str, options: Collection[str], lengths: Sequence[int]) -> Drawn:
    """A case with all these options, one regime among them if it is not plain, and no others; each side of one of the `lengths`."""
    regime = next((regime for regime in REGIMES if regime in options), "plain")
    return made(choose, block, dtype, options, lengths, regime)
