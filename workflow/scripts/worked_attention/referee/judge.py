"""The judge: whether somebody's arrays of a case are right, in which arithmetic, and if not, which stage goes wrong first and how.

Each stage is computed in float64 from the submission's own arrays of the stages before, and what was sent is held against that with
a certified bound; so a stage is blamed for what it does itself, not for what it was given. Where arrays are missing, ours stand in
for them, computed from the last ones that were sent; then the bound covers the stages in between, and so does the blame.
"""

from collections.abc import Iterable
from itertools import permutations

import numpy as np

from worked_attention.referee.bounds.rounding import UNIT
from worked_attention.referee.chain import Arrays
from worked_attention.referee.diagnosis import BESIDE, Diagnoser
from worked_attention.referee.evidence import Finding
from worked_attention.referee.trials import ANY, Arithmetic, Trials, halves, widened
from worked_attention.referee.units import spelled
from worked_attention.stages.catalogue import CATALOGUE, COMPUTED, STAGES
from worked_attention.stages.dtypes import HALF
from worked_attention.stages.projections import latest


def suspects(case: dict, given: Arrays, names: Arrays) -> dict[str, set[str]]:
    """For each stage, the stages that may be at fault if it comes out wrong: itself, and those before of which nothing was sent.

    names: arrays by name, of which the last form of queries, keys and values counts.
    """
    final = {}
    for name in [name for name in "qkv" if f"{name}_heads" in names]:
        array = latest(names, name)
        last = next(key for key in names if names[key] is array)
        final[name] = set() if last in given or last in case["arrays"]["parameters"] else {"projections"}
    kept = "dropped" if "dropped" in case["shapes"] else "weights"
    found = {"projections": {"projections"}}
    found["scores"] = {"scores"} | final.get("q", set()) | final.get("k", set())
    found["weights"] = {"weights"} | (set() if "masked" in given else found["scores"])
    found["contexts"] = {"contexts"} | (set() if kept in given else found["weights"]) | final.get("v", set())
    found["outputs"] = {"outputs"} | (set() if "concat" in given else found["contexts"])
    found["backward"] = {"backward"}
    for stage, array in zip(COMPUTED[1:-1], ("masked", kept, "concat", "output"), strict=True):
        if array not in given:
            found["backward"] |= found[stage]
    return found


def said(stages: set[str]) -> str:
    """The stages in words: one by its name, several as the narrowest range."""
    places = sorted(COMPUTED.index(stage) for stage in stages)
    if len(places) == 1:
        return COMPUTED[places[0]]
    if places[-1] - places[0] == len(places) - 1:
        return f"between {STAGES[places[0]]} and {COMPUTED[places[-1]]}"
    return " or ".join(COMPUTED[place] for place in places)


def turned(got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """What is said of a shape that is the right one with its axes in another order."""
    if sorted(got) != sorted(expected):
        return ""
    order = next(order for order in permutations(range(len(got))) if tuple(got[axis] for axis in order) == expected)
    return f", which its transpose by {order} has"


def told(name: str, got: np.ndarray, expected: np.ndarray, finding: Finding) -> dict:
    """{array, index, expected, got, bound, largest, evidence} of the element that decides, and `unless` of one that is wrong in all
    arithmetics that are stricter than that; of a wrong shape, {array, reason}."""
    if got.shape != expected.shape:
        return {
            "array": name,
            "reason": f"has shape {list(got.shape)}, should have {list(expected.shape)}{turned(got.shape, expected.shape)}",
        }
    number = (lambda x: bool(x)) if expected.dtype == bool else (lambda x: spelled(float(x)))
    place = {"array": name, "index": list(finding.index), "expected": number(expected[finding.index]), "got": number(got[finding.index])}
    place |= {"bound": spelled(finding.limit), "largest": spelled(finding.size), "evidence": finding.evidence}
    return place | ({"unless": finding.unless} if finding.unless else {})


def judge_case(
    case: dict, parameters: Arrays, sent: Arrays, diagnoser: Diagnoser | None = None, contract: str = ANY, steps: Arrays | None = None
) -> dict:
    """The verdict on what was sent of one case.

    parameters: those of the case by name. sent: any of the case's computed arrays by name, float or boolean, in the dtypes they came in.
    steps: unit of the last printed decimal of each element, by name, of arrays that are printed numbers; NaN where nothing was answered.
    contract: a dtype; what holds only in a coarser one is then wrong. Each array is held to the dtype that it shows itself.
    Returns {verdict: right, wrong or undecided, contract, convention: None, evidence, first_wrong_stage, diagnosis, worst, stages: {stage:
    right, wrong, follows, undecided or not sent}}. contract: the strictest arithmetic in which all is right, by stage where they
    differ. evidence: typical if the verdict rests on that, else certified. first_wrong_stage: a stage or a range of stages. worst: the
    element that makes it wrong or undecided, with its bound and the array's largest element.
    """
    parameters = widened(parameters)
    trials = Trials(case, parameters, sent, steps or {})
    found = {name: trials.best(name, contract) for name in CATALOGUE if name in sent}
    words = {name: finding.word for name, (finding, _) in found.items()}
    wrong, unsure = ([name for name in words if words[name] == word] for word in ("wrong", "undecided"))
    given = widened(sent)
    if not wrong:
        verdict = _verdict("undecided" if unsure else "right" if words else "not sent", _stages(case, words, {}))
        verdict["evidence"] = _evidence(finding for finding, _ in found.values()) if words else None
        if unsure:
            finding, trial = found[unsure[0]]
            verdict["worst"] = told(unsure[0], given[unsure[0]], trial.chain.expected[unsure[0]], finding)
        elif words:
            verdict["contract"] = _contract({name: trial.how for name, (_, trial) in found.items()})
        return verdict
    finding, trial = found[wrong[0]]
    chain = trial.chain
    blame = suspects(case, given, parameters | chain.used)
    stage = CATALOGUE[wrong[0]].stage
    names = case["arrays"][stage]
    if wrong[0] in BESIDE or any(words.get(name) == "right" and name not in BESIDE for name in names[: names.index(wrong[0])]):
        blame[stage] = {stage}  # what the stage itself makes it from was sent, and is right
    verdict = _verdict("wrong", _stages(case, words, blame))
    verdict["evidence"] = finding.evidence
    verdict["first_wrong_stage"] = said(blame[stage])
    verdict["worst"] = told(wrong[0], given[wrong[0]], chain.expected[wrong[0]], finding)
    if diagnoser:
        u = max([UNIT["float32"], *(UNIT.get(array.dtype.name, 0.0) for array in sent.values())])
        verdict["diagnosis"] = diagnoser.diagnose(chain.case, parameters, given, chain.expected, stage, blame[stage], u)
    return verdict


def _verdict(word: str, stages: dict[str, str]) -> dict:
    nothing = dict.fromkeys(("contract", "evidence", "convention", "first_wrong_stage", "diagnosis", "worst"))
    return {"verdict": word, **nothing, "stages": stages}


def _evidence(findings: Iterable[Finding]) -> str:
    return "typical" if any(finding.evidence == "typical" for finding in findings) else "certified"


def _contract(hows: dict[str, Arithmetic]) -> str:
    """The contracts of all arrays in words: one, or stage by stage. Of a half precision the loosest counts for all arrays in it."""
    order = {dtype: [how.name for how in halves(dtype)] for dtype in HALF}
    loosest = {dtype: max((order[dtype].index(how.name) for how in hows.values() if how.name in order[dtype]), default=0) for dtype in HALF}
    parts: list[tuple[str, list[str]]] = []
    for stage in COMPUTED:
        here = [how for name, how in hows.items() if CATALOGUE[name].stage == stage]
        if not here:
            continue
        loose = max(here, key=lambda how: max(how.u, UNIT[how.dtype]))
        word = order[loose.dtype][loosest[loose.dtype]] if loose.half and loose.name in order[loose.dtype] else loose.name
        if parts and parts[-1][0] == word:
            parts[-1][1].append(stage)
        else:
            parts.append((word, [stage]))
    if len(parts) == 1:
        return parts[0][0]
    words = [f"{parts[0][0]} until {parts[0][1][-1]}"]
    words += [f"{word} in {' and '.join(stages)}" for word, stages in parts[1:-1]]
    return ", ".join([*words, f"{parts[-1][0]} from {parts[-1][1][0]}"])


def _stages(case: dict, words: dict[str, str], blame: dict[str, set[str]]) -> dict[str, str]:
    """Each stage in a word, from that of each array. `follows` is one that is wrong where an earlier wrong stage may be the reason."""
    found: dict[str, str] = {}
    for stage in [stage for stage in COMPUTED if case["arrays"][stage]]:
        here = {words[name] for name in case["arrays"][stage] if name in words}
        earlier = {before for before, word in found.items() if word in ("wrong", "follows")}
        if "wrong" in here:
            found[stage] = "follows" if earlier & blame[stage] else "wrong"
        else:
            found[stage] = "undecided" if "undecided" in here else "right" if here else "not sent"
    return found
