"""A submission that follows another convention than a case is told so: declared, or recognised where the formula has 0/0."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, run, with_suites
from shipped import all_shipped

from worked_attention.cases.options import schema
from worked_attention.referee.conventions import PLACES
from worked_attention.referee.declarations import declared
from worked_attention.referee.report import judge_all, table
from worked_attention.referee.submissions import Submission, Unreadable
from worked_attention.stages.whole import compute

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
FOLDER = ROOT / "config" / "suites"
SUITES = all_shipped()
FILE = """
import numpy as np
CONVENTIONS = {conventions}
def weights(case, arrays):
    scores = arrays["masked"]
    largest = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    return e / e.sum(axis=-1, keepdims=True)
"""


def folder(to: Path, conventions: object, choices: dict[str, str], *keys: tuple[str, str], also: float = 0.0) -> Path:
    """A submission of these cases with other choices of their masks, and what it declares; `also` is added to each last array."""
    for suite, name in keys:
        case = SUITES[suite]["cases"][name]
        made = compute(case | {"mask": case["mask"] | choices}, FOLDER)
        place = to / suite / name
        place.mkdir(parents=True)
        for array in ("weights", "output"):
            np.save(place / f"{array}.npy", made[array] + also * (array == "output"))
    if conventions is not None:
        (to / "conventions.json").write_text(conventions if isinstance(conventions, str) else json.dumps(conventions), "utf-8")
    return to


def judged(path: Path, *suites: str) -> dict:
    chosen = {name: SUITES[name] for name in suites}
    return judge_all(Submission(path, chosen, dict.fromkeys(chosen, FOLDER)), chosen)


EMPTY = ("field_cases", "r18_inverted_polarity")


@pytest.mark.parametrize("conventions", [{"empty_row": "nan"}, None], ids=["declared", "recognised"])
def test_another_empty_row_is_a_convention(tmp_path: Path, conventions: dict | None):
    found = judged(folder(tmp_path / "mine", conventions, {"empty_row": "nan"}, EMPTY), "field_cases")
    case = found["cases"]["/".join(EMPTY)]
    assert (case["verdict"], case["convention"], case["contract"]) == ("convention", "empty_row: nan", "float64")
    assert case["first_wrong_stage"] is None and case["diagnosis"] is None
    assert found["counts"] == {"convention": 1}
    assert "follows empty_row: nan, in float64" in table(found) and "1 case: 1 convention" in table(found)


def test_a_fault_beside_the_convention_is_wrong(tmp_path: Path):
    found = judged(folder(tmp_path / "mine", {"empty_row": "nan"}, {"empty_row": "nan"}, EMPTY, also=1e-3), "field_cases")
    assert found["cases"]["/".join(EMPTY)]["verdict"] == "wrong" and found["cases"]["/".join(EMPTY)]["convention"] is None


def test_what_is_declared_and_not_followed_is_right_where_it_is_right(tmp_path: Path):
    found = judged(folder(tmp_path / "mine", {"empty_row": "uniform"}, {}, EMPTY), "field_cases")
    assert found["counts"] == {"right": 1}


def test_a_diagonal_is_a_convention_only_where_it_is_declared(tmp_path: Path):
    keys = [("field_cases_2", "lengths_and_causal")]
    found = judged(folder(tmp_path / "said", {"diagonal": "padded"}, {"diagonal": "padded"}, *keys), "field_cases_2")
    assert found["cases"]["field_cases_2/lengths_and_causal"]["convention"] == "diagonal: padded"
    found = judged(folder(tmp_path / "unsaid", None, {"diagonal": "padded"}, *keys), "field_cases_2")
    assert found["counts"] == {"wrong": 1}


def test_several_conventions_hold_together(tmp_path: Path):
    """The causal mask from the first key, where the case has a window that goes with it, and NaN where then no key is left."""
    case = SUITES["field_cases_2"]["cases"]["window_decode"]
    window = case["mask"]["window"] | {"align": "top_left"}
    choices = {"causal": "top_left", "window": window, "empty_row": "nan"}
    path = folder(tmp_path / "mine", {"causal": "top_left", "empty_row": "nan"}, choices, ("field_cases_2", "window_decode"))
    found = judged(path, "field_cases_2")["cases"]["field_cases_2/window_decode"]
    assert (found["verdict"], found["convention"]) == ("convention", "causal: top_left, empty_row: nan")


def test_a_python_file_declares_too(project: Path):
    with_suites(project, "field_cases")
    (project / "mine.py").write_text(FILE.format(conventions='{"empty_row": "nan"}'), "utf-8")
    done = run(project, "judge", "--config", "submission=mine.py")
    verdict = json.loads((project / "results/judge/mine.py/verdict.json").read_text("utf-8"))
    followed = [key for key, case in verdict["cases"].items() if case["verdict"] == "convention"]
    assert "field_cases/r18_inverted_polarity" in followed and verdict["counts"]["convention"] == len(followed)
    assert {verdict["cases"][key]["convention"] for key in followed} == {"empty_row: nan"}, done.stdout
    assert "follows empty_row: nan" in (project / "results/judge/mine.py/verdict.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("conventions", "said"),
    [
        ('{"empty_row": "zeros"}', "conventions.json: empty_row is text (zeros), should be one of zero, nan, uniform"),
        ('{"emptyrow": "nan"}', "conventions.json: text (emptyrow) is no convention; did you mean empty_row?"),
        ('["nan"]', 'conventions.json: is a list, should be options with their choices, such as {"empty_row": "nan"}'),
        ('{"empty_row": ["nan"]}', "conventions.json: empty_row is a list, should be one of zero, nan, uniform"),
        ("{", "conventions.json: is not JSON"),
        ("", "conventions.json: is not JSON"),
        ("[" * 5000, "conventions.json: is not JSON"),
    ],
)
def test_a_wrong_declaration_is_one_line(tmp_path: Path, conventions: str, said: str):
    with pytest.raises(Unreadable) as error:
        judged(folder(tmp_path / "mine", conventions, {}, EMPTY), "field_cases")
    assert str(error.value) == said


def test_a_wrong_declaration_in_a_file_is_one_line(tmp_path: Path):
    (tmp_path / "mine.py").write_text(FILE.format(conventions="{'empty_row': object}"), "utf-8")
    with pytest.raises(Unreadable, match="^CONVENTIONS: empty_row is text"):
        judged(tmp_path / "mine.py", "field_cases")


def test_every_choice_is_one_of_the_schema():
    options = schema("suite")["$defs"]["case"]["properties"]
    for option, (part, choices) in PLACES.items():
        assert set(choices) == set(options[part]["properties"][option]["enum"]) - {"error"}, option
        assert declared({option: choices[0]}) == {option: choices[0]}
