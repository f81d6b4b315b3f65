"""The worked page of one case: the question, what is given, every stage in numbers, and what others make of it."""

from collections.abc import Callable
from decimal import localcontext
from math import prod

from worked_attention.pages import backward, contexts, outputs, projections, scores, weights
from worked_attention.pages.blocks import Cell, Fold, Formula, Part, Printed, Section, Table, Words
from worked_attention.pages.changes import changes
from worked_attention.pages.flow import flow
from worked_attention.pages.language import N_, _, capital, ngettext
from worked_attention.pages.numbers import EXACT
from worked_attention.pages.parameters import formula, given, shape_words
from worked_attention.pages.settings import settings
from worked_attention.pages.verdicts import REFERENCES, evidence
from worked_attention.pages.work import FEATURES, TOKENS, Work
from worked_attention.stages.catalogue import WEIGHTS, axes, shape
from worked_attention.stages.rows import partial, whole_dims

STEPS: dict[str, Callable[[Work, str], list]] = (
    projections.STEPS | scores.STEPS | weights.STEPS | contexts.STEPS | outputs.STEPS | backward.STEPS
)
TITLES = {
    "projections": N_("Queries, keys and values"),
    "scores": N_("Scores"),
    "weights": N_("Weights"),
    "contexts": N_("Contexts"),
    "outputs": N_("Output"),
    "backward": N_("Gradients"),
}
BEGINNINGS = {
    "x": N_(" The case starts from the inputs x."),
    "qkv": N_(" The case starts from queries, keys and values."),
    "heads": N_(" The case starts from queries, keys and values of each head."),
    "scaled": N_(" The case starts from scores that are already scaled."),
}


def case_sections(work: Work, comparison: dict, base: Work | None = None) -> list[Section]:
    """The chapters of a case's page.

    work: the case laid open. comparison: as in comparison/{case}.json. base: the case that it extends, if it does.
    Raises LookupError if the case has an array that no step tells, ValueError if a step finds the arrays at odds with what it says.
    """
    case = work.case
    with localcontext(EXACT):
        stages = [stage_section(work, stage) for stage in TITLES if case["arrays"][stage]]
        return [
            question(work),
            *findings(comparison),
            *([changes(work, base)] if base else []),
            Section(_("What is given"), "given", tuple(given(work, case["arrays"]["parameters"]))),
            *stages,
            others(comparison),
            shapes(work),
            cost(work),
            files(work),
        ]


def printed_numbers(claims: list[dict]) -> dict:
    """{(array, index): what sources print there}."""
    found: dict = {}
    for claim in claims:
        said = Printed(claim["printed"].replace("-", "−"), claim["rounded"].replace("-", "−"), claim["agrees"])
        key = claim["array"], tuple(claim["index"])
        found[key] = (*found.get(key, ()), said)
    return found


def stage_section(work: Work, stage: str) -> Section:
    """One stage: every array that the case has of it, told by its step."""
    parts = []
    for name in work.case["arrays"][stage]:
        if name not in STEPS:
            raise LookupError(
                f"{work.case['suite']}/{work.case['name']}: no page tells how {name} is made; add its step to pages/{stage}.py"
            )
        shape_of = Words(_("Shape {shape}.").format(shape=shape_words(work, name)), "note")
        parts.append(Part(heading(name), (shape_of, *STEPS[name](work, name))))
    return Section(_(TITLES[stage]), stage, tuple(parts))


def heading(name: str) -> str:
    """An array and its formula, as a heading."""
    return f"{name}: {formula(name).replace('^T', 'ᵀ').replace(' * ', ' × ')}"


def question(work: Work) -> Section:
    """What is asked, in a sentence and in a formula, and the settings."""
    case, dims = work.case, whole_dims(work.case)
    heads = count(case["heads"], ngettext("{n} head", "{n} heads", case["heads"]))
    if case["kv_heads"] < case["heads"]:
        shared = ngettext("{heads} that share {n} key and value head", "{heads} that share {n} key and value heads", case["kv_heads"])
        heads = shared.format(heads=heads, n=case["kv_heads"])
    if "B" in dims:
        heads = _("{heads}, in each of {n} sequences").format(heads=heads, n=dims["B"])
    asked = (
        _("{queries}, {keys} and {heads}: which mix of the values does each query get?")
        if "contexts" in work.arrays
        else _("{queries}, {keys} and {heads}: how much weight does each query give to each key?")
    )
    queries = count(dims["Lq"], ngettext("{n} query", "{n} queries", dims["Lq"]))
    keys = count(dims["Lk"], ngettext("{n} key", "{n} keys", dims["Lk"]))
    words = asked.format(queries=queries, keys=keys, heads=heads)
    blocks: list = [Words(capital(words) + _(BEGINNINGS[case["begins_at"]])), Formula(whole_formula(work))]
    if partial(case):
        words = _(
            "Of the {of:,} queries of this large case, the exact numbers, the references and this page look at {n}, and nothing is said of "
            "the others. Counted from 0 they are {numbers}; the comparison's file says why these."
        )
        numbers = case["rows"]["numbers"]
        blocks.append(Words(words.format(of=dims["Lq"], n=len(numbers), numbers=_(", ").join(map(str, numbers))), "note"))
    if not work.whole:
        words = _("The case is larger than {tokens} tokens by {features} features, so the page tells the first query and head.")
        blocks.append(Words(words.format(tokens=TOKENS, features=FEATURES), "note"))
    if case["dtype"] != "float64":
        words = _("Every array is stored in {dtype}; what is told are the stored numbers.")
        blocks.append(Words(words.format(dtype=case["dtype"]), "note"))
    if work.whole and "contexts" in work.arrays:
        blocks.append(flow(work))
    if case["source"]:
        blocks.append(Words(_("From: {source}.").format(source=case["source"]), "note"))
    rows = tuple((option, (Cell(value),)) for option, value in settings(case))
    table = Table(_("Settings"), (_("value"),), rows, _("option"))
    return Section(_("The question"), "question", (*blocks, Fold(_("All settings of the case"), (table,))))


def whole_formula(work: Work) -> str:
    """The case in one formula: what it scales, adds, masks and multiplies."""
    case = work.case
    product = {
        "none": r"Q K^\top",
        "1/sqrt(d_k)": r"\frac{Q K^\top}{\sqrt{d_k}}",
        "1/d_k": r"\frac{Q K^\top}{d_k}",
        "1/sqrt(d_model)": r"\frac{Q K^\top}{\sqrt{d_{model}}}",
    }
    scores = product[case["scale"]] if isinstance(case["scale"], str) else r"s \; Q K^\top"
    scores = "S" if case["begins_at"] == "scaled" else scores
    scores = rf"c \cdot \tanh ({scores} / c)" if case["softcap"] else scores
    scores += r" + \text{bias}" * ("bias" in work.arrays) + r", \text{masked}" * ("keep" in work.arrays)
    kind = weights.NAMES[case["softmax"]]
    values = " V" if "contexts" in work.arrays else ""
    last = r" W_O^\top" * ("w_o" in work.arrays) + " + b_O" * ("b_o" in work.arrays)
    return rf"{kind}({scores}){values}" if not last else rf"\text{{concat}}_h({kind}({scores}){values}){last}"


NUMBERS = {1: N_("one"), 2: N_("two"), 3: N_("three"), 4: N_("four"), 5: N_("five"), 6: N_("six")}


def count(number: int, words: str) -> str:
    """ "three queries", "one key"; `words` has a place {n} for the number."""
    return words.format(n=_(NUMBERS[number]) if number in NUMBERS else number)


def findings(comparison: dict) -> list[Section]:
    """Printed numbers, and who differs."""
    claims = comparison["claims"]
    wrong = [claim for claim in claims if not claim["agrees"]]
    blocks: list = []
    if claims:
        right = len(claims) - len(wrong)
        if not right:
            said = _("None of the {all} printed numbers is right.")
        elif not wrong:
            said = _("{right} of {all} printed numbers are right and stand below with a ✓.")
        else:
            said = _("{right} of {all} printed numbers are right and stand below with a ✓; {wrong} are wrong.")
        blocks.append(Words(said.format(right=right, all=len(claims), wrong=len(wrong))))
    if wrong:
        rows = []
        for claim in wrong:
            place = f"{claim['array']}[{', '.join(map(str, claim['index']))}]"
            printed = Printed(claim["printed"].replace("-", "−"), claim["rounded"].replace("-", "−"), False)
            link = "#" + "-".join([claim["array"], *map(str, claim["index"])])
            rows.append((place, (Cell("", "", "", (printed,)), Cell(printed.right, link))))
        blocks.append(Table(_("Printed numbers that are wrong"), (_("printed"), _("right")), tuple(rows), _("number")))
    if first := comparison["first_divergence"]:
        blocks.append(Words(_("{reference} differs, first in {array} (stage {stage}).").format(**first), "bad"))
    return [Section(_("What was found"), "found", tuple(blocks))] if blocks else []


def others(comparison: dict) -> Section:
    """Truth and every reference: the array that is farthest off, against its gate."""
    rows = []
    for name, result in comparison["references"].items():
        measured = [(array["max_abs"], key, array) for key, array in result["arrays"].items() if array["max_abs"] is not None]
        cells = [Cell(_(REFERENCES[result["verdict"]]), "", result["verdict"].replace(" ", "-"))]
        if measured:
            worst, key, array = max(measured, key=lambda entry: entry[0])
            gate = array["gate"] if isinstance(array["gate"], str) else f"{array['gate']:.1e}"
            gate += f" ({evidence(array['evidence'])})" if array.get("evidence") else ""
            cells += [
                Cell(key),
                Cell(f"{worst:.1e}"),
                Cell(gate),
                Cell(result.get("reason") or ngettext("{n} array", "{n} arrays", len(measured)).format(n=len(measured))),
            ]
        else:
            cells += [Cell("–"), Cell("–"), Cell("–"), Cell(result.get("reason", ""))]
        rows.append((name, tuple(cells)))
    words = _(
        "The same parameters, computed by others. Truth is no implementation but the exact numbers. Told is the array that is farthest "
        "from ours, by how much, and the difference that is allowed there."
    )
    columns = _("verdict"), _("array"), _("difference"), _("allowed"), _("compared")
    table = Table(_("Ours against others"), columns, tuple(rows), _("who"))
    alone = (Words(_("This suite is compared with nobody.")),)
    return Section(_("Against others"), "others", (Words(words), table) if rows else alone)


def shapes(work: Work) -> Section:
    """Every array of the case with its shape and its meaning."""
    dims, rows = whole_dims(work.case), []
    for stage, names in work.case["arrays"].items():
        for name in names:
            array = work.arrays[name]
            symbols = axes(name, dims)[-array.ndim :]
            sizes = [dims[a] if a == "Lq" and n > 1 else n for a, n in zip(symbols, array.shape, strict=True)]
            cells = (Cell(stage), Cell(f"[{', '.join(symbols)}]"), Cell(f"[{', '.join(map(str, sizes))}]"), Cell(formula(name)))
            rows.append((name, cells))
    sizes = ", ".join(f"{axis} = {size}" for axis, size in dims.items())
    words = _("L counts tokens (q of queries, k of keys, n of new keys, p of past ones, c of both), d widths, H heads: {sizes}.")
    table = Table(_("Every array"), (_("stage"), _("axes"), _("shape"), _("meaning")), tuple(rows), _("array"))
    return Section(_("Shapes"), "shapes", (Words(words.format(sizes=sizes)), table))


def cost(work: Work) -> Section:
    """Parameters and multiply-adds, as arithmetic."""
    case, dims = work.case, whole_dims(work.case)
    blocks: list = []
    if case["parameter_count"]:
        words = _("Parameters of the layer: {arithmetic} = {count:,}.")
        blocks.append(Words(words.format(arithmetic=parameter_arithmetic(case), count=case["parameter_count"])))
    rows = []
    for stage, total in case["multiply_adds"].items():
        if total:
            told = arithmetic(case, stage)
            rows.append((stage, (Cell(told), Cell(f"{total:,}"))))
    if rows:
        blocks.append(Table(_("Multiply-adds"), (_("arithmetic"), _("count")), tuple(rows), _("stage")))
    scored = dims.get("B", 1) * dims["H"] * dims["Lq"] * dims["Lk"]
    size = sum(case["bytes"].values())
    blocks.append(Words(_(weights.COSTS[case["softmax"]]).format(count=scored, size=size)))
    return Section(_("Parameters and cost"), "cost", tuple(blocks))


def parameter_arithmetic(case: dict) -> str:
    """4 × (16 + 4): weights with their biases, equal ones together."""
    there = [name for name in case["arrays"]["parameters"] if name in WEIGHTS]
    groups: dict[str, int] = {}
    for name in [name for name in there if name.startswith("w_")] + [name for name in there if name.startswith("g_")]:
        bias = name.replace("w_", "b_")
        sizes = [prod(shape(part, case["dims"])) for part in ([name, bias] if bias != name and bias in there else [name])]
        told = " + ".join(map(str, sizes))
        groups[told] = groups.get(told, 0) + 1
    terms = [
        f"{times} × ({told})" if times > 1 and "+" in told else f"{times} × {told}" if times > 1 else told for told, times in groups.items()
    ]
    if sum(prod(shape(name, case["dims"])) for name in there) != case["parameter_count"]:
        raise ValueError(f"{case['name']}: the parameters are not {case['parameter_count']}")
    return " + ".join(terms)


def arithmetic(case: dict, stage: str) -> str:
    """The multiply-adds of a stage as a product of sizes."""
    dims = whole_dims(case)
    batch = f"{dims['B']} × " if "B" in dims else ""
    made = {name for names in case["arrays"].values() for name in names}

    def product(weight: str, tokens: str) -> str:
        rows, columns = shape(weight, dims)
        return f"{batch}{dims[tokens]} × {rows} × {columns}"

    told = {
        "projections": " + ".join(product(w, t) for w, t in (("w_q", "Lq"), ("w_k", "Ln"), ("w_v", "Ln")) if w in made),
        "scores": f"{batch}{dims['H']} × {dims['Lq']} × {dims['Lk']} × {dims.get('d_k', 0)}",
        "contexts": f"{batch}{dims['H']} × {dims['Lq']} × {dims['Lk']} × {dims.get('d_v', 0)}",
        "outputs": product("w_o", "Lq") if "w_o" in made else "",
        "backward": _("2 × all of the above"),
    }
    return told[stage]


def files(work: Work) -> Section:
    """Where the arrays of the case lie, beside this page."""
    case = work.case
    rows = [("case.json", (Cell(_("the resolved case"), f"../parameters/{case['name']}/case.json"),))]
    for stage, names in case["arrays"].items():
        if names:
            rows.append((f"{stage}/{case['name']}/", (Cell(f"{', '.join(names)}", f"../{stage}/{case['name']}/stage.json"),)))
    rows.append(("comparison", (Cell(_("every reference, array by array"), f"../comparison/{case['name']}.json"),)))
    return Section(_("Files"), "files", (Table(_("Files of this case"), (_("holds"),), tuple(rows), _("file")),))
