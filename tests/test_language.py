"""Pages in every language: no text is left out of a catalogue, every translation fits its text, and the numbers are the same."""

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from gettext import NullTranslations
from html import unescape
from pathlib import Path

import pytest
import test_questions
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from conftest import ROOT, run
from shipped import shipped
from test_pages import ENVIRONMENT, TEMPLATE, Text, front_of, page_of, suite_of, work_of

from worked_attention.archives.causes import CAUSES
from worked_attention.archives.page import page
from worked_attention.cases.strict_yaml import Problems
from worked_attention.pages import case_page, verdicts
from worked_attention.pages import language as spoken
from worked_attention.pages.language import CATALOGUES, languages
from worked_attention.pages.render import renderer
from worked_attention.pages.verdicts import REPEATED
from worked_attention.plan import Plan
from worked_attention.referee.outcome import WORDS
from worked_attention.stages.catalogue import CATALOGUE

MESSAGES = runpy.run_path(str(ROOT / "docs" / "messages.py"))
TRANSLATED = [language for language in languages() if language != "en"]
PLACE = re.compile(r"\{[^{}]*\}|%\(\w+\)s|</?\w+>")
SHOWN = {  # cases that say, all together, every text that pages of cases have
    "handworked": "two_heads permuted_tokens",
    "tutorial": "figure_1_2 figure_3_2",
    "heads": "grouped key_and_value_inputs",
    "cache": "t5",
    "positions": "rotary_yarn_long_betas rotary_after_norm rotary_partial sinusoidal_base",
    "scores": "zero_query_is_nan softcap_by_hand every_bias alibi_relative alibi_key_index",
    "masks": "all_together fill_finfo_min_float16 layer_added empty_row_zero empty_row_uniform empty_row_nan key_add",
    "softmax": "dropout sinks_and_empty_row plus_one hardmax_tie none_masked",
    "gradients": "without_softmax_by_hand grouped appended_keys without_projections rotary_interleaved given dropout finfo_min "
    "qk_norm_l2 softcap",
}


def file_of(language: str) -> Path:
    return CATALOGUES / language / "LC_MESSAGES" / "pages.po"


def told(message) -> list[str]:
    """The translations of a message, one or, of a plural, several."""
    return list(message.string) if isinstance(message.string, (list, tuple)) else [message.string]


def faults(path: Path, texts: Catalog) -> list[str]:
    """What is wrong with the catalogue at `path`, if the pages say `texts`."""
    with open(path, "rb") as file:
        catalogue = read_po(file, path.parts[-3], abort_invalid=True)
    there, meant = ({message.id: message for message in one if message.id} for one in (catalogue, texts))
    found = [f"missing: {text}" for text in meant if text not in there] + [f"stale: {text}" for text in there if text not in meant]
    found += [f"commented out: {message.id}" for message in catalogue.obsolete.values()]
    for text, message in there.items():
        singular, *plural = text if isinstance(text, tuple) else (text,)
        places = set(PLACE.findall(singular)) | {place for more in plural for place in PLACE.findall(more)}
        for said in told(message):
            if not said:
                found.append(f"not translated: {singular}")
            elif set(PLACE.findall(said)) != places:
                found.append(f"other placeholders: {singular}")
        if message.fuzzy:
            found.append(f"fuzzy: {singular}")
    return found


@pytest.fixture
def speaking() -> Iterator:
    """`speak`, and English again after the test."""
    yield spoken.speak
    spoken.speak("en")


# The catalogues


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_catalogue_has_every_text_and_no_other(language: str):
    assert faults(file_of(language), MESSAGES["extracted"]()) == [], "python docs/messages.py, then translate"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('msgid "Scores"\n', 'msgid "Score"\n', "missing: Scores"),
        ('msgid "Scores"\n', 'msgid "Score"\n', "stale: Score"),
        ('msgid "Scores"\nmsgstr "分數"', 'msgid "Scores"\nmsgstr ""', "not translated: Scores"),
        ('msgstr "{key}（最大）"', 'msgstr "{kye}（最大）"', "other placeholders: {key} (largest)"),
        ('msgstr "版本 %(version)s"', 'msgstr "版本 %(version)d"', "other placeholders: version %(version)s"),
        ('msgid "Scores"\n', '#, fuzzy\nmsgid "Scores"\n', "fuzzy: Scores"),
    ],
)
def test_a_fault_of_a_catalogue_is_found(old: str, new: str, fault: str, tmp_path: Path):
    text = file_of("zh_Hant").read_text("utf-8")
    assert old in text
    path = tmp_path / "zh_Hant" / "LC_MESSAGES" / "pages.po"
    path.parent.mkdir(parents=True)
    path.write_text(text.replace(old, new), "utf-8")
    assert fault in faults(path, MESSAGES["extracted"]())


def test_a_new_text_is_noticed_in_code_and_in_templates():
    """Texts of each way to say one are in the extraction: of code, of a table, of a plural, of a template, of a block of one."""
    texts = {message.id for message in MESSAGES["extracted"]() if message.id}
    assert {"What is given", "Scores", ("{n} case", "{n} cases"), "On this page"} <= texts
    assert any(str(text).startswith("Each stage is computed in float64 from the submission's own arrays") for text in texts)


def hidden(source: str) -> list[str]:
    """Texts that are said inside an f-string, where the extraction does not find them, or that are one themselves."""
    tree = ast.parse(source)
    within = [
        node for whole in ast.walk(tree) if isinstance(whole, ast.JoinedStr) for node in ast.walk(whole) if isinstance(node, ast.Call)
    ]
    said = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MESSAGES["KEYWORDS"]]
    wrong = [node for node in said if any(isinstance(of, ast.JoinedStr) for of in node.args)]
    wrong += [node for node in within if node in said and any(isinstance(of, ast.Constant) for of in node.args)]
    return [ast.unparse(node) for node in wrong]


@pytest.mark.parametrize("source", sorted(path for path in MESSAGES["SOURCES"] if path.suffix == ".py"), ids=lambda path: path.stem)
def test_every_text_can_be_found(source: Path):
    assert hidden(source.read_text("utf-8")) == []


def test_a_text_that_cannot_be_found_is_named():
    assert hidden("f\"{_('x')} y\"") == ["_('x')"] and hidden('_(f"{x}")') == ["_(f'{x}')"] and hidden('f"{_(x)}"; _("y")') == []


def test_words_of_verdicts_are_closed_tables():
    assert set(WORDS) | {"follows", "not sent"} == set(verdicts.SUBMISSIONS)
    with pytest.raises(KeyError):
        verdicts.verdict("perhaps")


@pytest.mark.parametrize("language", TRANSLATED)
def test_updating_a_catalogue_changes_nothing(language: str):
    """The file is as `python docs/messages.py` writes it, whatever the time."""
    assert MESSAGES["written"](file_of(language)) == file_of(language).read_bytes()


# The pages


def words(page: str) -> list[str]:
    """Every text of an HTML page, and what it tells readers who do not see it; not its style, and no formula."""
    bare = re.sub(r"<(style|math)\b.*?</\1>", "", page, flags=re.DOTALL)
    hidden = re.findall(r'(?:aria-label|title)="([^"]*)"', bare)
    return [*Text(bare).words, *map(unescape, hidden)]


def numbers(texts: list[str]) -> Counter:
    return Counter(number for text in texts for number in re.findall(r"\d+(?:[.,]\d+)*", text))


def latin(texts: object) -> set[str]:
    """Words of two or more Latin letters, of a text or of all that a mapping or a list holds."""
    return set(re.findall(r"[A-Za-z]{2,}", str(texts)))


@cache
def names(language: str) -> set[str]:
    """Latin words that may stand on a page in a language of other letters: those of its own catalogue, of arrays, and of the project."""
    with open(file_of(language), "rb") as file:
        own = [said for message in read_po(file, language) if message.id for said in told(message)]
    arrays = latin(list(CATALOGUE)) | latin([array.axes for array in CATALOGUE.values()])
    return latin(own) | arrays | latin("Worked Attention NaN cos sin comparison json")


@pytest.fixture(scope="module")
def shown() -> dict[str, tuple[dict, dict]]:
    """The cases that are looked at, each with the one that it extends, by suite/case."""
    found = {}
    for suite, chosen in SHOWN.items():
        cases = shipped(suite)["cases"]
        for name in chosen.split():
            found[f"{suite}/{name}"] = cases[name], cases.get(cases[name]["extends"])
    return found


class Listening(NullTranslations):
    """English, noting what is asked for."""

    def __init__(self):
        super().__init__()
        self.heard: set[str] = set()

    def gettext(self, message: str) -> str:
        self.heard.add(message)
        return message

    def ngettext(self, one: str, more: str, count: int) -> str:
        self.heard.add(one)
        return one if count == 1 else more


@pytest.fixture(scope="module")
def english(shown: dict) -> tuple[dict[str, tuple[str, str]], set[str]]:
    """(HTML, Markdown) of these cases by suite/case, and every text that was said for them."""
    spoken.speak("en")
    spoken.texts = listening = Listening()
    try:
        return {key: told_page(*both) for key, both in shown.items()}, listening.heard
    finally:
        spoken.speak("en")


def told_page(case: dict, base: dict | None) -> tuple[str, str]:
    return page_of(case, work_of(base)[0] if base else None)


def left_in_english(language: str, page: tuple[str, str], *cases: dict | None) -> dict[str, str]:
    """{Latin word: where it stands} of words on a page that are neither of its language, nor names, nor said by its `cases`."""
    html, text = page
    allowed = names(language).union(*map(latin, cases))
    said = [*words(html), *re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL).split("\n")]
    return {word: sentence for sentence in said for word in latin(sentence) - allowed}


@pytest.mark.parametrize("language", TRANSLATED)
def test_pages_say_the_same_numbers_and_leave_nothing_in_english(language: str, shown: dict, english: tuple, speaking):
    speaking(language)
    for key, cases in shown.items():
        (page, text), (other, other_text) = english[0][key], told_page(*cases)
        assert f'<html lang="{language.replace("_", "-")}">' in other and '<html lang="en">' in page
        assert numbers(words(page)) == numbers(words(other)), key
        assert numbers([text]) == numbers([other_text]), key
        assert not left_in_english(language, (other, other_text), *cases), key
        assert Text(page).ids == Text(other).ids and sorted(Text(page).links) == sorted(Text(other).links)


def test_every_text_of_the_stages_is_on_one_of_these_pages(english: tuple):
    """But for those that only a rare case has."""
    stages = "backward contexts flow outputs parameters projections scores weights work"
    files = {f"workflow/scripts/worked_attention/pages/{name}.py" for name in stages.split()}
    rare = {
        "an error",
        "How query {query} mixes the values.",
        "Every key is masked; by the case's empty_row, the weights are {become}.",
        " Keys that the layer appends are seen by every query.",
        "Each row of {values} times its weight, added up.",  # on the key of a worksheet
    }
    asked = {message.id: {place for place, _ in message.locations} for message in MESSAGES["extracted"]() if message.id}
    said = {text if isinstance(text, str) else text[0] for text, places in asked.items() if files & places}
    assert len(said) > 100 and said - english[1] <= rare


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [(case_page.TITLES, "scores", "Unheard of"), (case_page.NUMBERS, 3, "thrice")],
)
def test_a_text_that_is_in_no_catalogue_is_seen_on_the_page(place: dict, name: object, value: str, shown: dict, speaking, monkeypatch):
    case = shown["handworked/two_heads"][0]
    speaking("zh_Hant")
    assert not left_in_english("zh_Hant", page_of(case), case)
    monkeypatch.setitem(place, name, value)
    assert latin(value) & set(left_in_english("zh_Hant", page_of(case), case))


def test_a_number_that_differs_is_seen(shown: dict, monkeypatch):
    case = shown["handworked/two_heads"][0]
    page = page_of(case)[0]
    monkeypatch.setitem(case_page.NUMBERS, 3, "3")
    assert numbers(words(page)) != numbers(words(page_of(case)[0]))


VERDICT = {
    "submission": "mine.py",
    "counts": {"wrong": 1, "undecided": 1, "unsupported": 1, "right": 2},
    "missing": {"masks": ["causal"]},
    "notes": [],
    "cases": {},
}
WORST = {"array": "q", "index": [0, 1], "got": 0.5, "expected": 0.25, "bound": 1e-9, "evidence": "certified", "largest": 2.0}
PLAIN = {"contract": None, "convention": None, "evidence": None, "worst": None, "first_wrong_stage": None, "diagnosis": None}
PLAIN |= {"problems": [], "stages": {"projections": "right", "scores": "follows", "weights": "not sent"}}
DIAGNOSIS = {"sentence": "qwer", "remedy": "qwer", "also": ["qwer", "qwer", "qwer"]}
VERDICT["cases"] = {
    "handworked/a": PLAIN | {"verdict": "wrong", "worst": WORST, "first_wrong_stage": "projections", "diagnosis": DIAGNOSIS},
    "handworked/b": PLAIN | {"verdict": "undecided", "worst": WORST | {"unless": "bfloat16"}},
    "handworked/c": PLAIN | {"verdict": "unsupported", "problems": ["qwer"]},
    "handworked/d": PLAIN | {"verdict": "right", "contract": "float64", "evidence": "typical"},
    "handworked/e": PLAIN | {"verdict": "right", "contract": "float64", "evidence": "certified", "convention": "empty_row: nan"},
}


def judge_page() -> str:
    return renderer(str(TEMPLATE.with_name("judge.html.jinja2")))(verdict=VERDICT, words=WORDS)


REPORT = {
    "sides": ["mine.zip", "here"],
    "archives": {
        "mine.zip": {"digest": "0123", "commit": "4567", "damage": ["qwer"]},
        "yours.zip": {"digest": "", "commit": None, "damage": []},
    },
    "counts": {word: i for i, word in enumerate(REPEATED, 1)},
    "environments": [{"what": what, "said": {"mine.zip": "1", "here": "2"}} for what in CAUSES],
    "notes": ["qwer"],
    "files": ["looks.json"],
}
REPORT["cases"] = {
    f"handworked/{i}": {"weights/weights": {"verdict": w, "reason": "qwer", "max_abs": 0.5, "gate": 1}} for i, w in enumerate(REPEATED)
}
REPORT["cases"]["handworked/1"]["weights/weights"] = {"verdict": "within", "max_abs": 1e-16, "gate": 1e-15, "evidence": "typical"}


def agreement_page() -> str:
    return page(str(TEMPLATE.with_name("agreement.html.jinja2")), REPORT)


def front_page() -> str:
    place = {"suite": "mine", "case": "first", "page": "p.html"}
    failure = place | {"reference": "truth", "array": "q", "max_abs": 0.5, "gate": 1e-12}
    erratum = place | {"array": "weights", "index": [0, 1], "printed": "-0.3", "rounded": "0.25"}
    return front_of(suite_of("undecided", agrees=False), [erratum] * 14, [failure])


@pytest.mark.parametrize("page", [judge_page, front_page, agreement_page], ids=["judge", "front", "agreement"])
@pytest.mark.parametrize("language", TRANSLATED)
def test_the_other_pages_do_so_too(language: str, page, speaking):
    english = page()
    speaking(language)
    other = page()
    assert numbers(words(english)) == numbers(words(other))
    allowed = (
        names(language)
        | latin(VERDICT)
        | latin(REPORT) - latin([*CAUSES, *REPEATED])
        | {"NumPy"}
        | latin(suite_of("pass"))
        | latin(ENVIRONMENT)
    )
    allowed |= latin("Qwer Some people MIT Python Linux studies mine exact reach svg csv summary json counts")
    left = {word: said for said in words(other) for word in latin(said) - allowed}
    assert not left
    assert "{" not in "".join(words(other)) and "%(" not in "".join(words(other))


@pytest.mark.parametrize("language", TRANSLATED)
def test_pages_of_questions_do_so_too(language: str, speaking):
    for question in test_questions.questions().values():
        if question["missing"]:
            continue
        speaking("en")
        page, text = test_questions.page(question)
        speaking(language)
        other, other_text = test_questions.page(question)
        assert numbers(words(page)) == numbers(words(other)) and numbers([text]) == numbers([other_text]), question["title"]
        suites = {place.suite: test_questions.COUNTED if place.suite == "counted" else shipped(place.suite) for place in question["places"]}
        cases = [suites[place.suite]["cases"][place.case] for place in question["places"]]
        places = (
            "articles pages html counted def judged refused"  # in addresses, code, and answers of the judge that stand in for real ones
        )
        left = left_in_english(language, (other, other_text), question, places, *cases)
        assert not left, (question["title"], left)


# Choosing one


def test_a_language_without_a_catalogue_is_refused_in_one_line(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(Problems) as refused:
        Plan({"language": "tlh"})
    assert str(refused.value) == (
        f"config/config.yaml or --config: language: there is no catalogue for tlh, should be one of {', '.join(languages())}"
    )


def test_a_new_language_is_one_file(built: Path, tmp_path: Path):
    project = shutil.copytree(built, tmp_path / "project")
    folder = project / "workflow/scripts/worked_attention/pages/locale"
    (folder / "xx" / "LC_MESSAGES").mkdir(parents=True)
    text = (folder / "zh_Hant" / "LC_MESSAGES" / "pages.po").read_text("utf-8")
    (folder / "xx" / "LC_MESSAGES" / "pages.po").write_text(text.replace("分數", "Punkte"), "utf-8")
    asked = "results/handworked/pages", "--config", "language=xx"
    done = run(project, *asked, cores=1)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (project / "results/handworked/pages/two_heads.html").read_text("utf-8")
    assert '<html lang="xx">' in page and "Punkte" in page and ">Scores<" not in page
    (folder / "xx" / "LC_MESSAGES" / "pages.po").write_text(text.replace("分數", "Werte"), "utf-8")
    again = run(project, "--dry-run", "--verbose", *asked, cores=1)  # an edited catalogue makes pages anew, and nothing else
    assert set(re.findall(r"^(?:local)?rule (\w+):", again.stdout + again.stderr, re.MULTILINE)) == {"reported_pages"}


SAY = """
import sys
sys.path.insert(0, "tests")
from test_pages import *
from worked_attention.pages.language import speak
speak("zh_Hant")
case = load_suite(SUITES / "handworked.yaml", LIMITS)["cases"]["two_heads"]
sys.stdout.buffer.write("".join(page_of(case)).encode("utf-8"))
"""


def test_pages_are_the_same_bytes_in_every_locale():
    said = []
    for locale in ({"LC_ALL": "C", "LANGUAGE": "de", "PYTHONUTF8": "0"}, {"LC_ALL": "zh_TW.UTF-8", "LANGUAGE": "zh_TW"}):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG"))} | locale
        said.append(subprocess.run([sys.executable, "-c", SAY], cwd=ROOT, env=env, capture_output=True, check=True).stdout)
    assert said[0] == said[1] and "上下文向量".encode() in said[0]
