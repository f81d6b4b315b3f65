"""The shipped suites, each loaded once in a process however many tests ask for it: to be read, for who wants another case makes one."""

from functools import cache

from conftest import ROOT

from worked_attention.cases.suites import load_config, load_suite, suites_in

FOLDER = ROOT / "config" / "suites"
LIMITS = load_config(ROOT / "config" / "config.yaml", {})["limits"]


@cache
def shipped(suite: str) -> dict:
    """The suite of that name, as `load_suite` gives it."""
    return load_suite(FOLDER / f"{suite}.yaml", LIMITS)


def all_shipped() -> dict[str, dict]:
    """Every suite by name, as `load_suites` gives them."""
    return {name: shipped(name) for name in suites_in(FOLDER)}
