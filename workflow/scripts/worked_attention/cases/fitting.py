"""Which studies there are, and which cases of a suite each of them can use."""

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


def fitting(study: str, cases: dict[str, dict]) -> list[dict]:
    """The cases that `study` can use, in the suite's order; cases: resolved ones by name."""
    return [case for case in cases.values() if STUDIES[study][1](case, cases)]
