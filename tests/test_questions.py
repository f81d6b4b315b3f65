"""Questions: what is asked for is checked before a run, and what a page says is in the arrays of its cases."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped
from test_pages import Text

from worked_attention.cases.options import schema
from worked_attention.cases.questions import DRAWN, WITHOUT_NUMBERS, WORDS, asked, load_counted, load_questions, pieces
from worked_attention.cases.strict_yaml import Problems
from worked_attention.pages import drawings
from worked_attention.pages import questions as pages
from worked_attention.pages.blocks import Picture
from worked_attention.pages.markdown import markdown
from worked_attention.pages.questions import Sources, filled, question_sections
from worked_attention.pages.render import renderer
from worked_attention.pages.work import Work
from worked_attention.stages.whole import compute

CONFIG = ROOT / "config"
TEMPLATE = ROOT / "workflow" / "report" / "question.html.jinja2"
COUNTED = load_counted(CONFIG / "counted.yaml")
GOLDEN, COUNTS = (json.loads((ROOT / "tests" / "data" / f"{name}.json").read_text("utf-8")) for name in ("handworked", "tutorial"))
NOBODY = {"claims": [], "references": {}, "first_divergence": None}


@cache
def work(name: str, case: str) -> Work:
    found = shipped(name)["cases"][case]
    return Work(found, compute(found, CONFIG / "suites"), {}, 4)


SOURCES = Sources(work, COUNTED["cases"], lambda suite, case: NOBODY, lambda text: "refused", lambda code, of: "judged")


@cache
def questions() -> dict[str, dict]:
    """The questions of this project, held against the suites that they name."""
    named = set(re.findall(r"\b([a-z0-9_]+)/[a-z0-9_]+", (CONFIG / "questions.yaml").read_text("utf-8")))
    there = [name for name in sorted(named) if (CONFIG / "suites" / f"{name}.yaml").is_file()]
    return load_questions(CONFIG / "questions.yaml", {name: shipped(name) for name in there} | {"counted": COUNTED})


def page(question: dict) -> tuple[str, str]:
    """A question's page as HTML and as Markdown."""
    sections = question_sections(question, SOURCES)
    html = renderer(str(TEMPLATE))(question=question | {"name": "q"}, sections=sections, before=None, after=None)
    return html, markdown(question["title"], "", sections)


def words(html: str) -> str:
    return " ".join(" ".join(Text(html.partition("<body>")[2]).words).split())


def test_every_question_can_be_answered_and_says_nothing_but_its_numbers():
    found = questions()
    assert len(found) >= 34 and not any(question["missing"] for question in found.values())
    for name, question in found.items():
        html, twin = page(question)
        assert not re.search(r"\{[a-z _0-9-]*/", words(html)) and "NaN" not in words(html), name
        assert len(html.encode()) < 60_000 and question["title"].split(":")[0] in words(html), name
        assert twin.startswith("# ") and len(twin) > 300, name


def test_numbers_are_those_of_the_articles():
    first = GOLDEN["per_head"][0]
    said = words(page(questions()["one_query"])[0])
    for value in [*first["scaled"][0], *first["weights"][0], *first["context"][0]]:
        assert f"{value:.4f}".replace("-", "−") in said
    assert "1,048,576" in words(page(questions()["a_million"])[0])
    counts = COUNTS["counts"]
    said = words(page(questions()["any_length"])[0])
    assert f"{counts['scores at L=4096, one head']:,}" in said and f"{counts['scores at L=32768, one head']:,}" in said
    said = words(page(questions()["more_heads"])[0])
    assert all(
        f" {counts[kind]['d_model']:,} {counts[kind]['h']} {counts[kind]['d_k']} " in said
        for kind in ("transformer-base", "transformer-big")
    )
    assert " 512 128 4 " in said and "reaches rank 6" in said and "rank 1:" in said


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("{handworked/two_heads qk[0, 0, 0]}", "−0.2801"),
        ("{handworked/two_heads q[0]}", "[0.63, −0.32, −0.16, 0.95]"),
        ("{shape of handworked/two_heads k_heads} and {numbers of handworked/two_heads w_q}", "[2, 3, 2] and 16"),
        ("{parameters of handworked/two_heads}", "80"),
        ("{d_k of counted/base}", "64"),
        ("{sum of softmax/plain weights[0, 0]}", "1.0000"),
        ("{largest of softmax/plain weights[0, 0]}{smallest of softmax/plain weights[0, 0]}", "0.50000.1667"),
        ("{mean of softmax/plain weights[0, 0]}", "0.3333"),
        ("{entropy of softmax/plain weights[0, 0]}", f"{-sum(p * np.log(p) for p in (1 / 6, 2 / 6, 3 / 6)):.4f}"),
        ("{length of articles/arrows q_heads[0, 0]}", f"{5**0.5:.4f}"),
        ("{variance of articles/arrows q_heads[0, 0]}", "0.2500"),
        ("{rank of articles/tied qk[0]}", "2"),
        ("{share of others of softmax/hardmax_tie weights[0, 0:0]}", None),
        ("{largest difference of softmax/plain weights[0, 0] and softmax/plain weights[1, 0]}", "0.3333"),
        ("{multiply-adds of handworked/two_heads qk}", "36"),
    ],
)
def test_what_stands_in_braces_is_answered(text: str, answer: str | None):
    if answer is None:
        with pytest.raises(ValueError, match="names no number"):
            list(pieces(text))
    else:
        assert filled(text, SOURCES) == answer


def test_a_share_of_others_is_what_is_beside_the_diagonal():
    weights = work("tutorial", "identity_attention").arrays["weights"]
    expected = 1 - (weights[0, 0, 0] + weights[0, 1, 1] + weights[0, 2, 2]) / 3
    assert filled("{share of others of tutorial/identity_attention weights}", SOURCES) == f"{expected:.4f}"


WRONG = {  # a block, what is said of it
    "no such case": ("{handworked/two_head qk[0, 0, 0]}", "no case handworked/two_head; did you mean two_heads?"),
    "no such array": ("{handworked/two_heads weight[0]}", "has no array weight; did you mean weights?"),
    "beyond the array": ("{handworked/two_heads weights[2, 0, 0]}", r"weights\[2, 0, 0\] is not in handworked/two_heads"),
    "too many indices": ("{handworked/two_heads q[0, 0, 0]}", "is not in handworked/two_heads"),
    "more than a row": ("{handworked/two_heads weights[0]}", "is more than a row"),
    "no number": ("{two_heads weights[0]}", "names no number"),
    "no indices": ("{handworked/two_heads weights[0 1]}", "names no number|no list of indices"),
    "unknown word": ("{width of handworked/two_heads q}", "width is no word and no size"),
    "no array": ("{sum of handworked/two_heads}", "names no array"),
    "one place for two": ("{largest difference of handworked/two_heads q}", "is asked of 2, and here are 1"),
    "two places for one": ("{sum of handworked/two_heads q and handworked/two_heads k}", "is asked of 1, and here are 2"),
    "counted, not computed": ("{counted/base weights[0, 0]}", "is counted and never computed"),
    "entropy of counted": ("{entropy of counted/base weights}", "is counted and never computed"),
    "unknown block": ({"heatmap": "handworked/two_heads"}, "unknown key"),
    "two blocks in one": ({"grid": "handworked/two_heads", "flow": "handworked/two_heads"}, "choose one"),
    "drawing of nothing": ({"grid": "two_heads"}, "names no number"),
    "table of no array": ({"table": "handworked/two_heads weigths"}, "has no array weigths"),
    "rows without cells": ({"numbers": {"columns": ["a"], "rows": {"b": []}}}, "is empty"),
    "a number as a block": (3, "should be"),
}


def load(tmp_path: Path, block: object) -> dict[str, dict]:
    path = tmp_path / "questions.yaml"
    path.write_text(json.dumps({"questions": {"mine": {"title": "What?", "blocks": ["Words.", block]}}}, indent=1), "utf-8")
    return load_questions(path, {"handworked": shipped("handworked"), "counted": COUNTED})


@pytest.mark.parametrize(("block", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, block: object, message: str):
    with pytest.raises(Problems, match=message) as raised:
        load(tmp_path, block)
    assert all(re.match(r".*questions\.yaml:\d+: questions\.mine\.blocks\.1", str(problem)) for problem in raised.value.problems)


def test_a_question_whose_suite_is_not_there_says_which(tmp_path: Path):
    assert load(tmp_path, "{softmax/plain qk[0, 0, 0]}")["mine"]["missing"] == ["softmax"]
    assert load(tmp_path, "{handworked/two_heads qk[0, 0, 0]}")["mine"]["missing"] == []


def test_every_word_and_block_has_its_answer():
    block = schema("questions")["$defs"]["block"]["properties"]
    assert set(pages.BLOCKS) == set(block) and set(DRAWN) <= set(block)
    counted = set(pages.ON_SHAPES) | {"shape"}
    assert set(WITHOUT_NUMBERS) == counted and set(WORDS) == {"", "rank"} | counted | set(pages.ON_NUMBERS)
    assert asked("d_k of counted/base").word == "d_k"


def test_the_guide_names_every_block_and_word():
    guide = (CONFIG / "README.md").read_text("utf-8").partition("## Questions")[2].partition("\n## ")[0]
    unsaid = [word for word in [*pages.BLOCKS, *WORDS] if word and f"`{word}`" not in guide and f"`{{{word} of " not in guide]
    assert guide and not unsaid


def squares(drawn: Picture, look: str) -> int:
    return len(re.findall(rf'<rect [^>]*style="{look}', drawn.svg))


@pytest.mark.parametrize(("case", "opened"), [("five_tokens", 25), ("five_tokens_causal", 15), ("five_tokens_window", 13)])
def test_a_grid_has_a_full_square_for_each_open_connection(case: str, opened: int):
    drawn = drawings.grid(work("articles", case))
    assert squares(drawn, r"fill:var\(--link\)") == opened and squares(drawn, "fill:none") == 25 - opened
    assert f"{opened} of 25 connections" in drawn.text


def test_arcs_join_what_is_heard():
    hears = drawings.BARE["convolution"]
    drawn = drawings.arcs(list("abcde"), hears, "Said.")
    assert drawn.svg.count("Q") == 8 and "a to b" in drawn.svg and "a to c" not in drawn.svg
    assert drawings.arcs(list("abcde"), drawings.BARE["recurrence"], "Said.").svg.count("Q") == 4
    assert drawings.arcs(list("abcde"), drawings.connected(work("articles", "five_tokens")), "Said.").svg.count("Q") == 20


def test_lines_of_pooling_are_as_thick_as_weights():
    weights = np.array(GOLDEN["per_head"][0]["weights"][0])
    thick = [float(width) for width in re.findall(r"stroke-width:([\d.]+)", drawings.pooling(work("handworked", "two_heads")).svg)]
    np.testing.assert_allclose(thick, 0.6 + 10 * weights, atol=0.051)


def test_boxes_tell_the_shapes():
    drawn = drawings.boxes(work("handworked", "two_heads"))
    assert "q_heads [2, 3, 2]" in drawn.svg and "weights [2, 3, 3]" in drawn.svg and "output [3, 4]" in drawn.svg
    assert "q_heads [2, 2, 3, 2]" not in drawings.boxes(work("handworked", "batched")).svg  # one sequence of it


def test_a_projection_stands_at_a_right_angle_to_the_query():
    found = re.findall(
        r'd="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)" style="stroke:var\(--soft\);stroke-dasharray:4 3"',
        drawings.geometry(work("articles", "arrows")).svg,
    )
    down = np.array([[float(x2) - float(x1), float(y1) - float(y2)] for x1, y1, x2, y2 in found])
    assert len(down) == 4
    np.testing.assert_allclose(down @ [2, 1] / 5**0.5, 0, atol=0.2)  # pixels
    with pytest.raises(ValueError, match="width 2, not 4"):
        drawings.geometry(work("handworked", "one_head"))


def test_hostile_words_become_no_markup(tmp_path: Path):
    question = {
        "title": "<script>a()</script>",
        "source": "<i>",
        "blocks": ["<b>{handworked/two_heads qk[0, 0, 0]}</b>", {"refused": "</pre><script>b()"}],
        "places": [],
    }
    html, twin = page(question)
    assert "script" not in Text(html).tags and "b" not in Text(html).tags and "−0.2801" in html
    assert "\\<b\\>" in twin


def test_pages_of_a_run_hold_the_errors_of_the_mistakes(built: Path):
    folder = built / "results" / "questions"
    said = words((folder / "three_shape_mistakes.html").read_text("utf-8"))
    assert "qk has shape [2, 2, 2], should have [2, 3, 3]" in said
    assert "heads laid side by side by a reshape alone" in said and "the softmax over the queries" in said
    assert "mine.yaml:" in words((folder / "one_width.html").read_text("utf-8"))
    front = Text((built / "results" / "index.html").read_text("utf-8"))
    unanswered = "".join(front.words).partition("not answered, for")[2]
    assert "questions/one_query.html" in front.links and "masks" in unanswered  # what the suites of this run cannot answer, and why
