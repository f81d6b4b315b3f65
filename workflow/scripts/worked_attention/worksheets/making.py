"""The worksheets of a case: with its own numbers, or many with fresh numbers that are pleasant by hand."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from worked_attention.cases.suites import load_suite, suites_in
from worked_attention.cases.words import did_you_mean
from worked_attention.referee.mistakes.when import soft
from worked_attention.stages import parameters
from worked_attention.stages.catalogue import BOOLEAN
from worked_attention.stages.whole import STAGE
from worked_attention.worksheets.grading import passes_spoiled
from worked_attention.worksheets.sheet import Arrays, Sheet, Unsuited

FORMAT = 1  # of sheets.json
TRIES = 1000  # seeds that are tried for one sheet
APART = 0.001  # scores of one query differ by at least this
FLAT, SATURATED = 1.05, 0.9  # of one query: largest weight by smallest at least, and largest weight at most
OPEN = ("mask_add", "mask_key_add")  # what closes cells stays as it is


def named(key: str, folder: Path, limits: dict) -> dict:
    """The resolved case that `key` names as suite/case, of the suites in `folder`. Raises Unsuited or Problems."""
    suite, _, name = key.partition("/")
    paths = suites_in(folder)
    if suite not in paths or not name:
        raise Unsuited(f"it should be suite/case, such as handworked/two_heads{did_you_mean(suite, paths) if suite not in paths else ''}")
    cases = load_suite(paths[suite], limits)["cases"]
    if name not in cases:
        raise Unsuited(f"suite {suite} has no such case{did_you_mean(name, cases)}")
    return cases[name]


def sheets(case: dict, folder: Path, count: int, options: dict, digits: int) -> Iterator[Sheet]:
    """`count` worksheets with fresh numbers, or, where it is 0, the one with the numbers of the case itself.

    case: resolved. folder: of its parameter files. options: {blank, queries, seed, decimals}, as config.yaml has them. digits: decimals of
    each result. Sheet n has the first seed from options["seed"] on that no sheet before it has, and whose numbers are pleasant. Raises
    Unsuited.
    """
    if count == 0:
        yield checked(Sheet(1, None, case, computed(case, folder), options["blank"], options["queries"], digits))
        return
    seed = options["seed"]
    for number in range(1, count + 1):
        drawn, arrays, seed = pleasant(case, folder, seed, options["decimals"])
        yield checked(Sheet(number, seed, drawn, arrays, options["blank"], options["queries"], digits))
        seed += 1


def record(sheets: list[Sheet], case: dict, options: dict) -> dict:
    """What sheets.json holds, so that the same sheets can be made `again`."""
    made = [{"number": sheet.number, "seed": sheet.seed, "code": sheet.code} for sheet in sheets]
    asked = {key: options[key] for key in ("blank", "queries", "decimals")}
    return {"format": FORMAT, **asked, "digits": sheets[0].digits, "sheets": made, "case": case}


def again(recorded: dict, number: int, folder: Path) -> Sheet:
    """Worksheet `number` of what was `recorded`. Raises Unsuited if there is none, or if its numbers are others by now."""
    found = next((made for made in recorded["sheets"] if made["number"] == number), None)
    if found is None:
        raise Unsuited(f"there is no sheet {number}, but {len(recorded['sheets'])} of them")
    case = recorded["case"] if found["seed"] is None else fresh(recorded["case"], found["seed"], recorded["decimals"])
    sheet = Sheet(number, found["seed"], case, computed(case, folder), recorded["blank"], recorded["queries"], recorded["digits"])
    if sheet.code != found["code"]:
        raise Unsuited("its numbers are others by now than when it was made; make the worksheets again, and hand them out anew")
    return sheet


def checked(sheet: Sheet) -> Sheet:
    """The sheet. Raises Unsuited if it would call zeros or a constant right."""
    if passes_spoiled(sheet):
        raise Unsuited("its results are all alike within rounding, so that the same number in every cell would be right")
    return sheet


def computed(case: dict, folder: Path) -> Arrays:
    """Every array of a case but for its gradients."""
    arrays = parameters.stage(case, folder)
    for stage in [stage for stage in STAGE if stage != "backward"]:
        arrays |= STAGE[stage](case, arrays)
    return arrays


def fresh(case: dict, seed: int, decimals: int) -> dict:
    """The case with other numbers in all its parameters but masks: the i-th of them is friendly with seed 100 `seed` + i."""
    drawn = [name for name in case["arrays"]["parameters"] if name not in BOOLEAN and name not in OPEN]
    specs = {name: {"friendly": {"seed": 100 * seed + i, "decimals": decimals}} for i, name in enumerate(drawn)}
    kept = {name: spec for name, spec in case["parameters"].items() if name not in specs}
    return {**case, "parameters": kept | specs, "torch_draws": None, "claims": []}


def pleasant(case: dict, folder: Path, seed: int, decimals: int) -> tuple[dict, Arrays, int]:
    """(case, its arrays, its seed) of the first seed from `seed` on that makes a `fresh` case whose softmax is neither flat nor saturated.

    Promised: of each query, the scores of the keys that it sees differ by APART or more; the largest weight is at most SATURATED, and at
    least FLAT times the smallest; no row of queries, keys and values is 0. Raises Unsuited if no seed of TRIES does.
    """
    for tried in range(seed, seed + TRIES):
        made = fresh(case, tried, decimals)
        arrays = computed(made, folder)
        if is_pleasant(made, arrays):
            return made, arrays, tried
    raise Unsuited(f"none of {TRIES:,} seeds gives it weights that are neither flat nor saturated; take a smaller case, or its own numbers")


def is_pleasant(case: dict, arrays: Arrays) -> bool:
    """Whether the numbers keep what `pleasant` promises."""
    rows = [arrays[name] for name in ("q_heads", "k_heads", "v_heads") if name in arrays]
    if any((row == 0).all(axis=-1).any() for row in rows):
        return False
    masked, weights = arrays["masked"], arrays["weights"]
    seen = arrays["keep"] if "keep" in arrays else np.ones(masked.shape, bool)
    for row in np.ndindex(masked.shape[:-1]):
        among = seen[row] & (masked[row] > -np.inf)
        scores, shares = np.sort(masked[row][among]), weights[row][among]
        if len(scores) < 2:
            continue
        if np.diff(scores).min() < APART:
            return False
        if soft(case) and not FLAT * shares.min() <= shares.max() <= SATURATED:
            return False
    return True
