"""Pages: their numbers are those of the arrays, "=" stands only where it is true, and nothing from a suite becomes markup."""

import re
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped

from worked_attention.cases.options import schema
from worked_attention.cases.suites import load_suite
from worked_attention.pages.blocks import Words, joined
from worked_attention.pages.case_page import STEPS, case_sections, printed_numbers
from worked_attention.pages.exact import own_decimals
from worked_attention.pages.formulas import mathml
from worked_attention.pages.front import front_sections
from worked_attention.pages.markdown import drawn, markdown
from worked_attention.pages.numbers import UNKNOWN, told
from worked_attention.pages.render import renderer
from worked_attention.pages.settings import OPTIONS, settings
from worked_attention.pages.turn import turn
from worked_attention.pages.work import Work, summed
from worked_attention.referee.claims import check_claim
from worked_attention.stages.catalogue import CATALOGUE
from worked_attention.stages.whole import compute

SUITES = ROOT / "config" / "suites"
LIMITS = {"max_array_mb": 256}
TEMPLATE = ROOT / "workflow" / "report" / "page.html.jinja2"
RENDER = renderer(str(TEMPLATE))
EQUATION = re.compile(r"^(.*?) = ([^≈=]*) = (−?[0-9.]+)$")


def work_of(case: dict, folder: Path = SUITES) -> tuple[Work, dict]:
    """A case laid open, and a comparison with nobody that checks its claims."""
    arrays = compute(case, folder)
    claims = [{"array": claim["array"], **value} for claim in case["claims"] for value in check_claim(claim, arrays[claim["array"]])]
    return Work(case, arrays, printed_numbers(claims), 4), {"claims": claims, "references": {}, "first_divergence": None}


def page_of(case: dict, base: Work | None = None) -> tuple[str, str]:
    """The page of a case as HTML and as Markdown."""
    work, comparison = work_of(case)
    sections = case_sections(work, comparison, base)
    return RENDER(case=case, sections=sections, before=None, after=None, home="../../index.html"), markdown(
        case["title"], case["look"], sections
    )


def written(tmp_path: Path, cases: str) -> dict[str, dict]:
    """The resolved cases of a suite that holds `cases`."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"cases:\n{cases}", "utf-8")
    return load_suite(path, LIMITS)["cases"]


@pytest.fixture(scope="module")
def cases() -> dict[str, dict]:
    """The cases of the suites with one theme each, by suite/case."""
    found = {}
    for suite in ("handworked", "tutorial", "heads", "masks", "scores", "positions", "softmax", "cache", "precision", "gradients"):
        found |= {f"{suite}/{name}": case for name, case in shipped(suite)["cases"].items()}
    return found


class Text(HTMLParser):
    """The lines of arithmetic of a page by anchor, its cells by link, its ids, its links and its tags, as a browser reads them."""

    def __init__(self, page: str):
        super().__init__()
        self.lines: dict[str, str] = {}
        self.ids, self.links, self.tags, self.attributes, self.words = [], [], [], [], []
        self.cells: dict[str, str] = {}
        self.line = self.link = None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.attributes += found
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        if tag == "p":
            self.line = found.get("id") if found.get("class") == "l" else None
        if tag == "a":
            self.link = found.get("href")

    def handle_endtag(self, tag):
        if tag == "p":
            self.line = None
        if tag == "a":
            self.link = None

    def handle_data(self, data):
        self.words.append(data)
        if self.line:
            self.lines[self.line] = self.lines.get(self.line, "") + data.replace("\N{NO-BREAK SPACE}", " ")
        if self.link and self.link.startswith("#"):
            self.cells[self.link[1:]] = data.strip()


# Numbers


@pytest.mark.parametrize(
    ("value", "digits", "text", "exact"),
    [
        ("0.2", 4, "0.2", True),
        ("-0.2801", 4, "−0.2801", True),
        ("0.08105", 4, "0.0811", False),  # half up
        ("-0.08105", 4, "−0.0811", False),  # away from zero
        ("0.00004", 4, "4 × 10⁻⁵", True),
        ("-0.00004444449", 4, "−4.4444 × 10⁻⁵", False),
        ("0", 4, "0", True),
        ("-0.0", 4, "0", True),
        ("1234567", 4, "1.2346 × 10⁶", False),
        ("100", 0, "100", True),
    ],
)
def test_a_number_is_rounded_half_up_and_says_whether_it_is_whole(value: str, digits: int, text: str, exact: bool):
    assert told(Decimal(value), float(value), digits)[:2] == (text, exact)


@pytest.mark.parametrize(("stored", "text"), [(0.5, "0.5000"), (2.675, "2.68"), (float("nan"), "NaN"), (-np.inf, "−∞"), (-0.0, "0.0000")])
def test_a_number_without_a_decimal_of_its_own_is_never_exact(stored: float, text: str):
    digits = 2 if stored == 2.675 else 4
    expected = "2.67" if stored == 2.675 else text  # 2.675 is 2.67499999... in binary
    assert told(UNKNOWN, stored, digits)[:2] == (expected, False)


def test_equal_stands_only_where_it_holds():
    half, third = told(Decimal("0.5"), 0.5, 4), told(UNKNOWN, 1 / 3, 4)
    assert summed([(half, half)], [], told(Decimal("0.25"), 0.25, 4)) == [("=", ["0.5 × 0.5"]), ("=", ["0.25"])]
    assert summed([(half, half)], [], told(Decimal("0.26"), 0.26, 4))[1][0] == "≈"
    assert summed([(half, third)], [], told(UNKNOWN, 1 / 6, 4)) == [("≈", ["0.5 × 0.3333"]), ("≈", ["0.1667"])]


def test_a_sum_reads_as_people_write_it():
    assert joined(("(−0.2) × 0.5", "0.3 × (−0.1)", "−0.05")).replace("\N{NO-BREAK SPACE}", " ") == "−0.2 × 0.5 + 0.3 × (−0.1) − 0.05"


def test_exact_decimals_are_those_of_fractions(cases: dict):
    """A second route: the products of the hand-worked case in fractions of whole numbers."""
    case = cases["handworked/two_heads"]
    arrays = compute(case, SUITES)
    own = own_decimals(case, arrays)
    parameters = {name: np.vectorize(lambda v: Fraction(str(v)), otypes=[object])(arrays[name]) for name in case["arrays"]["parameters"]}
    for side in "qkv":
        exact = parameters["x"] @ parameters[f"w_{side}"].T + parameters[f"b_{side}"]
        assert (exact == np.vectorize(Fraction, otypes=[object])(own[side])).all()
    assert str(own["qk"][0, 0, 0]) == "-0.2801"
    assert not any(value.is_finite() for value in own["scaled"].ravel())  # divided by the root of 2


# Steps


def test_every_array_that_is_computed_has_a_step():
    assert set(STEPS) == {name for name, array in CATALOGUE.items() if array.stage != "parameters"}


def test_an_array_without_a_step_is_refused(cases: dict, monkeypatch: pytest.MonkeyPatch):
    case = cases["handworked/two_heads"]
    monkeypatch.delitem(STEPS, "scaled")
    with pytest.raises(LookupError, match="handworked/two_heads: no page tells how scaled is made"):
        page_of(case)


def test_every_option_is_told():
    known = set(schema("suite")["$defs"]["case"]["properties"])
    elsewhere = {"title", "look", "source", "extends", "sweep", "tokens", "key_tokens", "sizes", "parameters", "claims", "positions"}
    assert set(OPTIONS) | elsewhere == known
    assert not set(OPTIONS) & elsewhere


def test_settings_are_told_by_their_dotted_names(cases: dict):
    told_settings = dict(settings(cases["positions/rotary_half"]))
    assert told_settings["rotary.pairing"] == "half" and told_settings["positions.queries"].startswith("0, 1")
    assert "softcap" not in told_settings


def test_masks_are_not_what_they_say_is_an_error(cases: dict):
    work, comparison = work_of(cases["masks/causal_top_left"])
    work.arrays["keep"] = ~work.arrays["keep"]
    with pytest.raises(ValueError, match="is not what the masks causal say"):
        case_sections(work, comparison)


def test_every_equation_of_a_page_is_true(cases: dict):
    """Each "a × b + c = d" on the pages of every third case is computed again from its text, in fractions."""
    checked = 0
    for key, case in list(cases.items())[::3]:
        for line in Text(page_of(case)[0]).lines.values():
            found = EQUATION.match(re.sub(r" ✓.*| −?[0-9.]+ right:.*", "", line).strip())
            if not found or not re.fullmatch(r"[−0-9.×+ ()]+", found[2]):
                continue
            total = Fraction(0)
            for term in re.split(r" (?=[+−] )", found[2]):
                sign = -1 if term.startswith("− ") else 1
                factors = [Fraction(factor.strip(" ()").replace("−", "-")) for factor in re.sub(r"^[+−] ", "", term).split("×")]
                total += sign * np.prod(factors)
            assert total == Fraction(found[3].replace("−", "-")), (key, line)
            checked += 1
    assert checked > 1000


def test_numbers_of_the_page_are_those_of_the_arrays(cases: dict):
    case = cases["handworked/two_heads"]
    arrays, page = compute(case, SUITES), Text(page_of(case)[0])
    for name in ("q", "k", "v", "qk", "scaled", "weights", "output"):
        for index, value in np.ndenumerate(arrays[name]):
            anchor = "-".join([name, *map(str, index)])
            shown = re.findall(r"[=≈] (−?[0-9.]+)", page.lines[anchor])[-1].replace("−", "-")
            assert abs(float(shown) - value) <= 0.00005 + 1e-12, (anchor, shown, value)
            assert page.cells[anchor] == shown.replace("-", "−")


def test_one_number_can_be_followed_through_the_page(cases: dict):
    lines = Text(page_of(cases["handworked/two_heads"])[0]).lines
    assert lines["q-0-0"].startswith("q[0, 0] = 0.2 × 0.5 + (−0.4) × (−0.2) + 1 × 0.3 + 0.5 × 0.1 + 0.1 = 0.63")
    assert lines["qk-0-0-0"].startswith("x1 · x1 = 0.63 × (−0.47) + (−0.32) × (−0.05) = −0.2801 ✓")
    assert lines["scaled-0-0-0"].startswith("x1 → x1 = −0.2801 / √2 ≈ −0.1981 ✓")
    assert lines["weights-0-0-0"].startswith("x1 → x1 ≈ 0.8203 / 2.8976 ≈ 0.2831 ✓")
    assert "≈ 0.283106 × [0.07, 1.02] + 0.417184 × [0.78, 0.1] + 0.299710 × [−0.09, −0.35] ≈ [0.3182, 0.2256]" in lines["contexts-0-0"]
    words = "".join(Text(page_of(cases["handworked/two_heads"])[0]).words).replace("\N{NO-BREAK SPACE}", " ")
    assert "0.8203 + 1.2088 + 0.8684 ≈ 2.8976" in words
    assert "4 × (16 + 4) = 80" in words


def test_a_wrong_printed_number_is_struck(cases: dict):
    page = page_of(cases["tutorial/figure_1_2"])[0]
    assert '<s aria-label="printed, wrong">0.83</s>' in page and "right: 0.92" in page
    assert "✓" not in page.split("<h2")[4] or "0.83" not in page.split("✓")[0].split("<tr>")[-1]


def test_outputs_are_those_of_the_queries(tmp_path: Path):
    parameters = "{x: {grid: {}}, x_kv: {grid: {}}, w_q: {grid: {}}, w_k: {grid: {}}, w_v: {grid: {}}, w_o: {grid: {}}}"
    text = f"  one:\n    heads: 1\n    sizes: {{Lq: 3, Lk: 1, d_model: 2, d_kv: 2}}\n    parameters: {parameters}\n"
    _, page = page_of(written(tmp_path, text + "    tokens: [sun, moon, star]\n    key_tokens: [earth]\n")["one"])
    assert all(f"Output of {token}" in page for token in ("sun", "moon", "star")) and "Output of earth" not in page


def test_masked_keys_are_shown_as_masked(cases: dict):
    page = page_of(cases["masks/causal_top_left"])[0]
    assert 'class="masked">masked</td>' in page and "masked" in Text(page).lines["masked-0-0-1"]
    assert "weights-0-0-1" not in Text(page).lines


def test_a_bias_is_told_term_by_term(cases: dict):
    line = Text(page_of(cases["scores/every_bias"])[0]).lines["bias-0-0-1"]
    assert line == "1 → 2 = bias_table 0 + mask_add 0.25 + 0.25 × (−1) + t5_table[bucket 5 of distance 1, head 0] = 0 + 0.25 − 0.25 + 5 = 5"


def test_a_large_case_tells_its_first_query(tmp_path: Path):
    text = "  a: {sizes: {Lq: 40, d_model: 12}, heads: 2, parameters: {x: {normal: {seed: 1}}}}\n"
    page = Text(page_of(written(tmp_path, text)["a"])[0])
    words = "".join(page.words).replace("\N{NO-BREAK SPACE}", " ")
    assert "larger than 8 tokens by 8 features" in words and "(32 more) ≈" in words
    assert "weights-0-0-7" in page.ids and "weights-0-1-0" not in page.ids and "weights-1-0-0" not in page.ids
    sums = [line for line in words.split("\n") if line.startswith("sum of the exponentials")]
    assert len(sums) == 1 and sums[0].startswith("sum of the exponentials ≈ ")


# Writing


@pytest.mark.parametrize("key", ["handworked/two_heads", "gradients/cross", "masks/layer_added"])
def test_a_page_needs_nothing_else(cases: dict, key: str):
    page = page_of(cases[key])[0]
    text = Text(page)
    assert not {"script", "img", "link", "iframe", "object"} & set(text.tags)
    assert not re.search(r"https?:|@import|url\(", page)
    assert len(text.ids) == len(set(text.ids))
    assert not [link for link in text.links if link.startswith("#") and link[1:] not in text.ids]
    if key == "handworked/two_heads":
        assert len(page.encode("utf-8")) < 300_000


HOSTILE = r"""
  first:
    title: '</title><script>alert(1)</script> & "quotes" | *stars* [link](javascript:alert(1)) <img src=x onerror=alert(2)>'
    look: "<b>bold</b>\n# heading"
    tokens: ['<i>', '"><svg onload=alert(3)>']
    parameters: {x: [[1, 2], [3, 4]]}
"""


def test_titles_and_tokens_cannot_become_markup(tmp_path: Path):
    page, text = page_of(written(tmp_path, HOSTILE)["first"])
    assert not {"script", "img", "i"} & set(Text(page).tags) and "<b>bold" not in page
    assert not [name for name in Text(page).attributes if name.startswith("on")]
    bare = re.sub(r"\\.", "", text)
    assert "<" not in bare.replace("<br>", "") and "](javascript" not in bare and "\n# heading" not in text


def test_a_long_token_is_cut_and_an_empty_one_is_seen(tmp_path: Path):
    long = "x" * 40
    page = page_of(written(tmp_path, f"  a:\n    tokens: ['{long}', ' ']\n    parameters: {{x: [[1], [2]]}}\n")["a"])[0]
    assert long[:23] + "…" in page and long not in page and "&#39; &#39;" in page


def test_markdown_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="no form of str"):
        drawn("text")
    assert drawn(Words("a*b <c>")) == r"a\*b \<c\>"


def test_formulas_are_mathml_and_unknown_signs_are_refused():
    assert "<mfrac><mi>a</mi><msqrt><msub><mi>d</mi><mi>k</mi></msub></msqrt></mfrac>" in mathml(r"\frac{a}{\sqrt{d_k}}")
    with pytest.raises(ValueError, match="not known here"):
        mathml(r"\unknown x")
    with pytest.raises(ValueError, match="no } in the formula"):
        mathml(r"\frac{a}{b")


# What changed


def test_what_changed_names_the_first_stage_that_moves(cases: dict):
    base, _ = work_of(cases["handworked/two_heads"])
    page = page_of(cases["handworked/permuted_tokens"], base)[0]
    words = " ".join("".join(Text(page).words).split())
    assert "This case extends two_heads." in words and "The first stage that moves is projections, in q" in words
    same = page_of(cases["handworked/two_heads"], base)[0]
    assert "No computed array moves." in same and "No setting and no input differs." in same


def test_what_changed_says_by_how_much(tmp_path: Path):
    text = "  a: {parameters: {x: [[1, 0], [0, 2]]}}\n  b: {extends: a, scale: none}\n"
    both = written(tmp_path, text)
    base, _ = work_of(both["a"])
    assert both["b"]["extends"] == "a" and both["a"]["extends"] is None
    words = " ".join("".join(Text(page_of(both["b"], base)[0]).words).split())
    assert "The first stage that moves is scores, in scaled: 1.1716." in words  # 4 - 4/sqrt(2)


# The front page


def suite_of(verdict: str, agrees: bool = True) -> dict:
    """A suite with one case that one reference judges so, and one printed number."""
    result = {"verdict": verdict, "arrays": {}, "first_divergence": None}
    claim = {"array": "weights", "index": [0, 1], "printed": "0.25", "rounded": "0.25", "right": 0.25, "agrees": agrees}
    comparison = {"references": {"torch.mha": result}, "claims": [claim], "first_divergence": None}
    case = {"name": "first", "title": "<The first>", "comparison": comparison, "page": "mine/pages/first.html"}
    return {"name": "mine", "description": "", "cases": [case], "thumbnail": np.eye(2)}


ENVIRONMENT = {"python": {"version": "3.12.1"}, "packages": {"numpy": "2.4.6"}, "system": {"name": "Linux", "machine": "x86_64"}}
ENVIRONMENT |= {"cpu": {"model": None}, "git": {"commit": None, "code_dirty": None}}


def front_of(suite: dict, errata: list[dict] = (), failures: list[dict] = ()) -> str:
    sections = front_sections(
        [suite],
        list(errata),
        list(failures),
        ENVIRONMENT,
        ["studies/mine/exact/reach.csv"],
        [("counts", "summary.json")],
        [("Qwer <qwer>?", "questions/qwer.html")],
        {"Qwer?": ["mine"]},
    )
    citation = {"authors": [{"name": "Some people"}], "title": "Worked Attention", "version": "1.0.0", "license": "MIT"}
    return renderer(str(TEMPLATE.with_name("index.html.jinja2")))(sections=sections, suites=[suite], citation=citation)


def test_the_front_page_says_first_what_was_found():
    failure = {
        "suite": "mine",
        "case": "first",
        "page": "mine/pages/first.html",
        "reference": "torch.mha",
        "array": "q",
        "stage": "projections",
        "max_abs": 0.5,
        "gate": 1e-12,
    }
    erratum = {
        "suite": "mine",
        "case": "first",
        "page": "mine/pages/first.html",
        "array": "weights",
        "index": [0, 1],
        "printed": "-0.3",
        "right": 0.25,
        "rounded": "0.25",
    }
    page = front_of(suite_of("pass", agrees=False), [erratum], [failure])
    assert page.index("1 comparison failed") < page.index("1 of 1 numbers that sources print are wrong") < page.index(">Suites</h2>")
    assert 'href="mine/pages/first.html#weights-0-1"' in page and ">−0.3</s>" in page and "0.5, allowed 1e-12" in page
    assert 'href="questions/qwer.html">Qwer &lt;qwer&gt;?</a>' in page
    assert "&lt;The first&gt;" in page and "<rect" in page and 'href="studies/mine/exact/reach.svg"' in page
    assert "No comparison failed" in front_of(suite_of("pass")) and "1 undecided" in front_of(suite_of("undecided"))
    assert "it agrees with ours" in front_of(suite_of("pass")) and "it agrees with ours" not in front_of(suite_of("undecided"))
    assert "could not be decided" in front_of(suite_of("undecided")) and "could not be decided" not in front_of(suite_of("pass"))


def test_the_front_page_folds_the_questions_that_are_not_answered():
    shut, summary, rest = front_of(suite_of("pass")).partition("<summary>1 question is not answered")
    assert summary and shut.rstrip().endswith("<details>")
    table = rest[: rest.index("</details>")]
    assert ">Qwer?</th>" in table and ">mine</td>" in table and "Qwer?<" not in shut.replace("Qwer &lt;qwer&gt;?<", "")


@pytest.mark.parametrize("verdict", ["unsupported", "not installed"])
def test_the_front_page_takes_silence_for_no_agreement(verdict):
    page = front_of(suite_of(verdict))
    assert "Nothing was compared" in page and "compared with nobody" in page and "omparison failed" not in page
    asked_nobody = suite_of(verdict)
    asked_nobody["cases"][0]["comparison"]["references"] = {}
    page = front_of(asked_nobody)
    assert "Nothing was compared" in page and "by reference and verdict" not in page and "1 case in 1 suite, computed" in page


def test_the_front_page_refuses_a_verdict_that_it_does_not_know():
    with pytest.raises(ValueError, match="knows no verdict perhaps"):
        front_of(suite_of("perhaps"))


def test_the_drawing_says_the_same_as_the_lines(cases: dict):
    page = page_of(cases["handworked/two_heads"])[0]
    drawing = page[page.index("<svg") : page.index("</svg>")]
    assert "x2: score 0.1896, weight 0.4172, value [0.78, 0.1]" in drawing and ">[0.3182, 0.2256]</text>" in drawing
    assert "masked" in page_of(cases["masks/causal_top_left"])[0].split("</svg>")[0]


# Turns


@pytest.mark.parametrize(
    ("before", "angle", "tip", "arc"),
    [
        ((1.0, 0.0), np.pi / 2, "50.0 8.0", "M67.0 50.0A17 17 0 0 0 50.0 33.0"),  # up: counterclockwise, the short way
        ((1.0, 0.0), -np.pi / 2, "50.0 92.0", "M67.0 50.0A17 17 0 0 1 50.0 67.0"),
        ((0.0, 2.0), 3 * np.pi / 2, "92.0 50.0", "M50.0 33.0A17 17 0 1 0 67.0 50.0"),  # the long way
        ((1.0, 0.0), 2 * np.pi + np.pi / 2, "50.0 8.0", "M67.0 50.0A17 17 0 0 0 50.0 33.0"),  # a whole turn more
    ],
)
def test_a_turn_is_drawn_as_it_is(before: tuple, angle: float, tip: str, arc: str):
    x, y = before
    after = x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)
    svg = turn(before, after, angle, "said", "caption").svg
    assert f'd="M50 50L{tip}" stroke-width="2.5"' in svg and f'd="{arc}"' in svg


def test_a_pair_of_zeros_has_no_arrow():
    assert 'd="M50 50L50.0 50.0"' in turn((0.0, 0.0), (0.0, 0.0), 1.0, "said", "caption").svg


def test_each_pair_of_a_rotary_case_is_drawn(cases: dict):
    """A unit vector at position 2, turned by 2 rad: (cos 2, sin 2)."""
    page = page_of(cases["positions/rotary_half"])[0]
    assert "Columns 0 and 2: (1, 0), turned by 114.6°, becomes (−0.4161, 0.9093)." in page
    told = re.findall(r'aria-label="Columns \d+ and \d+: ', page)
    heads, queries, keys, pairs = 2, 3 - 1, 5 - 1, 2  # the first of each is at position 0, which turns nothing
    assert len(told) == heads * (queries + keys) * pairs
