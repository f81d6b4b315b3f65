"""What others show, judged in the arithmetic and under the convention that they follow, and what they do with a query without keys."""

import numpy as np

from attention import backward, contexts, outputs, projections, scores, weights
from attention.projections import latest
from attention.scores import repeat_heads
from compare import judged
from referee.bounds import strictest

Arrays = dict[str, np.ndarray]


def computed(case: dict, parameters: Arrays) -> Arrays:
    """Every array of `case` from its parameters."""
    arrays = dict(parameters)
    for stage in (projections, scores, weights, contexts, outputs, backward):
        arrays |= stage.stage(case, arrays)
    return arrays


def arithmetic(case: dict, theirs: Arrays) -> str:
    """The dtype of what a reference shows, where it is narrower than that of the case."""
    dtypes = [array.dtype for array in theirs.values() if array.dtype.kind != "b"]
    return min([np.dtype(case["dtype"]), *dtypes], key=lambda dtype: dtype.itemsize).name


def compared(case: dict, ours: Arrays, theirs: Arrays, gates: dict, convention: str | None) -> dict:
    """`judged`, in the arithmetic of the reference (`contract`); another convention counts only if ours under it is what they show.

    Where the reference is narrower than the case, the parameters are rounded as it rounds them and ours is computed anew.
    """
    contract = arithmetic(case, theirs)
    parameters = {name: ours[name] for name in case["arrays"]["parameters"]}
    if contract != case["dtype"]:
        case = {**case, "dtype": contract, "precision": {"accumulate": contract, "softmax": contract}}
        parameters = {name: array if array.dtype == bool else array.astype(contract) for name, array in parameters.items()}
        ours = computed(case, parameters)
    result = judged(case, ours, theirs, gates, None, None)
    if result["verdict"] == "fail" and convention:
        option, choice = convention.split(": ")
        other = {**case, "mask": {**case["mask"], option: choice}}
        if judged(other, computed(other, parameters), theirs, gates, None, None)["verdict"] == "pass":
            result = judged(case, ours, theirs, gates, None, convention)
    if contract in ("float16", "bfloat16"):  # the strictest of the named contracts that holds for all that they show
        contract = strictest(case, parameters, {name: array for name, array in theirs.items() if name in ours}) or "none"
    return {**result, "contract": contract}


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
