"""Random cases over the whole option space, as Hypothesis strategies; arrays are named by seed, so that a failure shrinks to few words."""

from pathlib import Path

from hypothesis import strategies as st

from worked_attention.cases.resolve import resolve
from worked_attention.cases.suites import UNLIMITED
from worked_attention.fuzzing.options import CHOICES, PARTS, rotary_parts
from worked_attention.stages.catalogue import CATALOGUE

LIMITS = UNLIMITED | {"max_array_mb": 10_000}
GRADED = st.sampled_from([None, None, None, "none"])  # kinds of softmax, the plain one most, through which gradients go
SMALL = st.integers(1, 4)


def resolved(raw: dict) -> dict:
    """The resolved case of `raw`, which must be without fault."""
    said = []
    case = resolve(raw, "random", "case", Path(), LIMITS, lambda where, message: said.append((where, message)))
    assert case is not None, said
    return case


@st.composite
def raw_cases(
    draw, dtypes=("float64",), begins=("x", "cross", "kdim", "qkv", "heads"), masks=True, empty_rows=("zero", "nan", "uniform"), **fixed
):
    """A case as a suite would say it. `fixed` sets options, or what they are drawn from; an option fixed to None is left out."""

    def maybe(option: str, strategy) -> None:
        if option in fixed:
            value = draw(fixed[option]) if isinstance(fixed[option], st.SearchStrategy) else fixed[option]
            if value is not None:
                raw[option] = value
        elif draw(st.integers(0, 3)) == 0:
            raw[option] = draw(strategy)

    begin = draw(st.sampled_from(begins))
    kv_heads, groups = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 1, 2]))
    heads = kv_heads * groups
    even = draw(st.sampled_from([2, 4, 6]))
    sizes = {"Lq": draw(SMALL), "Lk": draw(st.integers(1, 5)), "d_k": even, "d_v": draw(SMALL)}
    if batch := draw(st.sampled_from([None, 1, 2, 3])):
        sizes["B"] = batch
    raw = {"dtype": draw(st.sampled_from(dtypes)), "heads": heads, "kv_heads": kv_heads, "sizes": sizes}
    names = {
        "x": ["x"],
        "cross": ["x", "x_kv"],
        "kdim": ["x", "x_k", "x_v"],
        "qkv": ["q", "k", "v"],
        "heads": ["q_heads", "k_heads", "v_heads"],
    }[begin]
    past = draw(st.sampled_from([0, 0, 0, 2])) if fixed.get("past", 0) is not None else 0
    appended = draw(st.sampled_from(["none", "none", "none", "zero", "bias", "both"])) if fixed.get("appended", 0) is not None else "none"
    if begin == "x":
        sizes["Lk"] = sizes["Lq"]
    if past:
        names += ["past_k", "past_v"]
        sizes["Lp"] = past
    if appended in ("bias", "both"):
        names += ["bias_k", "bias_v"]
    if appended in ("zero", "both"):
        raw["extra_key"] = "zero"
    cached = sizes["Lk"] + past
    sizes["Lk"] = cached + {"none": 0, "zero": 1, "bias": 1, "both": 2}[appended]
    if begin in ("x", "cross", "kdim"):
        sizes |= {"d_model": draw(SMALL)}
        if begin != "x":
            sizes["d_kv"] = draw(SMALL)
        if begin == "kdim":
            sizes["d_vv"] = draw(SMALL)
        names += ["w_q", "w_k", "w_v"]
        names += [bias for bias in ("b_q", "b_k", "b_v") if draw(st.booleans())]
        if begin != "kdim":
            maybe("sinusoidal", st.just({"base": 100}))
    if draw(st.booleans()):
        names += ["w_o"] + ["b_o"] * draw(st.booleans())
        sizes["d_out"] = draw(SMALL)
    for option in ("scale", "softcap", "qk_norm"):
        maybe(option, st.sampled_from(CHOICES[option]))
    if "qk_norm" in raw and draw(st.booleans()):
        names += ["g_q", "g_k"]
    maybe("rotary", rotary(even))
    maybe("alibi", parts("alibi"))
    maybe("positions", st.sampled_from([{"offset": 0}, {"offset": 3}, {"queries": [9 - 2 * i for i in range(sizes["Lq"])]}]))
    if fixed.get("t5", 0) is not None and draw(st.integers(0, 5)) == 0:
        names.append("t5_table")
        sizes["buckets"] = draw(st.sampled_from([4, 8, 32]))
        raw["t5"] = draw(parts("t5"))
    if fixed.get("bias_table", 0) is not None and draw(st.integers(0, 5)) == 0:
        names.append("bias_table")
    maybe("softmax", st.sampled_from(["plus_one", "hardmax", "none"]))
    if "softmax" not in raw and fixed.get("sinks", 0) is not None and draw(st.integers(0, 4)) == 0:
        names.append("sinks")
    maybe("dropout", st.just(0.25))
    if masks:
        raw["mask"] = draw(mask(sizes["Lq"], cached, batch, heads)) | {"empty_row": draw(st.sampled_from(empty_rows))}
        if raw.get("softmax") == "none":
            raw["mask"].pop("fill", None)
    if "backward" in fixed:
        raw["backward"] = fixed["backward"]
    seed = draw(st.integers(0, 10**6))
    raw["parameters"] = {name: {"normal": {"seed": seed + i}} for i, name in enumerate(sorted(names, key=list(CATALOGUE).index))}
    if "dropout" in raw:
        shape = [heads, sizes["Lq"], sizes["Lk"]]
        raw["parameters"]["dropout_keep"] = booleans(draw, [batch, *shape] if batch else shape)
    return raw


def parts(option: str):
    """Options with parts, each with a choice."""
    return st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in PARTS[option].items()})


def rotary(width: int):
    """Options of the rotation of `width` columns or fewer."""
    chosen = {name: st.sampled_from(choices) for name, choices in rotary_parts(width).items()}
    return st.fixed_dictionaries({"pairing": chosen.pop("pairing")}, optional=chosen)


@st.composite
def mask(draw, queries: int, keys: int, batch: int | None, heads: int):
    """Options of a mask, most often few of them."""
    options = {}
    for name, strategy in {
        "causal": st.sampled_from(["top_left", "bottom_right"]),
        "window": st.sampled_from([{"left": 1}, {"left": 0, "right": 1}, {"right": 0}]),
        "key_lengths": st.lists(st.integers(0, keys), min_size=batch or 1, max_size=batch or 1),
        "keep": None,
        "block": None,
        "key_keep": None,
        "documents": None,
        "add": None,
    }.items():
        if draw(st.integers(0, 4)):
            continue
        if name == "documents":
            one_or_two = st.integers(1, 2)
            options[name] = {
                "queries": draw(st.lists(one_or_two, min_size=queries, max_size=queries)),
                "keys": draw(st.lists(one_or_two, min_size=keys, max_size=keys)),
            }
        elif name == "add":
            options[name] = {"normal": {"seed": draw(st.integers(0, 99))}} if draw(st.booleans()) else {"grid": {}}
        elif name == "key_keep":
            options[name] = booleans(draw, [batch, keys] if batch else [keys])
        elif strategy is None:
            full = batch and draw(st.booleans())
            options[name] = booleans(
                draw, [draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), queries, keys] if full else [queries, keys]
            )
        else:
            options[name] = draw(strategy)
    if "causal" in options and draw(st.booleans()):
        options["prefix"] = draw(st.integers(1, 2))
        options.pop("window", None)
    if options.get("causal") == "bottom_right" and "key_lengths" in options and draw(st.booleans()):
        options["diagonal"] = "own"
    if draw(st.integers(0, 5)) == 0:
        options["fill"] = draw(st.sampled_from(CHOICES["fill"]))
    return options


def booleans(draw, shape: list[int]) -> list:
    """Nested lists of booleans, more true than false."""
    if not shape:
        return draw(st.sampled_from([True, True, False]))
    return [booleans(draw, shape[1:]) for _ in range(shape[0])]
