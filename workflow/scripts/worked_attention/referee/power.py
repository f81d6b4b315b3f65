"""The power of the suites: which known mistake is caught by which case, at the right stage, so that no mistake can pass all of them."""

from pathlib import Path

import numpy as np

from worked_attention.referee.chain import Arrays
from worked_attention.referee.judge import judge_case
from worked_attention.referee.mistakes.entry import Mistake
from worked_attention.referee.mistakes.library import LIBRARY
from worked_attention.stages.catalogue import STAGES
from worked_attention.stages.whole import compute


def by_mistake(case: dict, right: Arrays, mistake: Mistake) -> Arrays | None:
    """What somebody sends who makes this one mistake: all arrays of the case; None if it does not apply, or changes nothing.

    right: every array of the case without it.
    """
    if not mistake.applies(case):
        return None
    made = {name: right[name] for name in case["arrays"]["parameters"]}
    with np.errstate(all="ignore"):
        for stage in STAGES[1:]:
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


def caught(case: dict, right: Arrays, mistake: Mistake) -> bool | None:
    """Whether the judge finds this mistake in this case at its stage; None if it does not apply, or changes nothing."""
    sent = by_mistake(case, right, mistake)
    if sent is None:
        return None
    parameters = {name: right[name] for name in case["arrays"]["parameters"]}
    return judge_case(case, parameters, sent)["first_wrong_stage"] == mistake.stage


def power(suites: dict[str, dict], folder: Path) -> dict:
    """{mistakes: {name: {stage, sentence, caught: [case], missed: [case]}}, nothing_new: [case], uncaught: [mistake]}.

    Cases are "suite/case" in their order; `missed` are those that the mistake changes, but not at its stage, or too little. A case
    catches nothing new if those before it catch all that it catches.
    """
    matrix = {m.name: {"stage": m.stage, "sentence": m.sentence, "caught": [], "missed": []} for m in LIBRARY.values()}
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
            nothing_new += [f"{suite}/{name}"] * (here <= known)
            known |= here
    return {"mistakes": matrix, "nothing_new": nothing_new, "uncaught": [name for name in matrix if name not in known]}
