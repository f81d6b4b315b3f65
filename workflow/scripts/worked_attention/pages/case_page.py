"""The worked page of one case: the question, what is given, every stage in numbers, and what others make of it."""

from collections.abc import Callable
from decimal import localcontext
from math import prod

from worked_attention.pages import backward, contexts, outputs, projections, scores, weights
from worked_attention.pages.blocks import Cell, Fold, Formula, Part, Printed, Section, Table, Words
from worked_attention.pages.changes import changes
from worked_attention.pages.flow import flow
from worked_attention.pages.numbers import EXACT
from worked_attention.pages.parameters import given, shape_words
from worked_attention.pages.settings import settings
from worked_attention.pages.work import FEATURES, TOKENS, Work
from worked_attention.stages.catalogue import CATALOGUE, WEIGHTS, axes, shape

STEPS: dict[str, Callable[[Work, str], list]] = (
    projections.STEPS | scores.STEPS | weights.STEPS | contexts.STEPS | outputs.STEPS | backward.STEPS
)
TITLES = {
    "projections": "Queries, keys and values",
    "scores": "Scores",
    "weights": "Weights",
    "contexts": "Contexts",
    "outputs": "Output",
    "backward": "Gradients",
}
KINDS = {"plain": "softmax", "plus_one": "softmax-plus-one", "hardmax": "hardmax"}
BEGINNINGS = {
    "x": "the inputs x",
    "qkv": "queries, keys and values",
    "heads": "queries, keys and values of each head",
    "scaled": "scores that are already scaled",
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
            Section("What is given", "given", tuple(given(work, case["arrays"]["parameters"]))),
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
        entry = CATALOGUE[name]
        parts.append(
            Part(
                f"{name}: {entry.formula.replace('^T', 'ᵀ').replace(' * ', ' × ')}",
                (Words(f"Shape {shape_words(work, name)}.", "note"), *STEPS[name](work, name)),
            )
        )
    return Section(TITLES[stage], stage, tuple(parts))


def question(work: Work) -> Section:
    """What is asked, in a sentence and in a formula, and the settings."""
    case, dims = work.case, work.case["dims"]
    heads = f"{case['heads']} heads" if case["heads"] > 1 else "one head"
    shared = (
        f" that share {case['kv_heads']} key and value head{'s' if case['kv_heads'] > 1 else ''}"
        if case["kv_heads"] < case["heads"]
        else ""
    )
    asked = (
        "which mix of the values does each query get" if "contexts" in work.arrays else "how much weight does each query give to each key"
    )
    sequences = f", in each of {dims['B']} sequences" if "B" in dims else ""
    words = f"{count(dims['Lq'], 'query')}, {count(dims['Lk'], 'key')} and {heads}{shared}{sequences}: {asked}?"
    words = f"{words[:1].upper()}{words[1:]} The case starts from {BEGINNINGS[case['begins_at']]}."
    blocks: list = [Words(words), Formula(whole_formula(work))]
    if not work.whole:
        blocks.append(
            Words(f"The case is larger than {TOKENS} tokens by {FEATURES} features, so the page tells the first query and head.", "note")
        )
    if case["dtype"] != "float64":
        blocks.append(Words(f"Every array is stored in {case['dtype']}; what is told are the stored numbers.", "note"))
    if work.whole and "contexts" in work.arrays:
        blocks.append(flow(work))
    rows = tuple((option, (Cell(value),)) for option, value in settings(case))
    return Section(
        "The question", "question", (*blocks, Fold("All settings of the case", (Table("Settings", ("value",), rows, "option"),)))
    )


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
    kind = KINDS[case["softmax"]]
    values = " V" if "contexts" in work.arrays else ""
    last = r" W_O^\top" * ("w_o" in work.arrays) + " + b_O" * ("b_o" in work.arrays)
    return rf"\text{{{kind}}}({scores}){values}" if not last else rf"\text{{concat}}_h(\text{{{kind}}}({scores}){values}){last}"


def count(number: int, word: str) -> str:
    """ "three queries", "one key"."""
    numbers = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
    plural = {"query": "queries", "key": "keys"}[word]
    return f"{numbers.get(number, number)} {word if number == 1 else plural}"


def findings(comparison: dict) -> list[Section]:
    """Printed numbers, and who differs."""
    claims = comparison["claims"]
    wrong = [claim for claim in claims if not claim["agrees"]]
    blocks: list = []
    if claims:
        right = len(claims) - len(wrong)
        said = (
            f"{right} of {len(claims)} printed numbers are right and stand below with a ✓"
            if right
            else f"None of the {len(claims)} printed numbers is right"
        )
        blocks.append(Words(f"{said}." if not wrong or not right else f"{said}; {len(wrong)} are wrong."))
    if wrong:
        rows = []
        for claim in wrong:
            place = f"{claim['array']}[{', '.join(map(str, claim['index']))}]"
            printed = Printed(claim["printed"].replace("-", "−"), claim["rounded"].replace("-", "−"), False)
            link = "#" + "-".join([claim["array"], *map(str, claim["index"])])
            rows.append((place, (Cell("", "", "", (printed,)), Cell(printed.right, link))))
        blocks.append(Table("Printed numbers that are wrong", ("printed", "right"), tuple(rows), "number"))
    if first := comparison["first_divergence"]:
        blocks.append(Words(f"{first['reference']} differs, first in {first['array']} (stage {first['stage']}).", "bad"))
    return [Section("What was found", "found", tuple(blocks))] if blocks else []


def others(comparison: dict) -> Section:
    """Truth and every reference: the array that is farthest off, against its gate."""
    rows = []
    for name, result in comparison["references"].items():
        measured = [(array["max_abs"], key, array) for key, array in result["arrays"].items() if array["max_abs"] is not None]
        cells = [Cell(result["verdict"], "", result["verdict"].replace(" ", "-"))]
        if measured:
            worst, key, array = max(measured, key=lambda entry: entry[0])
            gate = array["gate"] if isinstance(array["gate"], str) else f"{array['gate']:.1e}"
            gate += f" ({array['evidence']})" if array.get("evidence") else ""
            cells += [
                Cell(key),
                Cell(f"{worst:.1e}"),
                Cell(gate),
                Cell(result.get("reason") or f"{len(measured)} array{'s' * (len(measured) > 1)}"),
            ]
        else:
            cells += [Cell("–"), Cell("–"), Cell("–"), Cell(result.get("reason", ""))]
        rows.append((name, tuple(cells)))
    words = Words(
        "The same parameters, computed by others. Truth is no implementation but the exact numbers. Told is the array that is farthest "
        "from ours, by how much, and the difference that is allowed there."
    )
    table = Table("Ours against others", ("verdict", "array", "difference", "allowed", "compared"), tuple(rows), "who")
    return Section("Against others", "others", (words, table) if rows else (Words("This suite is compared with nobody."),))


def shapes(work: Work) -> Section:
    """Every array of the case with its shape and its meaning."""
    dims, rows = work.case["dims"], []
    for stage, names in work.case["arrays"].items():
        for name in names:
            array = work.arrays[name]
            symbols = ", ".join(axes(name, dims)[-array.ndim :])
            cells = (Cell(stage), Cell(f"[{symbols}]"), Cell(f"[{', '.join(map(str, array.shape))}]"), Cell(CATALOGUE[name].formula))
            rows.append((name, cells))
    sizes = ", ".join(f"{axis} = {size}" for axis, size in dims.items())
    words = f"L counts tokens (q of queries, k of keys, n of new keys, p of past ones, c of both), d widths, H heads: {sizes}."
    return Section("Shapes", "shapes", (Words(words), Table("Every array", ("stage", "axes", "shape", "meaning"), tuple(rows), "array")))


def cost(work: Work) -> Section:
    """Parameters and multiply-adds, as arithmetic."""
    case, dims = work.case, work.case["dims"]
    blocks: list = []
    if case["parameter_count"]:
        blocks.append(Words(f"Parameters of the layer: {parameter_arithmetic(case)} = {case['parameter_count']:,}."))
    rows = []
    for stage, total in case["multiply_adds"].items():
        if total:
            told = arithmetic(case, stage)
            rows.append((stage, (Cell(told), Cell(f"{total:,}"))))
    if rows:
        blocks.append(Table("Multiply-adds", ("arithmetic", "count"), tuple(rows), "stage"))
    exponentials = dims.get("B", 1) * dims["H"] * dims["Lq"] * dims["Lk"]
    size = sum(case["bytes"].values())
    blocks.append(
        Words(f"The softmax takes {exponentials:,} exponentials, one for each head, query and key. All arrays take {size:,} bytes.")
    )
    return Section("Parameters and cost", "cost", tuple(blocks))


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
    dims = case["dims"]
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
        "backward": "2 × all of the above",
    }
    return told[stage]


def files(work: Work) -> Section:
    """Where the arrays of the case lie, beside this page."""
    case = work.case
    rows = [("case.json", (Cell("the resolved case", f"../parameters/{case['name']}/case.json"),))]
    for stage, names in case["arrays"].items():
        if names:
            rows.append((f"{stage}/{case['name']}/", (Cell(f"{', '.join(names)}", f"../{stage}/{case['name']}/stage.json"),)))
    rows.append(("comparison", (Cell("every reference, array by array", f"../comparison/{case['name']}.json"),)))
    return Section("Files", "files", (Table("Files of this case", ("holds",), tuple(rows), "file"),))
