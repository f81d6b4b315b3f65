"""One query's way as a drawing: a score for each key, a weight for each score, and the values mixed by the weights."""

import numpy as np

from worked_attention.pages.blocks import Picture
from worked_attention.pages.contexts import vector
from worked_attention.pages.language import _
from worked_attention.pages.svg import picture, text
from worked_attention.pages.work import Work
from worked_attention.stages.projections import last_form

ROW, TOP, LETTER = 30, 44, 7.6  # a key's row, where the first one begins, and what a letter takes
KEY, SCORE, BAR, LONGEST, WEIGHT, VALUE = 6, 128, 138, 70, 214, 268  # columns


def flow(work: Work) -> Picture:
    """The first query of the first head, from its scores to its context."""
    used = "dropped" if "dropped" in work.arrays else "weights"
    lead = (0,) * (work.arrays[used].ndim - 2)
    row = (*lead, 0)
    values, kv = last_form(work.arrays, "v"), (*lead[:-1], lead[-1] // (work.case["heads"] // work.case["kv_heads"]))
    scores, weights = work.row("masked", row), work.row(used, row)
    vectors = [vector(work.row(values, (*kv, j))) for j in range(len(weights))]
    context, query, head = vector(work.row("contexts", row)), work.query(0), work.where(used, lead)
    parts = [text(KEY, 18, _("key")), text(SCORE, 18, _("score"), "end"), text(BAR, 18, _("weight")), text(VALUE, 18, _("value"))]
    for j, (score, weight) in enumerate(zip(scores, weights, strict=True)):
        y = TOP + ROW * j
        share = float(work.arrays[used][(*row, j)].astype(np.float64))
        length = LONGEST * min(max(share, 0.0), 1.0) if np.isfinite(share) else 0.0
        parts += [text(KEY, y, work.key(j)), text(SCORE, y, _("masked") if score.text == "−∞" else score.text, "end")]
        parts += [f'<rect x="{BAR}" y="{y - 12}" width="{length:.1f}" height="15" style="fill:var(--link)"/>']
        parts += [text(WEIGHT, y, weight.text), text(VALUE, y, vectors[j])]
    y, width = TOP + ROW * len(weights) + 8, round(VALUE + LETTER * max(len(told) for told in [context, *vectors]) + 24)
    parts += [
        f'<path d="M{KEY} {y - 24}H{width - 6}" style="stroke:var(--soft)"/>',
        text(KEY, y, _("context of {query}").format(query=query)),
        text(VALUE, y, context, bold=True),
    ]
    row_words = _("{key}: score {score}, weight {weight}, value {value}")
    told = _("; ").join(
        row_words.format(key=work.key(j), score=s.text, weight=w.text, value=v)
        for j, (s, w, v) in enumerate(zip(scores, weights, vectors, strict=True))
    )
    said = _("Query {query}, {head}, first of all: {told}. Mixed: {context}.").format(query=query, head=head, told=told, context=context)
    caption = _("How query {query} mixes the values, {head}.") if head else _("How query {query} mixes the values.")
    return picture(width, y + 12, said, parts, caption.format(query=query, head=head))
