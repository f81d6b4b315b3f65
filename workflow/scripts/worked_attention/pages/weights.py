"""The softmax of each row, told: its maximum, exponentials, their sum, and the quotients."""

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np

from worked_attention.pages.blocks import Cell, Formula, Line, Lines, Table, Words
from worked_attention.pages.language import N_, _
from worked_attention.pages.numbers import Number, told
from worked_attention.pages.parameters import tables
from worked_attention.pages.scores import masked_cells, pair
from worked_attention.pages.work import Index, Work, folds, more, relation, summed

LARGE = 30.0  # exponentials of larger scores are not written out as they are
KEYS = 8  # keys of a row that are told, where a case is not told whole
NAMES = {"plain": r"\text{softmax}", "plus_one": r"\text{softmax-plus-one}", "hardmax": r"\text{hardmax}", "none": ""}
COSTS = {
    "plain": N_("The softmax takes {count:,} exponentials, one for each head, query and key. All arrays take {size:,} bytes."),
    "plus_one": N_("The softmax takes {count:,} exponentials, one for each head, query and key. All arrays take {size:,} bytes."),
    "hardmax": N_("Hardmax compares {count:,} scores, one for each head, query and key. All arrays take {size:,} bytes."),
    "none": N_("Without a softmax, {count:,} scores are weights as they are. All arrays take {size:,} bytes."),
}
FORMULAS = {
    "plain": r"P_{ij} = \frac{e^{s_{ij}}}{\sum_l e^{s_{il}}}",
    "plus_one": r"P_{ij} = \frac{e^{s_{ij}}}{1 + \sum_l e^{s_{il}}}",
    "hardmax": r"P_{ij} = [j = \text{argmax}_l \; s_{il}]",
    "none": r"P_{ij} = s_{ij}",
}
SINKS = r"P_{ij} = \frac{e^{s_{ij}}}{e^{\text{sink}} + \sum_l e^{s_{il}}}"
EMPTY = {"zero": N_("0 for every key"), "nan": N_("0/0, which is NaN"), "uniform": N_("the same for every key"), "error": N_("an error")}
TAKERS = {
    "plus_one": N_("{said}; the weights to {total}, for the rest of 1 goes to the 1 in the denominator."),
    "plain": N_("{said}; the weights to {total}, for the rest of 1 goes to the sink in the denominator."),
}


def weighed(work: Work, name: str) -> list:
    """One row after the other: each query's scores become weights."""
    kind = work.case["softmax"]
    rows = ROWS[kind]
    made = []
    for lead in work.leads(name):
        for i in work.some(work.arrays[name].shape[-2]):
            made.append((work.at(name, lead, i), rows(work, name, (*lead, i))))
    blocked = masked_cells(work) & (work.arrays[name] == 0)
    formula = SINKS if "sinks" in work.arrays else FORMULAS[kind]
    return [Formula(formula), *folds(made), *tables(work, name, MAPS[kind], blocked)]


def score_row(work: Work, name: str, row: Index) -> list:
    """The scores as they are, and what they add up to; a masked key has 0."""
    seen = [j for j in range(work.arrays[name].shape[-1]) if work.arrays["masked"][(*row, j)] != -np.inf]
    masked = [work.key(j) for j in range(work.arrays[name].shape[-1]) if j not in seen]
    blocks = lines(work, name, row, [])
    if masked:
        keys = _(", ").join(masked[:KEYS]) + " …" * (len(masked) > KEYS)
        blocks.append(Words(_("Masked, and so 0: {keys}.").format(keys=keys), "note"))
    total = math.fsum(work.arrays[name][row].astype(float).tolist())
    said = _("There is no softmax: each score is the weight and may be below 0. The row adds up to {total}.")
    return [*blocks, Words(said.format(total=work.free(total).text), "check")]


def hardmax_row(work: Work, name: str, row: Index) -> list:
    """All of it to the first largest score."""
    scores = work.arrays["masked"][row].astype(np.float64)
    if not (scores > -np.inf).any():
        become = _(EMPTY[work.case["mask"]["empty_row"]])
        return [Words(_("Every key is masked; by the case's empty_row, the weights are {become}.").format(become=become))]
    best = int(scores.argmax())
    said = _("The largest score is {score}, that of {key} (of several, the first); it takes all.")
    return [Words(said.format(score=work.number("masked", (*row, best)).text, key=work.key(best))), *lines(work, name, row, [])]


def lines(work: Work, name: str, row: Index, made: list[Line]) -> list:
    """The lines that are there, and a bare one for each weight of the row that has none."""
    done = {line.anchor for line in made}
    for j in work.some(work.arrays[name].shape[-1], KEYS):
        line = work.line(name, (*row, j), ("=", [work.number(name, (*row, j)).text]), label=pair(work, row[-1], j))
        made.append(line) if line.anchor not in done else None
    return [Lines(tuple(made))]


def softmax_row(work: Work, name: str, row: Index) -> list:
    """Exponentials, their sum, the quotients; then the same with the largest score taken away first, as computers do it."""
    scores = work.arrays["masked"][row].astype(np.float64)
    sink = extra(work, row)
    seen = np.flatnonzero(scores != -np.inf).tolist()
    if not seen and (sink is None or sink == -math.inf):
        become = _(EMPTY[work.case["mask"]["empty_row"]])
        said = _("Every key is masked, so there is nothing to divide by: by the case's empty_row, the weights are {become}.")
        return [Words(said.format(become=become))]
    if not np.isfinite(scores[seen]).all() or (sink is not None and not math.isfinite(sink) and sink > 0):
        return [Words(_("This row holds NaN or ∞, which the softmax hands on.")), *lines(work, name, row, [])]
    shown = seen if work.whole else seen[:KEYS]
    shift = max([*scores[seen], *([sink] if sink is not None else [])])
    plain = float(np.abs(scores[seen]).max(initial=0)) <= LARGE and (sink is None or abs(sink) <= LARGE)
    shifted, total, parts = exponentials(work, row, shown, seen, sink, shift)
    blocks: list = []
    made: list[Line] = []
    if plain:
        unshifted, sum_of_all, own_parts = exponentials(work, row, shown, seen, sink, 0.0)
        blocks.append(exponential_table(work, row, shown, unshifted, shifted, shift, sink))
        made.append(Line(_("sum of the exponentials"), own_parts))
        made += [quotient_line(work, name, (*row, j), unshifted[j], sum_of_all) for j in shown]
        same = _("A computer takes the largest, {largest}, away first, so that nothing overflows; the quotients stay the same.")
        again = [Line(_("their sum then"), parts)]
        blocks += [Lines(tuple(made)), Words(same.format(largest=work.free(shift).text)), Lines(tuple(again))]
    else:
        blocks.append(exponential_table(work, row, shown, None, shifted, shift, sink))
        words = _("The largest, {largest}, is taken away first: such exponentials would be too large or too small to write down.")
        blocks.append(Words(words.format(largest=work.free(shift).text)))
        made.append(Line(_("sum of the exponentials"), parts))
        made += [quotient_line(work, name, (*row, j), shifted[j], total) for j in shown]
        blocks.append(Lines(tuple(made)))
    masked = [work.key(j) for j in range(len(scores)) if j not in seen]
    if masked:
        keys = _(", ").join(masked[:KEYS]) + " …" * (len(masked) > KEYS)
        blocks.append(Words(_("Masked, and so without weight: {keys}.").format(keys=keys), "note"))
    return [*blocks, row_check(work, name, row, sink)]


def extra(work: Work, row: Index) -> float | None:
    """The logit that joins the denominator: 0 for plus_one, the head's sink, or None."""
    if work.case["softmax"] == "plus_one":
        return 0.0
    return float(work.arrays["sinks"][row[-2]]) if "sinks" in work.arrays else None


def exponentials(work: Work, row: Index, shown: list, seen: list, sink: float | None, shift: float) -> tuple[dict, Number, tuple]:
    """e^(score - shift) by key, their sum with the sink's, and the parts of the line that adds them up."""
    scores = work.arrays["masked"][row].astype(np.float64)
    made = {j: one_if_zero(work, float(scores[j]) - shift) for j in shown}
    taker = [one_if_zero(work, sink - shift)] if sink is not None and sink > -math.inf else []
    value = math.fsum([*(math.exp(float(scores[j]) - shift) for j in seen), *(math.exp(sink - shift) for number in taker)])
    addends = [*taker, *made.values()]
    known = all(number.exact for number in addends) and len(shown) == len(seen)
    own = sum((number.printed for number in addends), Decimal(0))
    total = told(own, value, work.digits) if known else work.free(value)
    parts = summed([], addends, total)
    if len(shown) < len(seen):
        parts = [(parts[0][0], [*parts[0][1], more(len(seen) - len(shown))]), parts[1]]
    return made, total, tuple((r, tuple(t)) for r, t in parts)


def one_if_zero(work: Work, exponent: float) -> Number:
    """e^exponent; exactly 1 where that is 0."""
    return told(Decimal(1), 1.0, work.digits) if exponent == 0 else work.free(math.exp(exponent))


def exponential_table(work: Work, row: Index, shown: list, plain: dict | None, shifted: dict, shift: float, sink: float | None) -> Table:
    """Score and exponential of each key, without and with the shift."""
    columns = [_("score s"), *([_("e to the s")] if plain else []), f"s − {work.free(shift).factor}", _("e to that")]
    rows = []
    for j in shown:
        score = work.number("masked", (*row, j))
        less = float(work.arrays["masked"][(*row, j)]) - shift
        cells = [score.text, *([plain[j].text] if plain else []), work.free(less).text if less else "0", shifted[j].text]
        label = _("{key} (largest)") if float(work.arrays["masked"][(*row, j)]) == shift else "{key}"
        rows.append((label.format(key=work.key(j)), tuple(Cell(text) for text in cells)))
    if sink is not None:
        e = [work.free(math.exp(sink)).text] if plain else []
        cells = [work.free(sink).text, *e, work.free(sink - shift).text, work.free(math.exp(sink - shift)).text]
        label = _("1 in the denominator") if work.case["softmax"] == "plus_one" else _("sink, without a value")
        rows.append((label, tuple(Cell(text) for text in cells)))
    return Table(_("Scores and their exponentials"), tuple(columns), tuple(rows), _("key"), "numbers")


def quotient_line(work: Work, name: str, index: Index, e: Number, total: Number) -> Line:
    """One exponential by the sum of all."""
    weight = work.number(name, index)
    exact = e.exact and total.exact
    sign = "=" if exact and weight.exact and weight.printed * total.printed == e.printed else "≈"
    return work.line(
        name, index, ("=" if exact else "≈", [f"{e.text} / {total.text}"]), (sign, [weight.text]), label=pair(work, index[-2], index[-1])
    )


def row_check(work: Work, name: str, row: Index, sink: float | None) -> Words:
    """What the printed weights add up to, and what the weights do."""
    printed = [work.number(name, (*row, j)) for j in range(work.arrays[name].shape[-1])]
    digits = sum((number.printed for number in printed), Decimal(0))
    total = math.fsum(work.arrays[name][row].astype(float).tolist())
    said = _("Check: the printed weights add up to {sum}").format(sum=told(digits, float(digits), work.digits + 2).text)
    words = _("{said}, the weights themselves to {total}.") if sink is None else _(TAKERS[work.case["softmax"]])
    return Words(words.format(said=said, total=work.plain(total).text), "check")


def dropped(work: Work, name: str) -> list:
    """Some weights set to 0, the others made larger."""
    p = work.case["dropout"]

    def line(lead: Index, i: int, j: int) -> Line:
        before, after = work.number("weights", (*lead, i, j), work.weight_digits), work.number(name, (*lead, i, j))
        if not work.arrays["dropout_keep"][(*lead, i, j)]:
            return work.line(name, (*lead, i, j), ("=", [_("0, dropped")]), label=pair(work, i, j))
        sign = relation(before.exact and work.case["dtype"] == "float64", after, after.printed)
        return work.line(
            name,
            (*lead, i, j),
            ("=" if before.exact else "≈", [f"{before.text} / (1 − {p:g})"]),
            (sign, [after.text]),
            label=pair(work, i, j),
        )

    made = []
    for lead in work.leads(name):
        for i in work.some(work.arrays[name].shape[-2]):
            rows = [line(lead, i, j) for j in work.some(work.arrays[name].shape[-1], KEYS)]
            made.append((work.at(name, lead, i), [Lines(tuple(rows))]))
    words = _("Dropout with p = {p:g}: weights that dropout_keep keeps are divided by 1 − p, the others become 0.").format(p=p)
    return [
        Formula(r"\frac{P_{ij} \cdot \text{keep}_{ij}}{1 - p}"),
        Words(words),
        *folds(made),
        *tables(work, name, MAPS[work.case["softmax"]]),
    ]


ROWS = {"plain": softmax_row, "plus_one": softmax_row, "hardmax": hardmax_row, "none": score_row}
MAPS = {"plain": "weights", "plus_one": "weights", "hardmax": "weights", "none": "scores"}  # colours: from 0 to 1, or around 0
STEPS: dict[str, Callable[[Work, str], list]] = {"weights": weighed, "dropped": dropped}
