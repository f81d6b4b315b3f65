"""What others show, judged in the arithmetic and under the convention that they follow, and what they do with a query without keys."""

import numpy as np

from worked_attention.referee.bounds.contracts import CONTRACTS, SUMS, halves
from worked_attention.referee.bounds.rounding import UNIT, finish
from worked_attention.referee.bounds.whole import bounds, centres, kept_centres
from worked_attention.referee.compare import compare_case, gates_of, together
from worked_attention.referee.conventions import largest_score, others, under
from worked_attention.referee.evidence import source_of, weigh
from worked_attention.referee.typical.rounding import finite, rounding
from worked_attention.referee.typical.whole import deviations
from worked_attention.stages.catalogue import CATALOGUE, kept_in
from worked_attention.stages.dtypes import HALF, overflow, usual_precision
from worked_attention.stages.projections import latest
from worked_attention.stages.scores import repeat_heads
from worked_attention.stages.whole import from_parameters

Arrays = dict[str, np.ndarray]
NO_CONTRACT = "none"
LOOSEST = ("pass", "convention", "undecided", "fail")


class Ours:
    """Our numbers of one case, in the arithmetic and under the convention of whoever is compared with them; each computed once."""

    def __init__(self, case: dict, arrays: Arrays, gates: dict):
        """case: resolved. arrays: all of its stages. gates: the config's."""
        self.case, self.arrays, self.gates = case, arrays, gates
        self._known: dict[tuple, tuple[dict, Arrays, dict]] = {}

    def under(self, dtype: str, convention: str | None = None) -> tuple[dict, Arrays, dict]:
        """(case, arrays, largest differences that pass) in `dtype`, and under `convention`, `option: choice`."""
        if (dtype, convention) not in self._known:
            case, arrays = self.case, self.arrays
            if dtype != case["dtype"] or convention:
                case, parameters = recast(case, arrays, dtype)
                case = under(case, *convention.split(": ")) if convention else case
                arrays = from_parameters(case, parameters)
            self._known[dtype, convention] = case, arrays, gates_of(case, arrays, self.gates)
        return self._known[dtype, convention]


def recast(case: dict, arrays: Arrays, dtype: str) -> tuple[dict, Arrays]:
    """The case and its parameters in another dtype, with the precision that is usual for it; in its own dtype as they are."""
    given = {name: arrays[name] for name in case["arrays"]["parameters"]}
    if dtype == case["dtype"]:
        return case, given
    with np.errstate(over="ignore"):
        cast = {name: array if array.dtype == bool else array.astype(dtype) for name, array in given.items()}
    lost = [name for name, array in cast.items() if not np.array_equal(np.isfinite(array), np.isfinite(given[name]))]
    precision = {"precision": usual_precision(dtype), "overflow": overflow(usual_precision(dtype))}
    return {**case, "dtype": dtype, **precision, "spelled": sorted({*case["spelled"], *lost})}, cast


def arithmetic(case: dict, theirs: Arrays) -> str:
    """The dtype of what a reference shows, where it is narrower than the case keeps it in."""

    def kept(key: str) -> np.dtype:
        name = key.split(".")[-1]
        return np.dtype(kept_in(name, CATALOGUE[name].stage, case["dtype"], case["precision"]["scores"]))

    dtypes = [array.dtype for key, array in theirs.items() if array.dtype.itemsize < kept(key).itemsize]
    return min([np.dtype(case["dtype"]), *dtypes], key=lambda dtype: dtype.itemsize).name


def compared(ours: Ours, theirs: Arrays, convention: str | None) -> dict:
    """`compare_case`, in the arithmetic of the reference (`contract`), where that is narrower; and its `empty_row`, if it shows one.

    A difference is a `convention` and no failure if ours under the `convention` that the reference follows is what it shows, or under
    another one of where scores overflow, if a score is so large.
    """
    contract = arithmetic(ours.case, theirs)
    case, arrays, allowed = ours.under(contract)
    result = compare_case(arrays, theirs, allowed)
    if result["verdict"] != "pass":
        tried = [convention] if convention else []
        tried += [followed for followed, _ in others(case, {}, largest_score(centres(case, arrays))) if followed.startswith("scores: ")]
        for followed in tried:
            other_case, other, allowed = ours.under(contract, followed)
            if compare_case(other, theirs, allowed)["verdict"] == "pass":
                result |= {"verdict": "convention", "reason": f"follows {followed}", "first_divergence": None}
                case = other_case
                break
    if contract in HALF:  # the strictest of the named contracts that holds for all that they show
        shown = {name: array for name, array in theirs.items() if name in arrays}
        contract = strictest(case, arrays, shown) or NO_CONTRACT
    row = empty_row(ours.arrays, theirs)
    return {**result, "contract": contract} | ({"empty_row": row} if row else {})


def compared_together(parts: list[dict], names: list[str]) -> dict:
    """What `compared` says of the queries of a case, some at a time, as said of the case, whose arrays have these `names`."""
    if len(parts) == 1:
        return parts[0]
    keys = [key for key in parts[0]["arrays"] if key.split(".")[-1] in names]  # a part may have more
    arrays = {key: together([part["arrays"][key] for part in parts]) for key in keys}
    diverging = [part["first_divergence"] for part in parts if part["first_divergence"]]
    first = min(diverging, key=lambda found: list(arrays).index(found["array"]), default=None)
    result = max(parts, key=lambda part: LOOSEST.index(part["verdict"])) | {"arrays": arrays, "first_divergence": first}
    strictness = {name: place for place, name in enumerate([*CONTRACTS, SUMS, NO_CONTRACT])}
    result["contract"] = max((part["contract"] for part in parts), key=lambda name: strictness.get(name, 0))
    rows = {part["empty_row"] for part in parts if "empty_row" in part}
    result.pop("empty_row", None)
    return result | ({"empty_row": rows.pop() if len(rows) == 1 else "other"} if rows else {})


def strictest(case: dict, arrays: Arrays, theirs: Arrays) -> str | None:
    """The first contract in which all of `theirs` are right, arrays of a float16 or bfloat16 case by name; None if there is none.

    arrays: the parameters of the case at least. An array that is shown in half precision may have been rounded to be shown, whatever
    the contract says of the one that was used.
    """
    exact = kept_centres(case, arrays, UNIT["float32"], {})
    own = bounds(case, exact, UNIT["float64"])
    for name, u, kept in halves(case["dtype"]):
        allowed, spread = bounds(case, exact, u, kept), deviations(case, exact, u, kept)

        def is_right(key: str, value: np.ndarray) -> bool:
            shown = UNIT.get(value.dtype.name, 0.0)
            error = finish(exact[key], allowed[key], float(shown > UNIT["float32"]), shown) + own[key]  # noqa: B023
            sigma = np.sqrt(spread[key] ** 2 + rounding(finite(exact[key]), shown))  # noqa: B023
            found = weigh(value.astype(np.float64), exact[key], error, lambda: sigma, case["dtype"], source_of(key, exact))
            return found.word == "right"

        if all(is_right(key, value) for key, value in theirs.items() if value.dtype != bool):
            return name
    return None


def empty_row(ours: Arrays, theirs: Arrays) -> str | None:
    """What a reference makes of queries that see no key: zero, nan, uniform or other; None where there are none, or it does not show.

    Read from its weights, or else from its contexts: 0, NaN, or the mean of the values.
    """
    rows = (ours["masked"] == -np.inf).all(axis=-1)
    if not rows.any() or not {"weights", "contexts"} & set(theirs):
        return None
    if "weights" in theirs:
        found, uniform = theirs["weights"][rows], 1 / ours["masked"].shape[-1]
    else:
        values = repeat_heads(latest(ours, "v"), rows.shape[-2]).astype(np.float64).mean(axis=-2, keepdims=True)
        found, uniform = theirs["contexts"][rows], np.broadcast_to(values, theirs["contexts"].shape)[rows]
    found = found.astype(np.float64)
    words = {"zero": (found == 0).all(), "nan": np.isnan(found).all(), "uniform": np.allclose(found, uniform, rtol=0.01, atol=0.01)}
    return next((word for word, so in words.items() if so), "other")
