"""How much each query asks of each key, told: products, scale, softcap, biases, masks."""

import math
from collections.abc import Callable

import numpy as np

from worked_attention.pages.blocks import Cell, Formula, Line, Lines, Table, Words
from worked_attention.pages.exact import bias_terms, root_of
from worked_attention.pages.language import N_, _
from worked_attention.pages.parameters import tables
from worked_attention.pages.work import CORNERS, Index, Work, folds, summed
from worked_attention.stages.masks import each_mask
from worked_attention.stages.positions import STEPS as STEPS_BY_FORM
from worked_attention.stages.positions import alibi_slopes, t5_buckets
from worked_attention.stages.projections import last_form


def by_query(work: Work, name: str, line: Callable[[Index, int, int], Line | None], keys: int = 8) -> list:
    """Folds of lines, one fold for each sequence, head and query: line(lead, i, j) tells the score of query i and key j."""
    made = []
    for lead in work.leads(name):
        for i in work.some(work.arrays[name].shape[-2]):
            lines = [line(lead, i, j) for j in work.some(work.arrays[name].shape[-1], keys)]
            made.append((work.at(name, lead, i), [Lines(tuple(line for line in lines if line))]))
    return folds(made)


def masked_cells(work: Work) -> np.ndarray:
    """Booleans [..., H, Lq, Lk], True where a key is masked: blocked by a boolean mask, or at minus infinity."""
    blocked = np.isneginf(work.arrays["masked"].astype(np.float64))
    return blocked | ~work.arrays["keep"] if "keep" in work.arrays else blocked


def multiplied(work: Work, name: str) -> list:
    """Each query times each key."""
    q, k = (
        last_form(work.arrays, "q"),
        last_form(work.arrays, "k"),
    )
    group = work.case["heads"] // work.case["kv_heads"]
    words = _("Row i, column j: the row of {q} for query i times the row of {k} for key j.").format(q=q, k=k)
    words += _(" Each key head serves {group} query heads: head h uses key head ⌊h/{group}⌋.").format(group=group) if group > 1 else ""

    def line(lead: Index, i: int, j: int) -> Line:
        kv = (*lead[:-1], lead[-1] // group)
        pairs = list(zip(work.row(q, (*lead, i)), work.row(k, (*kv, j)), strict=True))
        return work.sum_line(name, (*lead, i, j), pairs, label=f"{work.query(i)} · {work.key(j)}")

    return [
        Formula(r"S_{ij} = q_i \cdot k_j = \sum_c q_{ic} k_{jc}"),
        Words(words),
        *by_query(work, name, line),
        *tables(work, name, "scores"),
    ]


def scaled(work: Work, name: str) -> list:
    """Times the scale."""
    if name in work.case["arrays"]["parameters"]:
        return [Words(_("The case begins here: these scores are given.")), *tables(work, name, "scores")]
    scale = work.case["scale"]
    if scale == "none":
        return [Words(_("The case has no scale, so the scores stay as they are.")), *tables(work, name, "scores")]
    factor = work.plain(work.case["scale_factor"])
    root = root_of(work.case)
    divisors = {"1/sqrt(d_k)": f"√{root}", "1/sqrt(d_model)": f"√{root}", "1/d_k": str(work.case["dims"].get("d_k"))}
    tex = {"1/sqrt(d_k)": r"\frac{q_i \cdot k_j}{\sqrt{d_k}}", "1/sqrt(d_model)": r"\frac{q_i \cdot k_j}{\sqrt{d_{model}}}"}
    tex |= {"1/d_k": r"\frac{q_i \cdot k_j}{d_k}"}
    if isinstance(scale, str):
        divisor = divisors[scale]
        by = f"{divisor} ≈ {work.free(math.sqrt(root)).text}" if "√" in divisor else divisor
        words = _("Each product is divided by {divisor}.").format(divisor=by)
    else:
        words = _("Each product is multiplied by {factor}.").format(factor=factor.text)

    def line(lead: Index, i: int, j: int) -> Line:
        before, after = work.number("qk", (*lead, i, j)), work.number(name, (*lead, i, j))
        term = f"{before.text} / {divisors[scale]}" if isinstance(scale, str) else f"{before.factor} × {factor.factor}"
        exact = before.exact and after.exact and work.case["dtype"] == "float64"
        return work.line(
            name, (*lead, i, j), ("=" if before.exact else "≈", [term]), ("=" if exact else "≈", [after.text]), label=pair(work, i, j)
        )

    formula = Formula(tex[scale] if isinstance(scale, str) else r"s (q_i \cdot k_j)")
    return [formula, Words(words), *by_query(work, name, line), *tables(work, name, "scores")]


def pair(work: Work, i: int, j: int) -> str:
    return f"{work.query(i)} → {work.key(j)}"


def capped(work: Work, name: str) -> list:
    """Kept within the cap by a hyperbolic tangent."""
    cap = work.case["softcap"]

    def line(lead: Index, i: int, j: int) -> Line:
        before, after = work.number("scaled", (*lead, i, j)), work.number(name, (*lead, i, j))
        return work.line(
            name, (*lead, i, j), ("≈", [f"{cap:g} × tanh({before.text} / {cap:g})"]), ("≈", [after.text]), label=pair(work, i, j)
        )

    words = _("The cap c is {cap:g}: no score leaves (−{cap:g}, {cap:g}), and small ones hardly move.").format(cap=cap)
    return [Formula(r"c \cdot \tanh \frac{s}{c}"), Words(words), *by_query(work, name, line), *tables(work, name, "scores")]


FILLED = {  # what else is said of the slopes by rule
    "geometric": (),
    "interleaved": (
        N_(" Where H is no power of two, they are those of the power of two below it, then every second one of twice that power."),
    ),
}


def sloped(work: Work, name: str) -> list:
    """The slope of each head."""
    words = _("One slope for each of the H = {heads} heads h, counted from 0.").format(heads=work.case["heads"])
    words += "".join(_(more) for more in FILLED[work.case["alibi"]["slopes"]])
    return [Formula(r"m_h = 2^{-8(h+1)/H}"), Words(words), *tables(work, name)]


SIDES = {
    "both": N_("Half of the {buckets} buckets are for keys on the right of the query."),
    "left": N_("All {buckets} buckets are for keys on the left of the query; those on its right have bucket 0."),
}


def bucketed(work: Work, name: str) -> list:
    """The row of the table of biases for each query and key."""
    options = work.case["t5"]
    words = _(SIDES[options["direction"]]).format(buckets=len(work.arrays["t5_table"]))
    words += _(
        " The first half of a side holds one distance each, the others grow in logarithmic steps up to the distance {longest}, and the "
        "last one holds all beyond."
    ).format(longest=options["longest"])
    return [Words(words), *tables(work, name)]


def biased(work: Work, name: str) -> list:
    """Everything that is added to the scores, term by term."""
    case, dims = work.case, work.case["dims"]
    terms = {
        term: np.broadcast_to(array, (*work.arrays[name].shape[:-1], dims["Lc"])) for term, array in bias_terms(case, work.arrays).items()
    }
    queries, keys = np.array(case["query_positions"]), np.array(case["context_positions"])
    words = []
    if "alibi" in terms:
        slopes = [work.plain(slope).text for slope in alibi_slopes(case["heads"], case["alibi"]["slopes"])]
        said = _("ALiBi adds {bias}, i and j being positions; the slopes of the heads are {slopes}.")
        words.append(said.format(bias=_(ALIBI[case["alibi"]["form"]]), slopes=_(", ").join(slopes)))
    if "t5_table" in terms:
        buckets = t5_buckets(keys[None, :] - queries[:, None], len(work.arrays["t5_table"]), case["t5"]["longest"], case["t5"]["direction"])
        words.append(_("T5 looks up the distance j − i in a bucket of its table, which has a column for each head."))
    words.append((_("Added up: {terms}.") if len(terms) > 1 else _("Added is {terms}.")).format(terms=_(", ").join(terms)))

    def line(lead: Index, i: int, j: int) -> Line | None:
        if j >= dims["Lc"]:
            return None
        numbers, told_as = [], []
        for term, array in terms.items():
            value = array[(*lead, i, j)]
            number = work.plain(value)
            numbers.append(number)
            if term == "alibi":
                slope = float(alibi_slopes(case["heads"], case["alibi"]["slopes"])[lead[-1]])
                count = STEPS_BY_FORM[case["alibi"]["form"]](queries[i], keys[j])
                told_as.append(f"{work.plain(slope).text} × {work.plain(count).factor}")
            elif term == "t5_table":
                place = _("t5_table[bucket {bucket} of distance {distance}, head {head}]")
                told_as.append(place.format(bucket=buckets[i, j], distance=keys[j] - queries[i], head=lead[-1]))
            else:
                told_as.append(f"{term} {number.text}")
        last = summed([], numbers, work.number(name, (*lead, i, j)))
        parts = [("=", told_as), *(last if len(numbers) > 1 or "alibi" in terms or "t5_table" in terms else last[1:])]
        return work.line(name, (*lead, i, j), *parts, label=pair(work, i, j))

    return [*(Words(said) for said in words), *by_query(work, name, line), *tables(work, name, "scores")]


ALIBI = {"distance": N_("−slope × |i − j|"), "relative": N_("slope × (j − i)"), "key_index": N_("slope × j")}
FILLS = {"-inf": N_("−∞, so that its weight is 0"), "finfo_min": N_("the most negative number of the dtype")}
MASK_WORDS = {
    "causal": N_("causal"),
    "window": N_("window"),
    "documents": N_("documents"),
    "key_lengths": N_("padding (key_lengths)"),
    "mask_keep": N_("mask.keep"),
    "mask_block": N_("mask.block"),
    "mask_key_keep": N_("mask.key_keep"),
    "mask_key_block": N_("mask.key_block"),
}


def kept(work: Work, name: str) -> list:
    """Which keys each query may see, and which mask blocks the others."""
    shape = work.arrays[name].shape
    masks = {
        mask: np.broadcast_to(keep, (*shape[:-1], work.case["dims"]["Lc"])) for mask, keep in each_mask(work.case, work.arrays).items()
    }
    seen: dict[bytes, str] = {}
    made = []
    for lead in work.leads(name):
        rows = []
        for i in range(min(shape[-2], 8)):
            cells = []
            for j in range(min(shape[-1], 16 if work.whole else 8)):
                blocking = [_(MASK_WORDS[mask]) for mask, keep in masks.items() if j < keep.shape[-1] and not keep[(*lead, i, j)]]
                if bool(blocking) == bool(work.arrays[name][(*lead, i, j)]):
                    raise ValueError(f"{name}{[*lead, i, j]} is not what the masks {', '.join(masks)} say together")
                said = _("blocked: {masks}") if len(masks) > 1 else _("blocked")
                cells.append(Cell(said.format(masks=_(", ").join(blocking)), "", "masked") if blocking else Cell(_("seen")))
            rows.append((work.query(i), tuple(cells)))
        columns = tuple(work.key(j) for j in range(len(rows[0][1])))
        key = work.arrays[name][lead].tobytes()
        where = work.where(name, lead)
        if key in seen:
            continue
        seen[key] = where
        caption = _("{where}: which keys each query sees") if len(list(work.leads(name))) > 1 else _("Which keys each query sees")
        made.append(Table(caption.format(where=where), columns, tuple(rows), _(CORNERS["Lq", "Lk"]), "grid"))
    words = _("Masks: {masks}. A key is seen if every mask lets it through.").format(
        masks=_(", ").join(_(MASK_WORDS[mask]) for mask in masks)
    )
    words += _(" Keys that the layer appends are seen by every query.") if shape[-1] > work.case["dims"]["Lc"] else ""
    words += _(" Heads and sequences that are not shown see the same.") if len(made) < len(list(work.leads(name))) else ""
    return [Words(words), *made]


def entering(work: Work, name: str) -> list:
    """What enters the softmax."""
    before = "capped" if "capped" in work.arrays else "scaled"
    blocked = masked_cells(work)
    if "bias" not in work.arrays and not blocked.any():
        return [Words(_("Nothing is added and nothing is masked, so {scores} enters the softmax as it is.").format(scores=before))]
    fill = work.case["mask"]["fill"]
    words = []
    if "keep" in work.arrays:
        place = _(FILLS[fill]) if isinstance(fill, str) else work.free(fill).text
        words.append(_("The score of a blocked key becomes {place}.").format(place=place))
    if "bias" in work.arrays:
        words.append(_("The bias is added to the score."))

    def line(lead: Index, i: int, j: int) -> Line:
        index = (*lead, i, j)
        after = work.number(name, index)
        if "keep" in work.arrays and not work.arrays["keep"][index]:
            said = _("masked") if after.text == "−∞" else _("masked, {number} in its place").format(number=after.text)
            return work.line(name, index, ("→", [said]), label=pair(work, i, j))
        plus = [work.number(before, index), *([work.number("bias", index)] if "bias" in work.arrays else [])]
        parts = summed([], plus, after)
        return work.line(name, index, *(parts if len(plus) > 1 else parts[1:]), label=pair(work, i, j))

    formula = [Formula(r"s_{ij} + \text{bias}_{ij}")] if "bias" in work.arrays else []
    return [*formula, *(Words(said) for said in words), *by_query(work, name, line), *tables(work, name, "scores", blocked)]


STEPS: dict[str, Callable[[Work, str], list]] = {
    "qk": multiplied,
    "scaled": scaled,
    "capped": capped,
    "slopes": sloped,
    "buckets": bucketed,
    "bias": biased,
    "keep": kept,
    "masked": entering,
}
