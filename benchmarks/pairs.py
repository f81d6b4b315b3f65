"""Which two options stand together in no shipped case: `python benchmarks/pairs.py`; `--suite` prints a suite that shows those pairs.

An option is a word of `case["uses"]` (with its kind, where it has some) or a parameter. What can stand together is what random cases
of the tests have; so a pair that the loader refuses is none.
"""

import sys
from itertools import combinations
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "workflow" / "scripts"), str(ROOT / "tests")]

from strategies import LIMITS, raw_cases  # noqa: E402

from worked_attention.cases.resolve import resolve  # noqa: E402
from worked_attention.cases.suites import load_suite  # noqa: E402

DRAWS = 4000
CHECKS = list(HealthCheck)
DESCRIPTION = "Options that stand together nowhere else, two by two; made from random cases by benchmarks/pairs.py."


def words(case: dict) -> set[str]:
    """The options and parameters of a resolved case, options that have kinds with theirs."""
    found = set(case["arrays"]["parameters"])
    if "B" in case["dims"]:
        found.add("batch")
    for name in case["uses"]:
        block, _, option = name.partition(".")
        value = case.get(block)
        value = value.get(option) if option and isinstance(value, dict) else value
        found.add(f"{name}={value}" if isinstance(value, str) and name != "scale" else name)
    return found


def pairs(case: dict) -> set[tuple[str, str]]:
    """Every two of them."""
    return set(combinations(sorted(words(case)), 2))


def shipped() -> set[tuple[str, str]]:
    """The pairs of all shipped cases."""
    suites = [load_suite(path, LIMITS) for path in sorted((ROOT / "config" / "suites").glob("*.yaml"))]
    return set().union(*(pairs(case) for suite in suites for case in suite["cases"].values()))


def drawn() -> list[tuple[dict, set[tuple[str, str]]]]:
    """Random cases as a suite would say them, with their pairs; the same ones each time."""
    found = []

    @settings(max_examples=DRAWS, deadline=None, database=None, derandomize=True, phases=[Phase.generate], suppress_health_check=CHECKS)
    @given(raw_cases(dtypes=("float64", "float32")))
    def collect(raw: dict) -> None:
        case = resolve(raw, "pairs", "case", Path(), LIMITS, lambda where, message: None)
        if case is not None:
            found.append((raw, pairs(case)))

    collect()
    return found


def covering(possible: list[tuple[dict, set]], missing: set) -> list[dict]:
    """Cases that show all `missing` pairs, the one that shows most of what is left first."""
    chosen, left = [], set(missing)
    while left:
        raw, shown = max(possible, key=lambda entry: len(entry[1] & left))
        chosen.append(raw)
        left -= shown
    return chosen


if __name__ == "__main__":
    there, possible = shipped(), drawn()
    could = set().union(*(shown for _, shown in possible))
    missing = could - there
    if "--suite" in sys.argv:
        import json

        print(f"description: {DESCRIPTION}\nfigures: none\ncases:")
        for i, raw in enumerate(covering(possible, missing), start=1):
            print(f"  pairs_{i:02d}: {json.dumps(raw)}")
    else:
        print(f"{len(could)} pairs of options can stand together, {len(could - missing)} do in a shipped case")
        for first, second in sorted(missing):
            print(f"  {first} with {second}")
