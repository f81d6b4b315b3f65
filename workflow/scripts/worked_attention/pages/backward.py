"""Every gradient, told, from the output back to x: the chain rule, product by product."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import numpy as np

from worked_attention.pages.blocks import Formula, Lines, Words
from worked_attention.pages.language import N_, _
from worked_attention.pages.numbers import Number
from worked_attention.pages.parameters import tables
from worked_attention.pages.work import Index, Work, folds, more
from worked_attention.stages.catalogue import source
from worked_attention.stages.projections import last_form

Pairs = list[tuple[Number, Number]]
BEGINNINGS = {
    "given": N_("The gradient of the loss at the output, as the case gives it (upstream)."),
    "ones": N_("The gradient of the loss at the output, 1 everywhere: the loss is the sum of all outputs."),
}
FIRST = 2  # rows and columns that are told of a case that is not told whole


@dataclass(frozen=True)
class Sums:
    """A gradient whose elements are sums of products: its formula, a word on it, and the pairs of factors of one element."""

    formula: str
    words: str
    pairs: Callable[[Work, Index], Pairs]

    def __call__(self, work: Work, name: str) -> list:
        shape = work.arrays[name].shape
        rows = [()] if len(shape) == 1 else [index for index in np.ndindex(*(len(work.some(n, FIRST)) for n in shape[:-1]))]
        made = []
        for row in rows:
            lines = [work.sum_line(name, (*row, c), self.pairs(work, (*row, c))) for c in work.some(shape[-1], 8)]
            made.append((f"{name}[{', '.join(map(str, row))}{', ' if row else ''}…]", [Lines(tuple(lines))]))
        return [Formula(self.formula), Words(self.words), *folds(made), *tables(work, name)]


def samples(work: Work) -> list[Index]:
    """Every sequence of the batch, over which gradients of weights add up."""
    return [(b,) for b in range(work.case["dims"]["B"])] if "B" in work.case["dims"] else [()]


def given(work: Work, name: str) -> list:
    """Where it starts."""
    return [Words(_(BEGINNINGS[work.case["backward"]])), *tables(work, name)]


def by_concat(work: Work, name: str) -> list:
    """Through the output weight."""
    if "w_o" not in work.arrays:
        return [Words(_("The case has no w_o, so this is d_output.")), *tables(work, name)]

    def pairs(work: Work, at: Index) -> Pairs:
        return [(work.number("d_output", (*at[:-1], o)), work.number("w_o", (o, at[-1]))) for o in range(work.arrays["w_o"].shape[0])]

    return Sums(r"\partial Z = \partial Y W_O", _("Each row of d_output times a column of w_o."), pairs)(work, name)


def by_weight(gradient: str, inputs: Callable[[Collection[str]], str]) -> Callable[[Work, str], list]:
    """The gradient of a weight: every token's gradient times its input, added up over tokens and sequences."""

    def step(work: Work, name: str) -> list:
        x = inputs(work.arrays)

        def pairs(work: Work, at: Index) -> Pairs:
            tokens = range(work.arrays[x].shape[-2])
            return [(work.number(gradient, (*b, i, at[0])), work.number(x, (*b, i, at[1]))) for b in samples(work) for i in tokens]

        words = _("A column of {gradient} times a column of {x}: one product for each token.").format(gradient=gradient, x=x)
        return Sums(r"\partial W = \partial Y^\top X", words, pairs)(work, name)

    return step


def by_bias(gradient: str) -> Callable[[Work, str], list]:
    """The gradient of a bias: every token's gradient, added up."""

    def step(work: Work, name: str) -> list:
        def pairs(work: Work, at: Index) -> Pairs:
            one = Number("1", True, work.free(1).printed)
            return [(one, work.number(gradient, (*b, i, at[0]))) for b in samples(work) for i in range(work.arrays[gradient].shape[-2])]

        words = _("A column of {gradient}, added up over all tokens.").format(gradient=gradient)
        return Sums(r"\partial b_c = \sum_i \partial Y_{ic}", words, pairs)(work, name)

    return step


def split(work: Work, name: str) -> list:
    """Heads of the gradient."""
    return [Words(_("d_concat, each head's columns for themselves.")), *tables(work, name)]


def by_weights(work: Work, name: str) -> list:
    """Each query's gradient of its context times each value."""
    values, group = last_form(work.arrays, "v"), work.case["heads"] // work.case["kv_heads"]
    if "dropout_keep" in work.arrays:
        words = _("The row of d_contexts times the row of {values}, then times dropout_keep / (1 − {p:g}).")
        words = words.format(values=values, p=work.case["dropout"])
        return [Formula(r"\partial P_{ij} = (\partial z_i \cdot v_j) \frac{\text{keep}_{ij}}{1 - p}"), Words(words), *tables(work, name)]

    def pairs(work: Work, at: Index) -> Pairs:
        kv = (*at[:-3], at[-3] // group, at[-1])
        return list(zip(work.row("d_contexts", at[:-1]), work.row(values, kv), strict=True))

    words = _("The row of d_contexts times the row of {values}.").format(values=values)
    return Sums(r"\partial P_{ij} = \partial z_i \cdot v_j", words, pairs)(work, name)


def by_scores(work: Work, name: str) -> list:
    """Through the softmax, or past it."""
    return BY_SCORES[work.case["softmax"]](work, name)


def by_bare_scores(work: Work, name: str) -> list:
    """Where the scores are the weights, so are their gradients."""
    words = Words(_("Without a softmax the scores are the weights, so this is d_weights; a blocked score has no gradient."))
    return [Formula(r"\partial s_{ij} = \partial P_{ij}"), words, *tables(work, name)]


def by_softmax(work: Work, name: str) -> list:
    """Each weight times how far its gradient lies above the row's weighted mean."""
    made = []
    for lead in work.leads(name):
        for i in work.some(work.arrays[name].shape[-2]):
            row = (*lead, i)
            mean = float((work.arrays["weights"][row].astype(float) * work.arrays["d_weights"][row].astype(float)).sum())
            weights, gradients = work.row("weights", row), work.row("d_weights", row)
            terms = [f"{p.factor} × {d.factor}" for p, d in list(zip(weights, gradients, strict=True))[:8]]
            terms += [more(len(weights) - 8)] if len(weights) > 8 else []
            lines = [work.line(name, row, ("=", terms), ("≈", [work.free(mean).text]), label=_("mean"))]
            for j in work.some(len(weights), 8):
                product = f"{weights[j].text} × ({gradients[j].text} − {work.free(mean).factor})"
                lines.append(work.line(name, (*row, j), ("≈", [product]), ("≈", [work.number(name, (*row, j)).text])))
            made.append((work.at(name, lead, i), [Lines(tuple(lines))]))
    formula = Formula(r"\partial s_{ij} = P_{ij} (\partial P_{ij} - \sum_l P_{il} \partial P_{il})")
    return [formula, Words(_("A blocked score has no gradient.")), *folds(made), *tables(work, name)]


BY_SCORES = {"plain": by_softmax, "plus_one": by_softmax, "none": by_bare_scores}


def before_masks(work: Work, name: str) -> list:
    """Back through mask, bias and softcap."""
    words = (
        _("Blocked scores get 0; what is added does not matter.")
        if "keep" in work.arrays
        else _("What is added to the scores does not matter, so this is d_masked.")
    )
    if work.case["softcap"]:
        words += _(" The softcap {cap:g} multiplies by 1 − (capped / {cap:g})².").format(cap=work.case["softcap"])
    return [Words(words), *tables(work, name)]


def before_scale(work: Work, name: str) -> list:
    """Back through the scale."""
    words = _("d_scaled times the scale, {scale}.").format(scale=work.free(work.case["scale_factor"]).text)
    return [Words(words), *tables(work, name)]


def by_values(work: Work, name: str) -> list:
    """What each value was used for."""
    used, group, past = (
        "dropped" if "dropped" in work.arrays else "weights",
        work.case["heads"] // work.case["kv_heads"],
        work.case["dims"]["Lp"],
    )

    def pairs(work: Work, at: Index) -> Pairs:
        *batch, kv, j, c = at
        heads, queries = range(kv * group, (kv + 1) * group), range(work.arrays[used].shape[-2])
        return [(work.number(used, (*batch, h, i, past + j)), work.number("d_contexts", (*batch, h, i, c))) for h in heads for i in queries]

    words = _("A column of {used} times a column of d_contexts, over all queries that use the value.").format(used=used)
    return Sums(r"\partial v_j = \sum_i P_{ij} \partial z_i", words, pairs)(work, name)


def by_queries(work: Work, name: str) -> list:
    """Through q·k to the queries."""
    keys, group = last_form(work.arrays, "k"), work.case["heads"] // work.case["kv_heads"]
    formula = r"\partial q_i = \sum_j \partial S_{ij} k_j"
    if turned := back(work):
        words = _("The row of d_qk times the columns of {keys}.").format(keys=keys)
        return [Formula(formula), Words(words + turned), *tables(work, name)]

    def pairs(work: Work, at: Index) -> Pairs:
        *batch, h, i, c = at
        count = work.arrays[keys].shape[-2]
        return [(work.number("d_qk", (*batch, h, i, j)), work.number(keys, (*batch, h // group, j, c))) for j in range(count)]

    return Sums(formula, _("The row of d_qk times a column of {keys}.").format(keys=keys), pairs)(work, name)


def by_keys(work: Work, name: str) -> list:
    """Through q·k to the keys."""
    queries, group, past = last_form(work.arrays, "q"), work.case["heads"] // work.case["kv_heads"], work.case["dims"]["Lp"]
    formula = r"\partial k_j = \sum_i \partial S_{ij} q_i"
    if turned := back(work):
        words = _("The column of d_qk times the columns of {queries}.").format(queries=queries)
        return [Formula(formula), Words(words + turned), *tables(work, name)]

    def pairs(work: Work, at: Index) -> Pairs:
        *batch, kv, j, c = at
        heads, count = range(kv * group, (kv + 1) * group), range(work.arrays[queries].shape[-2])
        return [(work.number("d_qk", (*batch, h, i, past + j)), work.number(queries, (*batch, h, i, c))) for h in heads for i in count]

    return Sums(formula, _("The column of d_qk times a column of {queries}, over all queries.").format(queries=queries), pairs)(work, name)


def back(work: Work) -> str:
    """What still lies between the scores and the heads, in words."""
    turned = _(" Then it is turned back by the same angles.") if work.case["rotary"] else ""
    return turned + (_(" Then it is taken back through the norm.") if work.case["qk_norm"] else "")


def merged(work: Work, name: str) -> list:
    """The heads of a gradient side by side."""
    return [Words(_("{name}_heads, the heads side by side.").format(name=name)), *tables(work, name)]


def by_input(work: Work, name: str) -> list:
    """The gradients of all that was made from an input, added up."""
    inputs = {name[2:], f"{name[2:]}_pos"}
    sides = [side for side in "qkv" if source(side, work.arrays) in inputs]
    weighted = f"w_{sides[0]}" in work.arrays

    def pairs(work: Work, at: Index) -> Pairs:
        one = Number("1", True, work.free(1).printed)
        found = []
        for side in sides:
            if not weighted:
                found.append((one, work.number(f"d_{side}", at)))
                continue
            row = work.row(f"d_{side}", at[:-1])
            found += [(number, work.number(f"w_{side}", (o, at[-1]))) for o, number in enumerate(row)]
        return found

    formula = " + ".join(rf"\partial {side.upper()} W_{side.upper()}" if weighted else rf"\partial {side.upper()}" for side in sides)
    words = _("From {gradients}, each row times a column of its weight.") if weighted else _("From {gradients}.")
    words = words.format(gradients=", ".join(f"d_{side}" for side in sides))
    return Sums(rf"\partial X = {formula}", words, pairs)(work, name)


STEPS: dict[str, Callable[[Work, str], list]] = {
    "d_output": given,
    "d_concat": by_concat,
    "d_w_o": by_weight("d_output", lambda arrays: "concat"),
    "d_b_o": by_bias("d_output"),
    "d_contexts": split,
    "d_weights": by_weights,
    "d_masked": by_scores,
    "d_scaled": before_masks,
    "d_qk": before_scale,
    "d_v_heads": by_values,
    "d_q_heads": by_queries,
    "d_k_heads": by_keys,
    **dict.fromkeys(("d_q", "d_k", "d_v"), merged),
    **{f"d_w_{side}": by_weight(f"d_{side}", partial(source, side)) for side in "qkv"},
    **{f"d_b_{side}": by_bias(f"d_{side}") for side in "qkv"},
    **dict.fromkeys(("d_x", "d_x_kv", "d_x_k", "d_x_v"), by_input),
}
