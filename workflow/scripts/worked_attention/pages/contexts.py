"""The values mixed with the weights, told term by term, and the heads laid side by side."""

from collections.abc import Callable
from decimal import Decimal

from worked_attention.pages.blocks import Formula, Line, Lines, Words
from worked_attention.pages.language import _
from worked_attention.pages.numbers import EXACT, Number, told
from worked_attention.pages.parameters import tables
from worked_attention.pages.work import TERMS, Index, Work, folds, more, relation
from worked_attention.stages.projections import last_form


def mixed(work: Work, name: str) -> list:
    """Each query's weighted sum of the values."""
    weights = "dropped" if "dropped" in work.arrays else "weights"
    values = last_form(work.arrays, "v")
    group = work.case["heads"] // work.case["kv_heads"]
    made = []
    for lead in work.leads(name):
        for i in work.some(work.arrays[name].shape[-2]):
            made.append((work.at(name, lead, i), row(work, name, weights, values, (*lead, i), (*lead[:-1], lead[-1] // group))))
    if work.weight_digits > work.digits:
        words = _("Each row of {values} times its weight, added up; weights with {digits} decimals, so that the digits give the result.")
    else:
        words = _("Each row of {values} times its weight, added up.")
    words = words.format(values=values, digits=work.weight_digits)
    words += _(" Each value head serves {group} query heads.").format(group=group) if group > 1 else ""
    return [Formula(r"z_i = \sum_j P_{ij} v_j"), Words(words), *folds(made), *tables(work, name)]


def vector(numbers: list[Number]) -> str:
    """Numbers in square brackets; of many the first."""
    return "[" + ", ".join(number.text for number in numbers[:TERMS]) + (", …" if len(numbers) > TERMS else "") + "]"


def row(work: Work, name: str, weights: str, values: str, index: Index, value_lead: Index) -> list:
    """One context: the sum of weights times values, and the same sum made from the digits that are printed."""
    count = work.arrays[weights].shape[-1]
    mixing = work.row(weights, index, work.weight_digits)
    told_keys = [j for j in range(count) if float(work.arrays[weights][(*index, j)]) != 0.0]
    shown = told_keys if work.whole else told_keys[:TERMS]
    vectors = {j: work.row(values, (*value_lead, j)) for j in shown}
    terms = [f"{mixing[j].factor} × {vector(vectors[j])}" for j in shown]
    terms += [more(len(told_keys) - len(shown))] if len(shown) < len(told_keys) else []
    result = work.row(name, index)
    if not terms:
        words = Words(_("No key has any weight, so the context is 0."), "note")
        return [words, Lines((line(work, name, index, [("=", [vector(result)])]),))]
    exact = all(mixing[j].exact and number.exact for j in shown for number in vectors[j]) and len(shown) == len(told_keys)
    printed = [sum((mixing[j].printed * vectors[j][c].printed for j in shown), Decimal(0)) for c in range(len(result))]
    sign = "=" if exact and all(relation(True, number, value) == "=" for number, value in zip(result, printed, strict=True)) else "≈"
    blocks: list = [Lines((line(work, name, index, [("=" if exact else "≈", terms), (sign, [vector(result)])]),))]
    rest = [work.key(j) for j in range(count) if j not in told_keys]
    if rest:
        keys = _(", ").join(rest[:TERMS]) + " …" * (len(rest) > TERMS)
        blocks.append(Words(_("Without weight, and so without a term: {keys}.").format(keys=keys), "note"))
    if sign == "≈" and len(shown) == len(told_keys):
        digits = [told(EXACT.plus(value), float(value), work.digits) for value in printed]
        again = [Number(number.text, False, number.printed) for number in digits]
        words = _("Check: from the printed digits {printed}, in full precision {full}.")
        blocks.append(Words(words.format(printed=vector(again), full=vector(result)), "check"))
    return blocks


def line(work: Work, name: str, index: Index, parts: list) -> Line:
    """The line of one context, where all claims on its numbers stand."""
    claims = tuple(said for c in range(work.arrays[name].shape[-1]) for said in work.claims.get((name, (*index, c)), ()))
    made = work.line(name, index, *parts, label=_("context of {query}").format(query=work.query(index[-1])))
    return Line(made.label, made.parts, made.anchor, claims)


def beside(work: Work, name: str) -> list:
    """The heads side by side."""
    heads, width = work.arrays["contexts"].shape[-3], work.arrays["contexts"].shape[-1]
    words = (
        _("One head, so its contexts are the rows.")
        if heads == 1
        else _("The {heads} contexts of a token, each of width {width}, side by side: {total} numbers.")
    )
    return [Words(words.format(heads=heads, width=width, total=heads * width)), *tables(work, name)]


STEPS: dict[str, Callable[[Work, str], list]] = {"contexts": mixed, "concat": beside}
