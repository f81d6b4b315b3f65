"""The audit of options: another choice, a factor of 10 or one more or less in any option or number of a case is noticed by a shipped case.

What is judged is what our own stages make of a case with that one change: the output alone (and the gradients, if there are some).
"""

import copy
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped as loaded

from worked_attention.cases import suites as loader
from worked_attention.cases.options import filled, is_array, schema
from worked_attention.cases.resolve import resolve
from worked_attention.cases.rules import MASK_ARRAYS
from worked_attention.cases.violations import violations
from worked_attention.referee.judge import judge_case
from worked_attention.stages.catalogue import BOOLEAN
from worked_attention.stages.dtypes import DTYPES
from worked_attention.stages.parameters import stage as parameters_of
from worked_attention.stages.whole import from_parameters

FOLDER = ROOT / "config" / "suites"
CASE = schema("suite")["$defs"]["case"]
NO_NUMBERS = {"title", "look", "source", "extends", "sweep", "tokens", "key_tokens", "claims"}  # of a case: what nothing is computed from
ARITHMETIC = (
    "dtype",
    "precision",
    "precision.accumulate",
    "precision.softmax",
    "precision.scores",
    "rotary.angles",
)  # what a contract, too, can tell apart
LEFT_OUT = object()
LIMITS = loader.UNLIMITED | {"max_array_mb": 256}

SAME_NUMBERS = {  # changes that move no number of a case that can have them
    ("backward", "None to ones"): "gradients are asked for, and the output stays",
    ("backward", "left out"): "as above",
    ("mask.empty_row", "error to zero"): "a case that says `error` has no empty row",
    ("mask.empty_row", "error to nan"): "as above",
    ("mask.empty_row", "error to uniform"): "as above",
    ("sizes", "left out"): "the arrays show the sizes, or the case is refused",
    ("sizes.Lq", "left out"): "as above",
    ("sizes.d_model", "left out"): "as above",
    ("sizes.buckets", "left out"): "as above",
}

Change = tuple[str, str]  # of which option, and which one
Arrays = dict[str, np.ndarray]


# Every change that a case can have


def choices(rule: dict) -> list[str]:
    """The words that an option chooses from; none if it is free."""
    pattern = rule.get("pattern", "")
    return rule.get("enum") or [word.replace("\\", "") for word in pattern.removeprefix("^(").removesuffix(")$").split("|") if word]


def numbers(rule: dict, value: float) -> Iterator[tuple[str, float]]:
    """Other numbers near `value`: one more and one less of a whole number, ten times and a tenth of any."""
    if rule.get("type") == "integer":
        yield from (("one more", value + 1), ("one less", value - 1), ("ten times", value * 10), ("a tenth", value // 10))
    else:
        yield from (("ten times", value * 10), ("a tenth", value / 10))


def changes(rule: dict, given: object, whole: object, path: tuple = ()) -> Iterator[tuple[Change, tuple, object]]:
    """(which change, place in the raw case, new value) of every option below `rule`.

    given: what the case says there, None if it says nothing. whole: the same with every default.
    """
    name = ".".join(path)
    if given is not None and path and (path[:1] != ("parameters",) or len(path) > 2):
        yield (name, "left out"), path, LEFT_OUT
    if is_array(rule):
        if isinstance(given, dict):
            ((form, options),) = given.items()
            inner = rule["properties"][form]
            for key, one in inner.get("properties", {}).items():
                value = options.get(key, one.get("default"))
                for word, new in numbers(one, value):
                    yield (f"parameter.{form}.{key}", word), (*path, form, key), new
        return
    for word in choices(rule):
        if whole != word:
            yield (name, f"{whole if isinstance(whole, str | None) else 'a number'} to {word}"), path, word
    if isinstance(whole, int | float) and not isinstance(whole, bool):
        for word, new in numbers(rule, whole):
            yield (name, word), path, new
    if isinstance(whole, list) and all(isinstance(item, int) for item in whole):
        for word, new in (("last one more", whole[-1] + 1), ("last one less", whole[-1] - 1)):
            yield (name, word), path, [*whole[:-1], new]
    if isinstance(whole, list) and path == ("torch_draws", "order"):
        yield (name, "turned round"), path, whole[::-1]
    if isinstance(whole, dict):
        for key, inner in rule.get("properties", {}).items():
            if path or key not in NO_NUMBERS:
                yield from changes(inner, (given or {}).get(key), whole.get(key), (*path, key))


def changed(raw: dict, path: tuple, value: object) -> dict:
    """The raw case with `value` at `path`, or without what is there."""
    result = copy.deepcopy(raw)
    block = result
    for key in path[:-1]:
        block = block.setdefault(key, {})
    if value is LEFT_OUT:
        del block[path[-1]]
    else:
        block[path[-1]] = value
    return result


# What a case notices


@cache
def shipped() -> list[tuple[dict, dict]]:
    """(raw case with what it extends, resolved case) of every shipped case, the smallest first."""
    found = []

    def noted(raw: dict, suite: str, name: str, *rest: object) -> dict | None:
        found.append((raw, resolve(raw, suite, name, *rest)))
        return found[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "resolve", noted)
        loader.load_suites({"suites": "all", "limits": LIMITS}, FOLDER)
    return sorted(found, key=lambda pair: sum(map(int, pair[1]["bytes"].values())))


def sent_of(case: dict, arrays: Arrays) -> Arrays:
    """The output (the weights where that is all) and the gradients, of which a judge may see no more."""
    last = "output" if "output" in arrays else "weights"
    return {name: arrays[name] for name in (last, *case["arrays"]["backward"])}


class Judge:
    """The judge of one shipped case, which remembers what it says of our own numbers."""

    def __init__(self, case: dict):
        self.case, self.parameters = case, parameters_of(case, FOLDER)
        self.own = sent_of(case, from_parameters(case, self.parameters))
        self.said = cache(lambda: self.verdict(self.own))

    def verdict(self, sent: Arrays) -> tuple[str, str | None]:
        """Verdict and contract."""
        result = judge_case(self.case, self.parameters, sent)
        return result["verdict"], result["contract"]

    def notices(self, option: str, other: dict, given: Arrays) -> bool:
        """Whether what `other`, a changed case, makes of what it is `given` is wrong, or, where that tells arithmetics apart, right in
        another contract than our own numbers are."""
        try:
            made = sent_of(other, from_parameters(other, given))
        except ValueError:  # an empty row, where that is an error
            return True
        sent = {name: array for name, array in made.items() if name in self.own}
        if not sent or all(same(sent[name], self.own[name]) for name in sent):
            return False
        verdict = self.verdict(sent)
        return verdict[0] == "wrong" or (option in ARITHMETIC and {verdict[0], self.said()[0]} == {"right"} and verdict != self.said())


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether both arrays are alike to the last bit."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def other_array(name: str, array: np.ndarray) -> np.ndarray:
    """A parameter ten times as large, or the other way round if it is boolean."""
    with np.errstate(over="ignore"):
        return ~array if name in BOOLEAN else (array * array.dtype.type(10)).astype(array.dtype)


def attempts(raw: dict, case: dict) -> Iterator[tuple[Change, Callable[[Judge], bool | None]]]:
    """Each change of a case, and whether a judge notices it; None where the changed case is no case."""
    for change, path, value in changes(CASE, raw, filled(CASE, raw) | {"precision": case["precision"]}):

        def tried(judge: Judge, option: str = change[0], path: tuple = path, value: object = value) -> bool | None:
            new = changed(raw, path, value)
            if next(violations(CASE, new), None):
                return None
            other = resolve(new, case["suite"], case["name"], FOLDER, LIMITS, lambda where, message: None)
            return other and judge.notices(option, other, parameters_of(other, FOLDER))

        yield change, tried
    for name in case["arrays"]["parameters"]:

        def tried(judge: Judge, name: str = name) -> bool:
            return judge.notices(name, case, judge.parameters | {name: other_array(name, judge.parameters[name])})

        yield (f"parameters.{name}", "the other way round" if name in BOOLEAN else "ten times"), tried


def audit(cases: list[tuple[dict, dict]]) -> tuple[dict[Change, str], list[Change]]:
    """(the case that notices each change, changes that some case can have and none notices). cases: raw and resolved."""
    possible: dict[Change, list] = {}
    for raw, case in cases:
        judge = cache(lambda case=case: Judge(case))
        for change, tried in attempts(raw, case):
            possible.setdefault(change, []).append((case, judge, tried))
    noticed, unnoticed = {}, []
    for change, all_tried in possible.items():
        answers = []
        for case, judge, tried in all_tried:
            answers.append(tried(judge()))
            if answers[-1]:
                noticed[change] = f"{case['suite']}/{case['name']}"
                break
        if change not in noticed and False in answers:
            unnoticed.append(change)
    return noticed, unnoticed


def finer(change: Change) -> bool:
    """Whether a change only computes with more bits, which nobody is blamed for."""
    option, _, choice = change[0].partition(".")
    before, _, after = change[1].partition(" to ")
    return (
        option == "precision"
        and choice in ("accumulate", "softmax", "scores")
        and after in DTYPES
        and DTYPES[after].roundoff < DTYPES[before].roundoff
    )


def leaves(rule: dict, path: tuple = ()) -> Iterator[str]:
    """The name of every option that has no others below it."""
    inner = {} if is_array(rule) else rule.get("properties", {})
    if not inner:
        yield ".".join(path)
    for key in inner:
        yield from leaves(inner[key], (*path, key))


# The audit


@pytest.fixture(scope="module")
def audited() -> tuple[dict[Change, str], list[Change]]:
    """What the audit of all shipped cases finds."""
    with np.errstate(all="ignore"):
        return audit(shipped())


def test_every_change_is_noticed_by_a_case(audited):
    noticed, unnoticed = audited
    for (option, change), case in sorted(noticed.items()):
        print(f"{option}, {change}: {case}")
    assert [change for change in unnoticed if change not in SAME_NUMBERS and not finer(change)] == []
    assert set(SAME_NUMBERS) <= set(unnoticed)


def test_every_option_of_the_schema_is_in_it(audited):
    options = {option for option, _ in audited[0]}
    masks = {f"mask.{name}" for name in MASK_ARRAYS if f"parameters.mask_{name}" in options}
    assert set(leaves(CASE)) - options - masks == NO_NUMBERS - {"sweep"} | {"sweep.skip", "backward"}


def test_the_audit_misses_a_case_that_is_taken_away():
    scores = [(raw, case) for raw, case in shipped() if case["suite"] == "scores" and "t5_table" in case["arrays"]["parameters"]]
    change = ("t5.longest", "one less")
    assert audit(scores)[0][change] == "scores/t5_short"
    assert change in audit([(raw, case) for raw, case in scores if case["name"] != "t5_short"])[1]


def test_a_vector_of_zeros_that_a_norm_leaves_zero_has_a_bound():
    """Once, 0/0 in the bound left its row free: the judge said right to whatever stood there."""
    case = loaded("scores")["cases"]["zero_query_and_key"]
    parameters = parameters_of(case, FOLDER)
    for spoiled in (np.nan, 17.0):
        output = np.array([[-0.592237, -0.131469], [0.601244, -1.126037], [0, spoiled]])  # from the case's claims
        right = from_parameters(case, parameters)["output"]
        assert judge_case(case, parameters, {"output": right})["verdict"] == "right"
        assert judge_case(case, parameters, {"output": np.where(np.isclose(output, right, atol=1e-5), right, output)})["verdict"] == "wrong"
