"""Worksheets: an honest hand calculation is right, whatever it rounds on the way; a wrong one is found at its cell, and named."""

import csv
import json
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, contents, run
from hypothesis import given, settings
from hypothesis import strategies as st
from shipped import LIMITS, shipped
from strategies import resolved
from test_language import TRANSLATED, left_in_english
from test_pages import SUITES, Text, written

from worked_attention.cases.strict_yaml import Problems
from worked_attention.cases.words import harmless
from worked_attention.pages.language import speak
from worked_attention.pages.markdown import markdown
from worked_attention.pages.render import renderer
from worked_attention.stages.parameters import friendly
from worked_attention.worksheets import answers
from worked_attention.worksheets.answers import Unreadable
from worked_attention.worksheets.grading import Grade, grade
from worked_attention.worksheets.making import again, named, record, sheets
from worked_attention.worksheets.paper import paper, title
from worked_attention.worksheets.sheet import Sheet, Unsuited

OPTIONS = {"blank": ["scores", "weights", "contexts", "outputs"], "queries": 1, "seed": 0, "decimals": 1}
ALL = OPTIONS | {"blank": ["projections", *OPTIONS["blank"]], "queries": 9}
GOLDEN = json.loads((ROOT / "tests" / "data" / "handworked.json").read_text("utf-8"))
Round = Callable[[Decimal], Decimal]


@cache
def case_of(key: str) -> dict:
    suite, name = key.split("/")
    return shipped(suite)["cases"][name]


def sheet_of(key: str = "handworked/two_heads", count: int = 0, digits: int = 4, **options) -> Sheet:
    """The last of the worksheets of a case."""
    return list(sheets(case_of(key), SUITES, count, OPTIONS | options, digits))[-1]


def filled(sheet: Sheet, arrays: dict) -> dict[str, Decimal]:
    """The answers that have the numbers of `arrays`, nested lists by name."""
    return {cell: Decimal(str(np.array(arrays[name], object)[index])) for cell, (name, index) in sheet.cells.items()}


def key_of(sheet: Sheet) -> dict[str, Decimal]:
    """The answers that the key prints."""
    return {cell: sheet.work.number(name, index).printed for cell, (name, index) in sheet.cells.items()}


# Somebody's calculation by hand, in decimals: x W^T + b, heads side by side, softmax, W_O; nothing here is from the code under test


def by_hand(given: dict, heads: int, digits: int, inner: bool, shifted: bool, multiplied: bool, carried: bool) -> dict[str, list]:
    """Every array of plain attention as somebody works it out who writes down `digits` decimals.

    given: x, w_q, ... as nested lists of texts. inner: round products, exponentials and sums as well. shifted: take the largest score away
    first. multiplied: by 1/sqrt(d_k), instead of dividing by the root. carried: go on with what is written, and not with more digits.
    """
    unit = Decimal(1).scaleb(-digits)
    written: Round = lambda x: x.quantize(unit, ROUND_HALF_UP)  # noqa: E731
    on: Round = written if carried else lambda x: x
    within: Round = written if inner else lambda x: x
    d = {
        name: [[Decimal(n) for n in row] for row in rows] if isinstance(rows[0], list) else [Decimal(n) for n in rows]
        for name, rows in given.items()
    }

    def dot(a: list, b: list) -> Decimal:
        return sum((within(x * y) for x, y in zip(a, b, strict=True)), Decimal(0))

    def linear(x: list, name: str) -> list:
        return [[on(dot(row, w) + b) for w, b in zip(d[f"w_{name}"], d[f"b_{name}"], strict=True)] for row in x]

    q, k, v = (linear(d["x"], name) for name in "qkv")
    width = len(q[0]) // heads
    part = lambda x, h: [row[h * width : (h + 1) * width] for row in x]  # noqa: E731
    root = within(Decimal(width).sqrt())
    found: dict[str, list] = {"q": q, "k": k, "v": v, "qk": [], "scaled": [], "weights": [], "contexts": []}
    for h in range(heads):
        qk = [[on(dot(a, b)) for b in part(k, h)] for a in part(q, h)]
        scaled = [[on(s * within(1 / Decimal(width).sqrt()) if multiplied else s / root) for s in row] for row in qk]
        weights = []
        for row in scaled:
            e = [within((s - (max(row) if shifted else 0)).exp()) for s in row]
            weights.append([on(x / within(sum(e))) for x in e])
        columns = list(zip(*part(v, h), strict=True))
        for name, made in zip(
            ("qk", "scaled", "weights", "contexts"), (qk, scaled, weights, [[on(dot(w, c)) for c in columns] for w in weights]), strict=True
        ):
            found[name].append(made)
    concat = [sum((found["contexts"][h][i] for h in range(heads)), []) for i in range(len(q))]
    found["output"] = linear(concat, "o")
    return {name: np.vectorize(written)(np.array(array, object)).tolist() for name, array in found.items()}


def texts(sheet: Sheet) -> dict[str, list]:
    """The parameters of a sheet's case as decimals in text."""
    return {name: np.vectorize(repr)(sheet.arrays[name].astype(object)).tolist() for name in sheet.case["arrays"]["parameters"]}


ways = st.fixed_dictionaries({name: st.booleans() for name in ("inner", "shifted", "multiplied", "carried")})


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    heads=st.sampled_from([1, 2]),
    tokens=st.integers(2, 4),
    width=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    decimals=st.integers(1, 2),
    digits=st.integers(3, 6),
    way=ways,
)
def test_an_honest_calculation_is_right(heads, tokens, width, seed, decimals, digits, way):
    """Whatever is rounded on the way: each stage is right, and no number is farther from the key than its second tolerance."""
    names = ("x", "w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o")
    raw = {"heads": heads, "sizes": {"Lq": tokens, "d_model": heads * width}, "parameters": {name: {"grid": {}} for name in names}}
    (sheet,) = sheets(resolved(raw), Path(), 1, ALL | {"seed": seed, "decimals": decimals}, digits)
    arrays = by_hand(texts(sheet), heads, digits, **way)
    found = grade(sheet, filled(sheet, arrays))
    assert found.verdict == "right", found
    for name, (_, whole) in sheet.tolerances.items():
        off = np.abs(np.array(arrays[name], float) - sheet.right[name])
        assert (off <= whole + 0.5 * 10.0**-digits + 1e-9).all(), name


def test_the_article_is_right_at_its_four_decimals():
    """The numbers that the article prints for its first query, and those of the second head rounded as it rounds."""
    four = lambda x: [four(y) for y in x] if isinstance(x, list) else f"{x:.4f}"  # noqa: E731
    printed, heads = GOLDEN["printed_first_query"], GOLDEN["per_head"]
    arrays = {"qk": "raw", "scaled": "scaled", "weights": "weights", "contexts": "context"}
    arrays = {ours: [four(head[theirs]) for head in heads] for ours, theirs in arrays.items()} | {"output": four(GOLDEN["output"])}
    assert arrays["qk"][0][0] == four(printed["head0_raw"]) and arrays["weights"][0][0] == ["0.2831", "0.4172", "0.2997"]
    sheet = sheet_of()
    found = grade(sheet, filled(sheet, arrays))
    assert found.verdict == "right" and found.count("right") == len(sheet.cells) == 26


# Fresh numbers


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shape=st.lists(st.integers(1, 8), min_size=1, max_size=4), seed=st.integers(0, 2**40), decimals=st.integers(1, 3))
def test_friendly_numbers_keep_what_is_promised(shape, seed, decimals):
    rows = shape[-2] if len(shape) > 1 else 1
    if 2 * rows > (2 * (10**decimals - 1)) ** shape[-1]:
        return  # which the loader refuses
    array = friendly(tuple(shape), seed, decimals)
    assert array.shape == tuple(shape) and (array == friendly(tuple(shape), seed, decimals)).all()
    assert (array != 0).all() and (np.abs(array) < 1).all()
    assert all(-Decimal(repr(x)).as_tuple().exponent <= decimals for x in array.ravel().tolist())
    for matrix in array.reshape(-1, rows, shape[-1]):
        assert len({tuple(row) for row in matrix}) == rows


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("sizes: {Lq: 12, d_model: 1}, parameters: {x: {friendly: {seed: 1}}}", "cannot draw 12 rows that all differ from 18 kinds"),
        ("mask: {keep: {friendly: {seed: 1}}}, parameters: {x: [[1]]}", "mask.keep.friendly: draws numbers"),
        ("parameters: {x: {friendly: {decimals: 1}}}, sizes: {Lq: 1, d_model: 1}", "seed"),
        ("parameters: {x: {friendly: {seed: 1, decimals: 0}}}, sizes: {Lq: 1, d_model: 1}", "decimals: is 0"),
    ],
)
def test_a_wrong_friendly_fill_is_refused(case: str, words: str, tmp_path: Path):
    with pytest.raises(Problems, match=words):
        written(tmp_path, f"  a: {{{case}}}\n")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(tokens=st.integers(2, 6), heads=st.sampled_from([1, 2]), seed=st.integers(0, 10**6), causal=st.booleans())
def test_fresh_cases_are_neither_flat_nor_saturated(tokens, heads, seed, causal):
    """Of each query, computed here once more: scores differ, the largest weight is at most 0.9 and at least 1.05 times the smallest."""
    raw = {"heads": heads, "sizes": {"Lq": tokens, "d_model": 4}, "parameters": {n: {"grid": {}} for n in ("x", "w_q", "w_k", "w_v")}}
    raw |= {"mask": {"causal": "top_left"}} if causal else {}
    (sheet,) = sheets(resolved(raw), Path(), 1, OPTIONS | {"seed": seed}, 4)
    x, w_q, w_k = (sheet.arrays[name] for name in ("x", "w_q", "w_k"))
    width = 4 // heads
    for h in range(heads):
        columns = slice(h * width, (h + 1) * width)
        scores = (x @ w_q.T)[:, columns] @ (x @ w_k.T)[:, columns].T / width**0.5
        for i, row in enumerate(scores):
            row = row[: i + 1] if causal else row
            e = np.exp(row)
            if len(row) > 1:
                assert np.diff(np.sort(row)).min() >= 0.001 - 1e-12
                assert e.max() / e.min() >= 1.05 - 1e-12 and e.max() / e.sum() <= 0.9 + 1e-12


def test_thirty_sheets_differ_and_are_made_again():
    made = list(sheets(case_of("handworked/two_heads"), SUITES, 30, OPTIONS, 4))
    assert len({sheet.code for sheet in made}) == 30 and len({sheet.arrays["x"].tobytes() for sheet in made}) == 30
    assert len({sheet.seed for sheet in made}) == 30 and [sheet.number for sheet in made] == list(range(1, 31))
    recorded = json.loads(json.dumps(record(made, case_of("handworked/two_heads"), OPTIONS)))
    assert again(recorded, 17, SUITES).identity == made[16].identity
    with pytest.raises(Unsuited, match="no sheet 31"):
        again(recorded, 31, SUITES)
    recorded["case"]["heads"] = recorded["case"]["kv_heads"] = 1
    recorded["sheets"][0]["seed"] = 99
    with pytest.raises(Unsuited, match="numbers are others"):
        again(recorded, 1, SUITES)


def test_a_saturated_draw_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    """Seeds whose numbers would not be pleasant are skipped, and where none is, it is said."""
    case = resolved({"scale": 400, "sizes": {"Lq": 3, "d_model": 4}, "parameters": {"x": {"grid": {}}}})
    with pytest.raises(Unsuited, match="none of 1,000 seeds"):
        next(sheets(case, Path(), 1, OPTIONS, 4))


# What people get wrong


def wrong(sheet: Sheet, **changed: Callable) -> Grade:
    """The grade of a calculation that goes wrong in one array, and on from there. changed: {array: function of all arrays so far}."""
    hand, written = sheet.hand(), {}
    for name in sheet.asked:
        value = hand.right(name)[0]
        value = changed[name](hand, value) if name in changed else value
        written[name] = np.round(value, sheet.digits)
        hand.take(name, written[name], np.zeros(value.shape))
    return grade(sheet, filled(sheet, written))


@pytest.mark.parametrize(
    ("array", "how", "words"),
    [
        ("scaled", lambda hand, right: hand["qk"].value, "scale"),
        ("scaled", lambda hand, right: hand["qk"].value / 2, "d_model"),
        ("weights", lambda hand, right: np.exp(hand["scaled"].value) / np.exp(hand["scaled"].value).sum(-2, keepdims=True), "queries"),
        ("weights", lambda hand, right: np.exp(hand["scaled"].value) / np.exp(hand["scaled"].value).sum(0, keepdims=True), "heads"),
        ("q", lambda hand, right: hand["x"].value @ hand["w_q"].value + hand["b_q"].value, "X times W where"),
        ("v", lambda hand, right: right - hand["b_v"].value, "b"),
        ("output", lambda hand, right: hand["concat"].value @ hand["w_o"].value + hand["b_o"].value, "transposed"),
    ],
)
def test_a_known_mistake_is_named_at_its_stage(array: str, how: Callable, words: str):
    sheet = sheet_of(**ALL)
    found = wrong(sheet, **{array: how})
    assert found.verdict == "wrong" and found.first.startswith(array), found
    assert words in found.mistake, found.mistake
    later = sheet.asked[sheet.asked.index(array) + 1 :]
    assert all(word == "right" for cell, word in found.cells.items() if sheet.cells[cell][0] in later), "only its own stage is blamed"


def test_transposed_heads_are_named():
    """Each context's heads interleaved instead of side by side, so that only the output is wrong."""
    sheet = sheet_of(queries=3)

    def interleaved(hand, right):
        z = np.moveaxis(hand["contexts"].value, 0, -1).reshape(3, 4)
        return z @ hand["w_o"].value.T + hand["b_o"].value

    found = wrong(sheet, output=interleaved)
    assert found.verdict == "wrong" and found.stage == "outputs" and "heads" in found.mistake, found


def test_forgotten_scaling_is_named_for_one_query_and_with_gaps():
    sheet = sheet_of()
    right = key_of(sheet)
    answered = right | {f"scaled{i}": right[f"qk{i}"] for i in range(1, 7)}
    del answered["scaled4"], answered["qk2"]
    found = grade(sheet, answered)
    assert (found.verdict, found.first) == ("wrong", "scaled1") and "scale" in found.mistake
    assert found.cells["scaled4"] == found.cells["qk2"] == "not answered"


@pytest.mark.parametrize("cell", ["qk3", "scaled6", "weights2", "contexts4", "output1"])
@pytest.mark.parametrize("step", ["0.001", "-0.01", "0.1"])
def test_one_wrong_digit_is_found_at_its_cell(cell: str, step: str):
    sheet = sheet_of()
    right = key_of(sheet)
    found = grade(sheet, right | {cell: right[cell] + Decimal(step)})
    assert found.verdict == "wrong" and found.first == cell and found.mistake == ""
    assert abs(float(found.written) - found.right) == pytest.approx(abs(float(step)), abs=1e-4)


def test_a_product_that_is_exact_may_not_be_off_at_all():
    sheet = sheet_of()
    right = key_of(sheet)
    assert grade(sheet, right | {"qk1": right["qk1"] + Decimal("0.0001")}).first == "qk1"
    assert grade(sheet, right | {"weights1": right["weights1"] + Decimal("0.0001")}).verdict == "right"


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("number", ["0", "0.25", "0.3333", "1", "-1"])
def test_the_same_number_everywhere_is_never_right(count: int, number: str):
    sheet = sheet_of(count=count)
    assert grade(sheet, dict.fromkeys(sheet.cells, Decimal(number))).verdict == "wrong"


def test_what_is_not_answered_is_told_as_that():
    sheet = sheet_of()
    right = key_of(sheet)
    assert grade(sheet, {}).verdict == "blank" and set(grade(sheet, {}).cells.values()) == {"not answered"}
    half = dict(list(right.items())[:13])
    found = grade(sheet, half)
    assert (found.verdict, found.count("right"), found.count("not answered")) == ("unfinished", 13, 13)
    assert grade(sheet, right).verdict == "right"


# What there are no worksheets of


@pytest.mark.parametrize(
    ("case", "digits", "words"),
    [
        ("dtype: float32, parameters: {x: [[1, 2], [3, 5]]}", 4, "float32"),
        ("sizes: {Lq: 9, d_model: 2}, parameters: {x: {grid: {}}}", 4, "too large for a page"),
        ("parameters: {x: [[1]]}", 4, "all alike"),
        ("parameters: {x: [[0.2, 0.1], [0.3, -0.1]]}", 1, "ask for more with looks={digits: 3}"),
        ("mask: {block: [[1, 1], [1, 1]]}, parameters: {x: [[1, 2], [3, 4]]}", 4, "see no key"),
        ("parameters: {q: [[1]], k: [[1]], v: [[1]]}, scale: none, softmax: hardmax", 4, "all alike"),
        ("scale: none, parameters: {x: [[2000, 1], [1, 1]]}", 4, "nobody writes down"),
    ],
)
def test_what_cannot_be_worked_by_hand_is_refused(case: str, digits: int, words: str, tmp_path: Path):
    (found,) = written(tmp_path, f"  a: {{{case}}}\n").values()
    with pytest.raises(Unsuited, match=words):
        list(sheets(found, tmp_path, 0, OPTIONS | {"blank": ["scores", "weights"]}, digits))


@pytest.mark.parametrize(
    ("key", "words"),
    [("handworked", "suite/case"), ("handword/x", "did you mean handworked"), ("handworked/two_head", "did you mean two_heads")],
)
def test_a_case_that_is_not_there(key: str, words: str):
    with pytest.raises(Unsuited, match=words):
        named(key, SUITES, LIMITS)


# Pages


def pages_of(sheet: Sheet, key: bool) -> tuple[str, str]:
    sections = paper(sheet, key)
    render = renderer(str(ROOT / "workflow" / "report" / "worksheet.html.jinja2"))
    heading = title(sheet, key)
    return render(papers=[(sheet, heading, sections)], key=key), markdown(heading, sheet.identity, sections)


SHOWN = [
    "handworked/two_heads",
    "masks/causal_top_left",
    "scores/softcap_by_hand",
    "positions/rotary_half",
    "softmax/dropout",
    "handworked/batched",
    "heads/grouped",
]


@pytest.mark.parametrize("key", SHOWN)
@pytest.mark.parametrize("options", [OPTIONS, ALL], ids=["first query", "all"])
def test_a_sheet_has_a_box_for_each_number_and_its_key_the_number(key: str, options: dict):
    sheet = sheet_of(key, **options)
    (page, twin), (solved, solved_twin) = pages_of(sheet, False), pages_of(sheet, True)
    assert page.count('<td class="box">') == solved.count('<td class="box">') == twin.count("\\_" * 8) == len(sheet.cells)
    assert not Text(page).links and not Text(page).lines, "nothing of the working"
    for cell, (name, index) in sheet.cells.items():
        text = sheet.work.number(name, index).text
        assert f'<td class="box"><small>{cell}</small> </td>' in page
        assert f"<small>{cell}</small> " in solved and f"{cell}: {text}".replace("−", "−") in solved_twin.replace("\\", ""), (cell, text)
    links = [link[1:] for link in Text(solved).links]
    assert links and set(links) <= set(Text(solved).ids)


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_sheet_in_another_language_leaves_nothing_in_english(language: str):
    sheet = sheet_of(**ALL)
    english = pages_of(sheet, True)[0]
    try:
        speak(language)
        pages, blank = [pages_of(sheet, key) for key in (False, True)], answers.blank(sheet)
    finally:
        speak("en")
    for page in pages:
        assert not left_in_english(language, page, sheet.case, {"two_heads": "handworked", "code": sheet.code}), language
    assert "your name" not in blank and len(pages[1][0]) != len(english)


def test_the_page_says_how_far_an_answer_may_be_off():
    page, _ = pages_of(sheet_of(), True)
    words = " ".join(Text(page).words)
    assert "0: nothing is rounded" in words and "0.00069" in words


# Answer sheets


def answered(sheet: Sheet, tmp_path: Path, change: Callable[[str], str] = lambda text: text, encoding: str = "utf-8") -> Path:
    """The answer sheet of `sheet`, filled in with the key, as a file, changed."""
    right = key_of(sheet)
    rows = list(csv.reader(StringIO(answers.blank(sheet).removeprefix("\N{BYTE ORDER MARK}"))))
    rows = [[cell, what, format(right[cell], "f") if cell in right else answer] for cell, what, answer in rows]
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path = tmp_path / "anna.csv"
    path.write_bytes(change(text.getvalue()).encode(encoding))
    return path


def semicolons(text: str) -> str:
    out = StringIO()
    csv.writer(out, delimiter=";", lineterminator="\r\n").writerows([[*row, ""] for row in csv.reader(StringIO(text))])
    return "\N{BYTE ORDER MARK}" + out.getvalue() + ";;;\r\n"


@pytest.mark.parametrize(
    "change", [lambda text: text, semicolons, lambda text: text.replace("-", "−"), lambda text: text.replace(",0.", ", .")]
)
def test_an_answer_sheet_that_a_spreadsheet_saved_is_read(change: Callable, tmp_path: Path):
    sheet = sheet_of()
    found = answers.read(answered(sheet, tmp_path, change))
    assert found.place == ("handworked/two_heads", 1)
    assert grade(sheet, answers.numbers(found, sheet)).verdict == "right"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cell,what,answer", "cell,what,answers", "line 1: has the columns cell, what, answers, should have cell, what, answer"),
        ("qk1,", "qk11,", "line 4: qk11: is no cell of the worksheet; did you mean"),
        ("qk2,", "qk1,", "line 5: qk1: stands in line 4 as well"),
        (",0.2682", ",about 0.3", "line 5: qk2: is 'about 0.3', should be a number such as 0.2831"),
        (",0.2682", ',"0,2682"', "line 5: qk2: is '0,2682', should be a number; write 0.2682 with a point"),
        (",0.2682", ",0,2682", "line 5: qk2: has 4 columns, should have 3; write 0.2682 with a point"),
        (",0.2682", ",０.２６８２", "line 5: qk2: is '０.２６８２', should be a number; write 0.2682 in plain digits"),
        (",0.2682", ",nan", "line 5: qk2: is 'nan', should be a number"),
        (",0.2682", ",1e999", "line 5: qk2: is '1e999', should be a number"),
        (",0.2682", ',"0.2682', "line 5: has a quote that is not closed"),
        ("sheet,leave this row as it is,handworked/two_heads 1 ", "sheet,,handworked/two_heads 2 ", "has other numbers|other numbers"),
        ("sheet,", "sheat,", "has no row sheet"),
    ],
)
def test_a_wrong_answer_sheet_is_told_in_a_line(old: str, new: str, words: str, tmp_path: Path):
    sheet = sheet_of()
    path = answered(sheet, tmp_path, lambda text: text.replace(old, new, 1))
    with pytest.raises(Unreadable, match=words) as error:
        answers.numbers(answers.read(path), sheet)
    assert len(error.value.problems) == 1


def test_what_is_no_answer_sheet(tmp_path: Path):
    for data, words in ((b"", "line 1"), (b"\xff\xfe", "not UTF-8"), (b"x" * 200_000, "no file of at most"), (b"PK\x03\x04", "line 1")):
        (tmp_path / "a.csv").write_bytes(data)
        with pytest.raises(Unreadable, match=words):
            answers.read(tmp_path / "a.csv")


def test_no_cell_of_the_table_is_a_formula():
    assert [harmless(value) for value in ("=1+1", "-A1", "@x", "Anna", 3, "-0.5")] == ["'=1+1", "'-A1", "'@x", "Anna", 3, "-0.5"]


# The commands


def test_a_class_is_graded(project: Path):
    made = run(project, "worksheets", "--config", "case=handworked/two_heads", "sheets=3", cores=1)
    assert made.returncode == 0, made.stderr
    folder = project / "results" / "worksheets" / "handworked" / "two_heads"
    before = contents(folder)
    assert {"sheet_01.html", "sheet_01.md", "key_03.html", "key_03.md", "answers_02.csv", "sheets.html", "sheets.json"} <= set(before)
    assert before["sheets.html"].count(b'class="paper sheet"') == 3
    assert run(project, "worksheets", "--config", "case=handworked/two_heads", "sheets=3", cores=1).returncode == 0
    assert contents(folder) == before
    recorded, back = json.loads(before["sheets.json"]), project / "back"
    back.mkdir()
    for number, change in (
        (1, lambda text: text.replace("name,your name,", "name,your name,Anna")),
        (2, lambda text: text.replace(",0.", ",9.", 1)),
    ):
        text = answered(again(recorded, number, SUITES), back, change).read_bytes()
        (back / f"{number}.csv").write_bytes(text)
    (back / "anna.csv").unlink()
    (back / "3.csv").write_bytes(before["answers_03.csv"])
    done = run(project, "grade", "--config", "answers=back", cores=1)
    lines = [line for line in done.stdout.splitlines() if ".csv: sheet" in line or ".csv (" in line]
    assert done.returncode == 0, done.stderr
    assert (
        lines[0] == "1.csv (Anna): sheet 1: right, 26 of 26 right" and lines[2] == "3.csv: sheet 3: blank, 0 of 26 right, 26 not answered"
    )
    assert "wrong, " in lines[1] and "; first wrong: " in lines[1]
    rows = list(csv.DictReader((project / "results" / "grades" / "back.csv").open(encoding="utf-8")))
    assert [row["verdict"] for row in rows] == ["right", "wrong", "blank"] and rows[0]["name"] == "Anna" and rows[1]["first wrong"]
    (back / "4.csv").write_text("what,answer\n", "utf-8")
    done = run(project, "grade", "--config", "answers=back", cores=1)
    assert (
        done.returncode and "4.csv: unreadable: line 1: has the columns what, answer" in done.stdout and "1 cannot be read" in done.stderr
    )
    assert "Traceback" not in done.stdout + done.stderr
    (folder / "answers_01.csv").write_bytes((back / "1.csv").read_bytes())
    done = run(project, "worksheets", "--config", "case=handworked/two_heads", cores=1)
    assert done.returncode and "answers_01.csv is filled in" in done.stderr and (folder / "sheet_03.html").exists()


def test_a_wrong_command_is_told_in_a_line(built: Path):
    for command, words in (
        (["worksheets", "--config", "case=handworked/two_hats"], "did you mean two_heads?"),
        (["grade", "--config", "answers=nowhere"], "there is no such file or folder"),
    ):
        done = run(built, *command, cores=1)
        assert done.returncode and words in done.stderr and "Traceback" not in done.stderr
