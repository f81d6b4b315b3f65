"""All verdicts on a submission together: the one file that holds them, and the table that people read."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from worked_attention.cases.escapes import printable
from worked_attention.referee.bounds.whole import centres
from worked_attention.referee.conventions import largest_score, others
from worked_attention.referee.diagnosis import Diagnoser, in_half
from worked_attention.referee.judge import judge_case
from worked_attention.referee.outcome import counts, grouped, named, remedies, says
from worked_attention.referee.printed import rounded
from worked_attention.referee.submissions import Arrays, Sent, Submission
from worked_attention.referee.trials import ANY
from worked_attention.stages.dtypes import DTYPES, HALF

FORMAT = 1  # of verdict.json
SHOWN = 40  # rows of the table; with more cases it leaves out those that are right or were left out
QUIET = ("right", "unsupported")


def judge_all(
    submission: Submission, suites: dict[str, dict], stop: Collection[str] = (), contract: str = ANY, digits: int | None = None
) -> dict:
    """{format, submission, counts: {verdict: cases}, cases: {"suite/case": verdict}, missing: {suite: [case]}, notes}.

    stop: verdicts after which no further case is asked for. contract: the dtype that all has to hold in, see `judge_case`.
    digits: decimals that all numbers count for that are not printed already; None: as they come. Raises Unreadable if nothing was sent.
    """
    diagnoser = Diagnoser()
    verdicts = {}
    for (suite, name), given, sent in submission.answers():
        case = suites[suite]["cases"][name]
        sent = sent if digits is None else _to_decimals(sent, digits)
        found = verdicts[f"{suite}/{name}"] = case_verdict(case, given, sent, submission.conventions, diagnoser, contract)
        if found["verdict"] in stop:
            break
    touched = {key.partition("/")[0] for key in verdicts}
    missing = {suite: [c for c in suites[suite]["cases"] if f"{suite}/{c}" not in verdicts] for suite in suites if suite in touched}
    return {
        "format": FORMAT,
        "submission": submission.name,
        "counts": counts([verdict["verdict"] for verdict in verdicts.values()]),
        "cases": verdicts,
        "missing": {suite: cases for suite, cases in missing.items() if cases},
        "notes": [printable(note) for note in submission.notes],
    }


def case_verdict(
    case: dict, parameters: Arrays, sent: Sent, conventions: dict[str, str], diagnoser: Diagnoser | None, contract: str = ANY
) -> dict:
    """The judge's verdict; where files could not be read, the case cannot be right. A leading batch of one is left out where the case has
    no batch."""
    sent = replace(sent, arrays=_without_batch(case, sent.arrays), steps=_without_batch(case, sent.steps))
    nothing = judge_case(case, parameters, {}) | {"verdict": sent.word, "stages": {}}
    verdict = _judged(case, parameters, sent, conventions, diagnoser, contract) if sent.arrays else nothing
    if sent.problems and verdict["verdict"] in ("right", "convention", "undecided"):
        verdict |= {"verdict": sent.word, "contract": None, "convention": None, "worst": None}
    problems = list(sent.problems)
    if contract != ANY and verdict["verdict"] == "wrong":
        plain = _judged(case, parameters, sent, conventions, None, ANY)
        right = plain["verdict"] in ("right", "convention")
        problems += [f"right only in {plain['contract']}, and not in {contract} as is asked for"] * right
    if contract == ANY and verdict["verdict"] == "wrong" and not (verdict["diagnosis"] and verdict["diagnosis"]["mistakes"]):
        verdict["diagnosis"] = _in_half(case, parameters, sent, conventions) or verdict["diagnosis"]
    return verdict | {"problems": [printable(problem) for problem in problems]}


def _in_half(case: dict, parameters: Arrays, sent: Sent, conventions: dict[str, str]) -> dict | None:
    """What is told if all arrays, though wide, hold nothing but numbers of a half precision, and are right there; else None."""
    for dtype in sorted(HALF, key=lambda dtype: DTYPES[dtype].digits):  # the coarser one first, for its numbers may be in both
        with np.errstate(over="ignore", invalid="ignore"):
            arrays = {name: array if array.dtype == bool else array.astype(dtype) for name, array in sent.arrays.items()}
            same = all(np.array_equal(arrays[name].astype(array.dtype), array, equal_nan=True) for name, array in sent.arrays.items())
        if same:
            found = _judged(case, parameters, replace(sent, arrays=arrays), conventions, None, ANY)
            if found["verdict"] in ("right", "convention"):
                return in_half(dtype, found["contract"])
    return None


def _to_decimals(sent: Sent, digits: int) -> Sent:
    """What was sent, with the numbers that are not printed rounded to so many decimals."""
    plain = {name: rounded(array, digits) for name, array in sent.arrays.items() if name not in sent.steps and array.dtype != bool}
    arrays, steps = ({name: both[i] for name, both in plain.items()} for i in range(2))
    return replace(sent, arrays=sent.arrays | arrays, steps=sent.steps | steps)


def _without_batch(case: dict, arrays: Arrays) -> Arrays:
    return {name: array[0] if array.shape == (1, *case["shapes"][name]) else array for name, array in arrays.items()}


def _judged(case: dict, parameters: Arrays, sent: Sent, conventions: dict[str, str], diagnoser: Diagnoser | None, contract: str) -> dict:
    """The verdict of `judge_case`, and the `convention` that was followed, if only that differs from the case."""
    verdict = judge_case(case, parameters, sent.arrays, contract=contract, steps=sent.steps)
    if verdict["verdict"] != "wrong":
        return verdict
    for followed, other in others(case, conventions, largest_score(centres(case, parameters))):
        found = judge_case(other, parameters, sent.arrays, contract=contract, steps=sent.steps)
        if found["verdict"] == "right":
            return found | {"verdict": "convention", "convention": followed}
    return judge_case(case, parameters, sent.arrays, diagnoser, contract, sent.steps)


def table(verdict: dict, digits: int = 9) -> str:
    """A row for each case (with many, for each that is wrong or could not be judged), the counts, and what else there is to say.

    Cases with the same fault share a row, which shows the first one; what would mend it stands below, where that is known.
    digits: significant ones of each number.
    """
    cases = verdict["cases"]
    shown = {key: case for key, case in cases.items() if len(cases) <= SHOWN or case["verdict"] not in QUIET}
    groups = grouped(shown)
    firsts = [(keys, cases[keys[0]]) for keys in groups[: 5 * SHOWN]]
    rows = [["case", "verdict", "says"]]
    for keys, case in firsts:
        rows.append([named(keys), case["verdict"], says(case, digits)])
        rows += [["", "", f"to mend it: {remedy}"] for remedy in remedies(case)]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip() for row in rows if shown]
    lines[1:1] = [f"{'-' * widths[0]}  {'-' * widths[1]}  ----"] * bool(shown)
    if len(groups) > 5 * SHOWN:
        lines.append(f"... and {len(groups) - 5 * SHOWN} more rows")
    found = ", ".join(f"{count} {word}" for word, count in verdict["counts"].items())
    lines.append(f"\n{len(cases)} case{'s' * (len(cases) != 1)}: {found}")
    lines += [f"not sent, of {suite}: {len(missing)} cases" for suite, missing in verdict["missing"].items()]
    lines += verdict["notes"][:SHOWN]
    if len(verdict["notes"]) > SHOWN:
        lines.append(f"... and {len(verdict['notes']) - SHOWN} more notes in verdict.json")
    return "\n".join(lines) + "\n"
