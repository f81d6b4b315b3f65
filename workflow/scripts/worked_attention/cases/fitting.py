"""Which studies there are, and which cases of a suite each of them can use."""

from collections.abc import Iterator

from worked_attention.cases.columns import columns, numbers, options, references, said, sizes
from worked_attention.cases.words import did_you_mean

MULTIPLIED = ("queries and keys", lambda case, cases: "qk" in case["arrays"]["scores"])


def _permuted(case: dict, cases: dict[str, dict]) -> bool:
    """Whether the suite has the same case with its tokens in another order."""
    other = cases.get(f"{case['name']}_permuted")
    names = [] if other is None else other["tokens"]
    return sorted(names) == sorted(set(case["tokens"])) and len(set(names)) == len(names)


def _plain(case: dict, cases: dict[str, dict]) -> bool:
    """Whether the case is x, four projections and nothing else."""
    return case["arrays"]["parameters"] == ["x", "w_q", "w_k", "w_v", "w_o"] and set(case["uses"]) <= {"dtype", "heads"}


STUDIES = {  # what a study needs of a case, in words and as a test of one case among all of its suite
    "variance": MULTIPLIED,
    "entropy": MULTIPLIED,
    "permutation": ("a partner NAME_permuted, whose tokens have the same names in another order", _permuted),
    "costs": ("x and projections", lambda case, cases: "w_q" in case["arrays"]["parameters"]),
    "reach": ("as many keys as queries", lambda case, cases: case["dims"]["Lq"] == case["dims"]["Lk"]),
    "rounding": ("x, w_q, w_k, w_v and w_o, and no options but `dtype` and `heads`", _plain),
}


def known(cases: dict[str, dict]) -> dict[str, str]:
    """What a study of columns can draw of these cases, with its meaning: the columns of results/cases.csv, and the options of sweeps."""
    swept = {option for case in cases.values() if case["sweep"] for option in case["sweep"]["choices"]}
    return {**columns(), **{option: "option that a sweep chooses" for option in sorted(swept - set(columns()))}}


def undrawable(axes: dict[str, str], cases: dict[str, dict], compared: bool) -> Iterator[tuple[str, str]]:
    """(axis, what is wrong with it) of a study of columns. axes: {x, y, by}. compared: whether the suite is, with anybody."""
    there = known(cases)
    for axis, name in axes.items():
        if name not in there:
            yield axis, f"there is no column {name}{did_you_mean(name, there)}"
        elif axis == "y" and name not in numbers():
            yield axis, f"{name} holds no numbers; take one that does, such as entropy, bytes or truth.ulp"
        elif name in (*options(), *sizes()) and all(said(case, name) is None for case in cases.values()):
            yield axis, f"no case of this suite has {name}"
        elif not compared and name.rsplit(".", 1)[0] in references():
            yield axis, f"{name} is empty, for this suite says references: none"


def fitting(study: str, cases: dict[str, dict]) -> list[dict]:
    """The cases that `study` can use, in the suite's order, none of which a sample of rows is looked at; cases: resolved ones by name."""
    return [case for case in cases.values() if STUDIES[study][1](case, cases) and not case["sample"]]
