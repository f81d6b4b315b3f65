"""From x to what the scores use, told: sums of products, heads, norms, rotations, the cache and appended keys."""

import math
from collections.abc import Callable

import numpy as np

from worked_attention.pages.blocks import Beside, Formula, Lines, Picture, Words
from worked_attention.pages.language import N_, _
from worked_attention.pages.parameters import tables
from worked_attention.pages.turn import turn
from worked_attention.pages.work import Index, Work, folds, summed
from worked_attention.stages.catalogue import CATALOGUE, source
from worked_attention.stages.positions import PAIRING, angles, frequencies

SIDES = {"q": N_("query of {token}"), "k": N_("key of {token}"), "v": N_("value of {token}"), "o": N_("output of {token}")}
SAME = {  # what q, k or v is where the case has no weight for it
    "q": N_("The case has no {w}, so each query is its row of {x} itself."),
    "k": N_("The case has no {w}, so each key is its row of {x} itself."),
    "v": N_("The case has no {w}, so each value is its row of {x} itself."),
}
PRODUCTS = {
    "q": N_("Each number of a query is the row of {x} times a row of {w}, product by product."),
    "k": N_("Each number of a key is the row of {x} times a row of {w}, product by product."),
    "v": N_("Each number of a value is the row of {x} times a row of {w}, product by product."),
}
NORMS = {"rms": True, "l2": False}  # whether the squares are averaged
NORMED = {
    ("rms", "q"): N_("r is the root mean square of the query, ε is {eps:g}, the gain g is {gain}."),
    ("rms", "k"): N_("r is the root mean square of the key, ε is {eps:g}, the gain g is {gain}."),
    ("l2", "q"): N_("r is the length of the query, ε is {eps:g}, the gain g is {gain}."),
    ("l2", "k"): N_("r is the length of the key, ε is {eps:g}, the gain g is {gain}."),
}
POSITIONS = {"q": "query_positions", "k": "key_positions"}


def made_from(work: Work, name: str, among: str = "") -> str:
    """The array that `name` is made from: the last of the catalogue's list that the case has, among those whose name begins so."""
    return [made for made in CATALOGUE[name].made_from if made in work.arrays and made.startswith(among)][-1]


TOKENS: dict[str, Callable[[Work, int], str]] = {"q": Work.query, "k": Work.new_key, "v": Work.new_key, "o": Work.query}


def token(work: Work, side: str, i: int) -> str:
    """Name of token i: of the queries and outputs, or of the new keys and values."""
    return TOKENS[side](work, i)


def with_sinusoids(work: Work, name: str) -> list:
    """x plus sine and cosine of the position."""
    x, side = made_from(work, name), "q" if name == "x_pos" else "k"
    base, (length, width) = work.case["sinusoidal"]["base"], work.arrays[name].shape[-2:]
    blocks: list = [
        Formula(r"x_{p,2i} + \sin \frac{p}{b^{2i/d}}, x_{p,2i+1} + \cos \frac{p}{b^{2i/d}}"),
        Words(_("The base b is {base:g}, d is {width}; p is the token's position.").format(base=base, width=width)),
    ]
    made = []
    for batch in batches(work, name):
        for i in work.some(length):
            position, lines = work.case[POSITIONS[side]][i], []
            for c in work.some(width, 8):
                angle = position / base ** (2 * (c // 2) / width)
                turned = work.free(math.cos(angle) if c % 2 else math.sin(angle))
                function = f"{'cos' if c % 2 else 'sin'}({position} / {base:g}^({2 * (c // 2)}/{width}))"
                before, after = work.number(x, (*batch, i, c)), work.number(name, (*batch, i, c))
                parts = ("=", [before.text, function]), ("≈", [before.text, turned.text]), ("≈", [after.text])
                lines.append(work.line(name, (*batch, i, c), *parts))
            said = _("token {token} at position {position}").format(token=token(work, side, i), position=position)
            made.append((title(batch, said), [Lines(tuple(lines))]))
    return blocks + folds(made) + tables(work, name)


def batches(work: Work, name: str) -> list[Index]:
    """The sequences that are told; one without an index if the case has no batch."""
    return [(b,) for b in work.some(work.arrays[name].shape[0])] if "B" in work.case["dims"] else [()]


def title(batch: Index, words: str) -> str:
    """`words` with the sequence before them, if there are several."""
    return _("sequence {i}, {words}").format(i=batch[0], words=words) if batch else words


def projected(work: Work, name: str) -> list:
    """Queries, keys or values: x times a weight, plus a bias; or x itself; or as the case gives them."""
    if name in work.case["arrays"]["parameters"]:
        return [Words(_("Given.")), *tables(work, name)]
    x, w, b = source(name, work.arrays), f"w_{name}", f"b_{name}"
    letter = name.upper()
    if w not in work.arrays:
        return [
            Formula(rf"{letter} = X"),
            Words(_(SAME[name]).format(w=w, x=x)),
            *tables(work, name),
        ]
    blocks = [
        Formula(rf"{letter} = X W_{letter}^\top" + (rf" + b_{letter}" if b in work.arrays else "")),
        Words(_(PRODUCTS[name]).format(x=x, w=w) + (_(" {b} is added.").format(b=b) if b in work.arrays else "")),
    ]
    return blocks + folds(sums(work, name, x, w, b, name)) + tables(work, name)


def sums(work: Work, name: str, x: str, w: str, b: str, side: str) -> list[tuple[str, list]]:
    """(title, lines) of each token of X W^T + b."""
    made = []
    for batch in batches(work, name):
        for i in work.some(work.arrays[name].shape[-2]):
            row = work.row(x, (*batch, i))
            lines = []
            for c in work.some(work.arrays[name].shape[-1], 8):
                plus = [work.number(b, (c,))] if b in work.arrays else []
                pairs = list(zip(row, work.row(w, (c,)), strict=True))
                lines.append(work.sum_line(name, (*batch, i, c), pairs, plus))
            made.append((title(batch, _(SIDES[side]).format(token=token(work, side, i))), [Lines(tuple(lines))]))
    return made


def split(work: Work, name: str) -> list:
    """Heads: each takes its own columns."""
    whole = name[0]
    if whole not in work.arrays:
        return [Words(_("Given.")), *tables(work, name)]
    heads, width = work.arrays[name].shape[-3], work.arrays[name].shape[-1]
    if heads == 1:
        words = _("One head, which takes all {width} columns of {whole}.")
    else:
        words = _("{heads} heads of width {width}: head 0 takes columns 0 to {first} of {whole}, head {last} columns {start} to {end}.")
    numbers = {"first": width - 1, "last": heads - 1, "start": (heads - 1) * width, "end": heads * width - 1}
    return [Words(words.format(heads=heads, width=width, whole=whole, **numbers)), *tables(work, name)]


def normed(work: Work, name: str) -> list:
    """Each query or key divided by its size, times the gain."""
    before, side, options = f"{name[0]}_heads", name[0], work.case["qk_norm"]
    gain, width, eps = f"g_{name[0]}", work.arrays[name].shape[-1], options["eps"]
    mean = NORMS[options["kind"]]
    blocks: list = [
        Formula(
            r"y = \frac{x}{r} g, r = \sqrt{\frac{x_0^2 + \ldots + x_{d-1}^2}{d} + \varepsilon}"
            if mean
            else r"y = \frac{x}{r} g, r = \sqrt{x_0^2 + \ldots + x_{d-1}^2 + \varepsilon}"
        ),
        Words(_(NORMED[options["kind"], side]).format(eps=eps, gain=gain if gain in work.arrays else "1")),
    ]
    made = []
    for lead in work.leads(name):
        for i in work.some(work.arrays[name].shape[-2]):
            x = work.row(before, (*lead, i))
            squares = float((work.arrays[before][(*lead, i)].astype(float) ** 2).sum())
            r = work.free(math.sqrt((squares / width if mean else squares) + eps))
            added = " + ".join(f"{number.factor}²" for number in x[:8]) + (" + …" if width > 8 else "")
            inside = f"({added})/{width} + {eps:g}" if mean else f"{added} + {eps:g}"
            lines = [work.line(name, (*lead, i), ("=", [f"√({inside})"]), ("≈", [r.text]), label="r")]
            for c in work.some(width, 8):
                terms = f"{x[c].factor} / {r.text}" + (f" × {work.number(gain, (c,)).factor}" if gain in work.arrays else "")
                lines.append(work.line(name, (*lead, i, c), ("≈", [terms]), ("≈", [work.number(name, (*lead, i, c)).text])))
            made.append((_(", ").join([work.where(name, lead), _(SIDES[side]).format(token=token(work, side, i))]), [Lines(tuple(lines))]))
    return blocks + folds(made) + tables(work, name)


def frequency(work: Work, name: str) -> list:
    """The angle by which each pair of columns turns from one position to the next."""
    options = work.case["rotary"]
    words = _("d = {dims} columns turn, in {pairs} pairs t; the base b is {base:g}.")
    words = words.format(dims=options["dims"], pairs=options["dims"] // 2, base=options["base"])
    return [Formula(r"\theta_t = b^{-2t/d}"), Words(words + slowed(options)), *tables(work, name)]


WAVES = {"cos": r"\cos p \theta_t", "sin": r"\sin p \theta_t"}


def waves(work: Work, name: str) -> list:
    """Cosines or sines of the angles by which queries or keys turn."""
    word, wave = name.split("_")
    positions, options = work.case[f"{word}_positions"], work.case["rotary"]
    stretch = frequencies(options["dims"], options["base"], options["scaling"])[1]
    some = _(", ").join(map(str, positions[:8])) + (" …" if len(positions) > 8 else "")
    words = _("A row for each position p: {positions}.").format(positions=some) + stretched(work, stretch)
    return [Formula(WAVES[wave] if stretch == 1 else f"s {WAVES[wave]}"), Words(words), *tables(work, name)]


def slowed(options: dict) -> str:
    """What a rule for longer contexts has done to the angles, if the case has one."""
    if not (scaling := options["scaling"]):
        return ""
    return _(" Scaling {rule} by {factor:g} has slowed them down.").format(rule=scaling["rule"], factor=scaling["factor"])


def stretched(work: Work, stretch: float) -> str:
    """By how much cosine and sine are stretched, if they are."""
    return _(" Cosine and sine are stretched by {stretch}.").format(stretch=work.free(stretch).text) if stretch != 1 else ""


def rotated(work: Work, name: str) -> list:
    """Each pair of columns turned by an angle that grows with the position."""
    side, options = name[0], work.case["rotary"]
    before, width = made_from(work, name), work.arrays[name].shape[-1]
    dims = options["dims"]
    theta, stretch = frequencies(dims, options["base"], options["scaling"])
    positions = np.array(work.case[POSITIONS[side]])
    turned = angles(positions, theta, np.dtype(options["angles"]))
    pairs = list(zip(*(range(dims)[part] for part in PAIRING[options["pairing"]](dims // 2)), strict=True))
    by = _("({a}, {b}) by θ = {angle}")
    said = _(", ").join(by.format(a=a, b=b, angle=work.free(theta[t]).text) for t, (a, b) in enumerate(pairs[:8]))
    said += " …" if len(pairs) > 8 else ""
    words = _("Columns are turned in pairs ({pairing}): {pairs} for each step of position; a whole turn is 6.2832.")
    words = words.format(pairing=options["pairing"], pairs=said)
    words += _(" Columns from {dims} on pass through.").format(dims=dims) if dims < width else ""
    words += slowed(options) + stretched(work, stretch)
    blocks: list = [
        Formula(r"y_a = x_a \cos \alpha - x_b \sin \alpha, y_b = x_a \sin \alpha + x_b \cos \alpha, \alpha = p \theta"),
        Words(words),
    ]
    made = []
    for lead in work.leads(name):
        for i in work.some(work.arrays[name].shape[-2]):
            lines, pictures = [], []
            for t, (a, b) in enumerate(pairs[: len(pairs) if work.whole else 4]):
                angle = float(turned[i, t])
                cos, sin, minus = (work.free(stretch * value) for value in (math.cos(angle), math.sin(angle), -math.sin(angle)))
                sign, product = "≈" if angle else "=", f"{positions[i]} × {work.free(theta[t]).text}"
                told_as = _("{angle}, which is {degrees:.1f}°: cos {cos}, sin {sin}").format(
                    angle=work.free(angle).text if angle else 0, degrees=math.degrees(angle), cos=cos.text, sin=sin.text
                )
                label = _("α of columns {a} and {b}").format(a=a, b=b)
                lines.append(work.line(name, (*lead, i, f"angle{t}"), (sign, [product]), (sign, [told_as]), label=label))
                xa, xb = (work.number(before, (*lead, i, c)) for c in (a, b))
                ya, yb = (work.number(name, (*lead, i, c)) for c in (a, b))
                lines.append(work.line(name, (*lead, i, a), *summed([(xa, cos), (xb, minus)], [], ya)))
                lines.append(work.line(name, (*lead, i, b), *summed([(xa, sin), (xb, cos)], [], yb)))
                if work.whole and angle:
                    pictures.append(turning(work, before, name, (*lead, i), (a, b), angle))
            where = [work.where(name, lead), _(SIDES[side]).format(token=token(work, side, i)), _("position {p}").format(p=positions[i])]
            made.append((_(", ").join(where), [Lines(tuple(lines)), *([Beside(tuple(pictures))] if pictures else [])]))
    return blocks + folds(made) + tables(work, name)


def turning(work: Work, before: str, after: str, row: Index, pair: tuple[int, int], angle: float) -> Picture:
    """One pair of columns of a `row` as a drawing, before and after it is turned."""
    (xa, xb), (ya, yb) = ([work.number(name, (*row, c)).text for c in pair] for name in (before, after))
    points = (tuple(float(work.arrays[name][(*row, c)]) for c in pair) for name in (before, after))
    numbers = {"a": pair[0], "b": pair[1], "angle": work.free(angle).text, "degrees": math.degrees(angle)}
    said = _("Columns {a} and {b}: ({xa}, {xb}), turned by {degrees:.1f}°, becomes ({ya}, {yb}).")
    caption = _("Columns {a} and {b}: {angle} rad = {degrees:.1f}°").format(**numbers)
    return turn(*points, angle, said.format(xa=xa, xb=xb, ya=ya, yb=yb, **numbers), caption)


def cached(work: Work, name: str) -> list:
    """What the cache held, and the new rows behind it."""
    past, new = f"past_{name[-1]}", made_from(work, name, f"{name[-1]}_")
    count, more = work.case["dims"]["Lp"], work.case["dims"]["Ln"]
    words = _("The first {count} rows come from the cache ({past}), the last {more} from {new}; the next step finds all in its cache.")
    return [Words(words.format(count=count, past=past, more=more, new=new)), *tables(work, name)]


def appended(work: Work, name: str) -> list:
    """The keys and those that the layer puts behind them."""
    added = [f"bias_{name[0]}"] * (f"bias_{name[0]}" in work.arrays) + [_("a row of zeros")] * (work.case["extra_key"] == "zero")
    words = _("The layer appends {added} to each head, which every query sees.").format(added=_(" and ").join(added))
    return [Words(words), *tables(work, name)]


STEPS: dict[str, Callable[[Work, str], list]] = {
    **dict.fromkeys(("x_pos", "x_kv_pos"), with_sinusoids),
    **dict.fromkeys(("q", "k", "v"), projected),
    **dict.fromkeys(("q_heads", "k_heads", "v_heads"), split),
    **dict.fromkeys(("q_norm", "k_norm"), normed),
    "inv_freq": frequency,
    **dict.fromkeys(("query_cos", "query_sin", "key_cos", "key_sin"), waves),
    **dict.fromkeys(("q_rot", "k_rot"), rotated),
    **dict.fromkeys(("present_k", "present_v"), cached),
    **dict.fromkeys(("k_extended", "v_extended"), appended),
}
