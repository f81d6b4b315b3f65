"""The power of the suites: which known mistake is caught by which case, at the right stage, so that no mistake can pass all of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from worked_attention.referee.chain import Arrays
from worked_attention.referee.judge import judge_case
from worked_attention.referee.mistakes.entry import Mistake
from worked_attention.referee.mistakes.library import LIBRARY
from worked_attention.stages.catalogue import COMPUTED, STAGES
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute


def by_mistake(case: dict, right: Arrays, mistake: Mistake) -> Arrays | None:
    """What somebody sends who makes this one mistake: all arrays of the case; None if it does not apply, or changes nothing.

    right: every array of the case without it.
    """
    if not mistake.applies(case):
        return None
    made = {name: right[name] for name in case["arrays"]["parameters"]}
    with np.errstate(all="ignore"):
        for stage in COMPUTED:
            if stage == mistake.stage or STAGES.index(stage) < STAGES.index(mistake.stage):
                kept = mistake.run(stage, case, dict(made)) if stage == mistake.stage else {n: right[n] for n in case["arrays"][stage]}
                if stage == mistake.stage and all(np.array_equal(kept[n], right[n], equal_nan=kept[n].dtype != bool) for n in kept):
                    return None
                made |= kept
            else:
                try:
                    made |= mistake.run(stage, case, dict(made))
                except ValueError:  # the arrays of the mistake have a shape that the next stage cannot take
                    break
    return {name: array for name, array in made.items() if name not in case["arrays"]["parameters"]}


HALF = 0.5  # of the mistakes that can be made in them, cases should notice so many
WAYS = {  # in which somebody may send less than all arrays, as they were computed
    "output": lambda sent: {"output": sent["output"]} if "output" in sent else {},
    "bfloat16": lambda sent: in_dtype(sent, bfloat16),
    "float16": lambda sent: in_dtype(sent, np.dtype(np.float16)),
}


def in_dtype(sent: Arrays, dtype: np.dtype) -> Arrays:
    """What was sent, rounded to `dtype`; boolean arrays as they are."""
    with np.errstate(over="ignore"):
        return {name: array if array.dtype == bool else array.astype(dtype) for name, array in sent.items()}


def caught(case: dict, right: Arrays, mistake: Mistake) -> bool | None:
    """Whether the judge finds this mistake in this case at its stage; None if it does not apply, or changes nothing."""
    sent = by_mistake(case, right, mistake)
    return None if sent is None else verdict(case, right, sent)["first_wrong_stage"] == mistake.stage


def verdict(case: dict, right: Arrays, sent: Arrays) -> dict:
    """The judge's verdict on what was `sent` of a case; right: every array of it."""
    return judge_case(case, {name: right[name] for name in case["arrays"]["parameters"]}, sent)


def seen(case: dict, right: Arrays, mistake: Mistake) -> list[str]:
    """The WAYS in which the mistake is wrong as well."""
    sent = by_mistake(case, right, mistake)
    lessened = {way: less(sent) for way, less in WAYS.items()}
    return [way for way, arrays in lessened.items() if arrays and verdict(case, right, arrays)["verdict"] == "wrong"]


def noticed(cases: list[tuple[dict, Arrays]], less: Callable[[Arrays], Arrays], enough: float = 1.0) -> dict[str, bool]:
    """Whether these cases would notice each known mistake that can be made in one of them, by the mistake's name.

    cases: each with every array of it. less: of all arrays that are computed, those that somebody sends, one of WAYS. enough: a part of
    the mistakes; where so many are noticed, the others are not tried any more and count as not noticed. A mistake that the data of all
    cases hide, since it changes nothing there, is not noticed either.
    """
    made = {mistake.name: [pair for pair in cases if mistake.applies(pair[0])] for mistake in LIBRARY.values()}
    found = {name: False for name, pairs in made.items() if pairs}
    for name in found:
        if sum(found.values()) >= enough * len(found):
            break
        for case, right in made[name]:
            sent = less(by_mistake(case, right, LIBRARY[name]) or {})
            if sent and verdict(case, right, sent)["verdict"] == "wrong":
                found[name] = True
                break
    return found


def power(suites: dict[str, dict], folder: Path) -> dict:
    """{mistakes: {name: {stage, sentence, caught: [case], missed: [case], output, bfloat16, float16}}, nothing_new: [case],
    uncaught: [mistake], once: [mistake]}.

    Cases are "suite/case" in their order; `missed` are those that the mistake changes, but not at its stage, or too little; `output`,
    `bfloat16` and `float16` those that catch it and also show it in the output alone, or in all arrays rounded. A case
    catches nothing new if those before it catch all that it catches. `once` are mistakes that a single case catches.
    """
    lists = ("caught", "missed", *WAYS)
    matrix = {m.name: {"stage": m.stage, "sentence": m.sentence} | {word: [] for word in lists} for m in LIBRARY.values()}
    nothing_new, known = [], set()
    for suite, content in suites.items():
        for name, case in content["cases"].items():
            if case["torch_draws"]:
                continue
            right, here = compute(case, folder), set()
            for mistake in LIBRARY.values():
                word = caught(case, right, mistake)
                if word is not None:
                    matrix[mistake.name]["caught" if word else "missed"].append(f"{suite}/{name}")
                if word:
                    here.add(mistake.name)
                    for way in seen(case, right, mistake):
                        matrix[mistake.name][way].append(f"{suite}/{name}")
            nothing_new += [f"{suite}/{name}"] * (here <= known)
            known |= here
    by_one = [name for name, entry in matrix.items() if len(entry["caught"]) == 1]
    return {"mistakes": matrix, "nothing_new": nothing_new, "uncaught": [name for name in matrix if name not in known], "once": by_one}
