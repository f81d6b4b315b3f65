"""Drawings from a case's own arrays: arcs between tokens, a grid of connections, one query's mixing, shapes as boxes, arrows in a plane.

Each is inline SVG in the colours of the page, with a sentence that says the same to those who do not see it.
"""

import numpy as np

from worked_attention.pages.blocks import Picture
from worked_attention.pages.contexts import vector
from worked_attention.pages.language import _
from worked_attention.pages.svg import picture, text
from worked_attention.pages.work import Work
from worked_attention.stages.catalogue import axes
from worked_attention.stages.projections import last_form

WIDTH = 430
LINE, SOFT, INK = "stroke:var(--link)", "stroke:var(--soft)", "stroke:var(--ink)"
SHORT = 9  # letters of a name in a drawing
BARE = {  # which token hears which, of 5, where there is no case
    "convolution": np.abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1,
    "recurrence": np.eye(5, k=-1, dtype=bool) | np.eye(5, dtype=bool),
}


def cut(name: str) -> str:
    """A name that fits a drawing."""
    return name if len(name) <= SHORT else name[: SHORT - 1] + "…"


def connected(work: Work) -> np.ndarray:
    """Booleans [Lq, Lk]: which query may look at which key, in any head of the first sequence."""
    dims = work.case["dims"]
    keep = work.arrays.get("keep", np.ones((dims["Lq"], dims["Lk"]), bool))
    return keep.reshape(-1, *keep.shape[-2:])[: dims["H"]].any(axis=0)


def arcs(names: list[str], hears: np.ndarray, said: str) -> Picture:
    """Arcs from the token that is heard to the one that hears: to the right above the tokens, to the left below them.

    hears: booleans [L, L], rows hear columns.
    """
    step = (WIDTH - 80) / max(len(names) - 1, 1)
    place = [40 + step * i for i in range(len(names))]
    pairs = [(int(i), int(j)) for i, j in np.argwhere(hears) if i != j]
    above, below = (max((abs(i - j) for i, j in pairs if (i > j) == side), default=0) for side in (True, False))
    middle = 22 + 0.3 * step * above
    parts, told = [], []
    for i, j in pairs:
        up = -1 if i > j else 1
        y, (a, b) = middle + 11 * up, (place[j] - 4 * up, place[i] + 4 * up)
        top = y + 0.6 * step * abs(i - j) * up
        parts.append(f'<path d="M{a:.1f} {y:.1f}Q{(a + b) / 2:.1f} {top:.1f} {b:.1f} {y:.1f}" style="{LINE}"/>')
        parts += arrow((a + b) / 2, top, b, y, LINE)[1:]
        told.append(_("{key} to {query}").format(key=names[j], query=names[i]))
    parts += [text(x, middle + 5, cut(name), "middle") for x, name in zip(place, names, strict=True)]
    words = f"{said} {'; '.join(told)}." if told else said
    return picture(WIDTH, middle + 22 + 0.3 * step * below, words, parts, said)


def grid(work: Work) -> Picture:
    """Which query may look at which key: a full square where it may, an open one where it may not."""
    allowed = connected(work)
    queries, keys = allowed.shape
    side, left, top = min(34, (WIDTH - 90) / keys), 78, 62
    parts = [text(2, 16, _("query ↓ key →"))]
    parts += [text(left + side * (j + 0.5), top - 10, cut(work.key(j)), "middle") for j in range(keys)]
    rows = []
    for i in range(queries):
        parts.append(text(left - 8, top + side * (i + 0.5) + 5, cut(work.query(i)), "end"))
        for j in range(keys):
            at = f'x="{left + side * j + 3:.1f}" y="{top + side * i + 3:.1f}" width="{side - 6:.1f}" height="{side - 6:.1f}"'
            look = "fill:var(--link)" if allowed[i, j] else "fill:none;stroke:var(--soft);stroke-dasharray:2 2"
            parts.append(f'<rect {at} rx="3" style="{look}"/>')
        seen = [work.key(j) for j in range(keys) if allowed[i, j]]
        rows.append(_("{query} looks at {keys}").format(query=work.query(i), keys=", ".join(seen) or _("no key")))
    count, every = int(allowed.sum()), allowed.size
    caption = _("{title}: {count} of {every} connections are open.").format(title=work.case["title"], count=count, every=every)
    return picture(left + side * keys + 12, top + side * queries + 8, f"{caption} {'; '.join(rows)}.", parts, caption)


def pooling(work: Work) -> Picture:
    """The first query of the first head, its keys with their scores, their values and the context; lines are as thick as weights."""
    used = "dropped" if "dropped" in work.arrays else "weights"
    lead = (0,) * (work.arrays[used].ndim - 2)
    values = last_form(work.arrays, "v")
    scores, weights = work.row("masked", (*lead, 0)), work.row(used, (*lead, 0))
    shares = np.nan_to_num(work.arrays[used][(*lead, 0)].astype(float)).clip(0, 1)
    vectors = [vector(work.row(values, (*lead, j))) for j in range(len(weights))]
    context, query = vector(work.row("contexts", (*lead, 0))), work.query(0)
    row, width = 56, 470
    height = 30 + row * len(weights)
    middle, parts = 26 + row * len(weights) / 2, []
    for j, (score, weight) in enumerate(zip(scores, weights, strict=True)):
        y = 26 + row * (j + 0.5)
        thick = f"{LINE};stroke-width:{0.6 + 10 * shares[j]:.1f};stroke-opacity:.55"
        parts += [f'<path d="M56 {middle:.1f}L92 {y:.1f}" style="{SOFT}"/>', f'<path d="M288 {y:.1f}L330 {middle:.1f}" style="{thick}"/>']
        told = _("masked") if score.text == "−∞" else score.text
        parts += [text(98, y - 4, cut(work.key(j)), bold=True), text(282, y - 4, f"{told} → {weight.text}", "end")]
        parts.append(text(98, y + 13, vectors[j]))
    parts += [text(6, middle + 5, cut(query), bold=True), text(338, middle - 4, _("context"), bold=True), text(338, middle + 13, context)]
    parts += [text(6, 16, _("query")), text(98, 16, _("key, value")), text(282, 16, _("score → weight"), "end")]
    told = "; ".join(
        _("{key}: score {score}, weight {weight}, value {value}").format(key=work.key(j), score=s.text, weight=w.text, value=v)
        for j, (s, w, v) in enumerate(zip(scores, weights, vectors, strict=True))
    )
    caption = _("Query {query} asks every key; lines to the context are as thick as the weights.").format(query=query)
    mixed = _("Context: {context}.").format(context=context)
    return picture(width, height + 6, f"{caption} {told}. {mixed}", parts, caption)


def boxes(work: Work) -> Picture:
    """The arrays from x to the output as boxes, as high as they have rows and as wide as columns, one behind the other for each head."""
    path = ("x", "q", "q_heads", "k_heads", "v_heads", "qk", "weights", "contexts", "concat", "output")
    names = [name for name in path if name in work.arrays]
    shapes = {name: work.arrays[name].shape[-3:] if work.case["dims"].get("B") is None else work.arrays[name].shape[1:] for name in names}
    unit = min(14.0, 110 / max(max(shape[-2:]) for shape in shapes.values()))
    parts, y, said = [], 10.0, []
    for n, name in enumerate(names):
        *stack, rows, columns = shapes[name]
        heads = stack[0] if stack else 1
        shown = min(heads, 4)
        high, wide = rows * unit, columns * unit
        room = max(high + 5 * (shown - 1), 32)
        for h in reversed(range(shown)):
            at = f'x="{16 + 7 * h:.1f}" y="{y + 5 * h:.1f}" width="{wide:.1f}" height="{high:.1f}"'
            parts.append(f'<rect {at} style="fill:var(--tint);{LINE}"/>')
        shape = f"[{', '.join(map(str, shapes[name]))}]"
        named = f"[{', '.join(axes(name, work.case['dims'])[-len(shapes[name]) :])}]"
        parts += [text(176, y + 14, f"{name} {shape}", bold=True), text(176, y + 31, named)]
        said.append(f"{name} {shape}")
        y += room + 8
        if n + 1 < len(names):
            parts.append(f'<path d="M22 {y - 4:.1f}v8m-4 -4l4 4l4 -4" style="{SOFT}"/>')
            y += 10
    caption = _("Shapes on the way, one sheet for each head; a sheet is as high as it has rows and as wide as it has columns.")
    return picture(WIDTH, y + 4, f"{caption} {', '.join(said)}.", parts, caption)


def geometry(work: Work) -> Picture:
    """The first query and all keys, of width 2, as arrows from one point, with the projection of each key on the query's line."""
    q, k = last_form(work.arrays, "q"), last_form(work.arrays, "k")
    lead = (0,) * (work.arrays[q].ndim - 2)
    query, keys = work.arrays[q][(*lead, 0)].astype(float), work.arrays[k][lead].astype(float)
    if query.shape != (2,):
        raise ValueError(f"{work.case['suite']}/{work.case['name']}: arrows are drawn of queries and keys of width 2, not {len(query)}")
    points = np.vstack([query, keys])
    along = (keys @ query)[:, None] * query / max(float(query @ query), 1e-300)
    every = np.vstack([points, along, [[0, 0]]])
    low, high = every.min(axis=0), every.max(axis=0)
    unit = min(206 / max(high[0] - low[0], 1e-9), 260 / max(high[1] - low[1], 1e-9))
    left, pad = 112, 34

    def at(point: np.ndarray) -> tuple[float, float]:
        return left + (point[0] - low[0]) * unit, pad + (high[1] - point[1]) * unit

    (x0, y0), parts, said = at(np.zeros(2)), [], []
    span = np.vstack([along, query, np.zeros(2)]) @ query / max(float(np.linalg.norm(query)), 1e-300)
    unit_query = query / max(float(np.linalg.norm(query)), 1e-300)
    (xa, ya), (xb, yb) = at(span.min() * unit_query), at(span.max() * unit_query)
    parts.append(f'<path d="M{xa:.1f} {ya:.1f}L{xb:.1f} {yb:.1f}" style="{SOFT};stroke-dasharray:1 3"/>')
    for j, key in enumerate(keys):
        (x, y), (px, py) = at(key), at(along[j])
        parts.append(f'<path d="M{x:.1f} {y:.1f}L{px:.1f} {py:.1f}" style="{SOFT};stroke-dasharray:4 3"/>')
        parts += arrow(x0, y0, x, y, SOFT)
        score = work.number("qk", (*lead, 0, j))
        sign = "end" if x < x0 else "start"
        parts.append(text(x + (-6 if x < x0 else 6), y + (14 if y > y0 else -6), f"{cut(work.key(j))}: {score.text}", sign))
        said.append(_("{key}, q · k = {score}").format(key=work.key(j), score=score.text))
    x, y = at(query)
    parts += [*arrow(x0, y0, x, y, f"{LINE};stroke-width:2.5"), text(x + 8, y + 5, cut(work.query(0)), bold=True)]
    caption = _(
        "The query and the keys as arrows; dashed, each key's projection on the line of the query. q · k is the length of q times it."
    )
    size = left * 2 + (high[0] - low[0]) * unit, pad * 2 + (high[1] - low[1]) * unit
    return picture(*size, f"{caption} {'; '.join(said)}.", parts, caption)


def arrow(x0: float, y0: float, x: float, y: float, look: str) -> list[str]:
    """A line with a head."""
    angle = np.arctan2(y - y0, x - x0)
    ends = [(x - 8 * np.cos(angle + turn), y - 8 * np.sin(angle + turn)) for turn in (0.4, -0.4)]
    head = f"M{ends[0][0]:.1f} {ends[0][1]:.1f}L{x:.1f} {y:.1f}L{ends[1][0]:.1f} {ends[1][1]:.1f}"
    return [f'<path d="M{x0:.1f} {y0:.1f}L{x:.1f} {y:.1f}" style="{look}"/>', f'<path d="{head}" style="{look}"/>']
