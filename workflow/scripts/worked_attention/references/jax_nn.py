"""jax.nn: jax.nn.dot_product_attention; a float64 case is computed in float32, as its softmax would be in any case."""

import jax
import numpy as np

from worked_attention.references import fused
from worked_attention.references.can import ATTENDING
from worked_attention.stages.dtypes import DTYPES
from worked_attention.stages.projections import latest, stage

CAN = ATTENDING
COMPILED = jax.jit(jax.nn.dot_product_attention, static_argnames=("scale", "is_causal", "local_window_size"))


def supports(case: dict) -> str | None:
    """What fused attention supports, without softcap, and values as wide as keys."""
    if reason := fused.supports(case, CAN):
        return reason
    if case["precision"]["softmax"] not in ("float32", case["dtype"]):
        return "has a softmax in float32 only"
    return None if case["dims"]["d_v"] == case["dims"]["d_k"] else "needs d_v = d_k"


def convention(case: dict) -> str | None:
    """Which convention it follows where the case names another one."""
    return None if case["mask"]["empty_row"] == "uniform" else "empty_row: uniform"


def run(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """contexts; -inf in an additive mask is given as a boolean one, for where it leaves no key the softmax would be NaN."""
    arrays = fused.narrowed(case, arrays)
    made = arrays | stage(case, arrays)
    q, k, v = (np.swapaxes(fused.batched(case, latest(made, name)), 1, 2) for name in "qkv")
    options, taken = {}, set()
    if fused.says(case, "causal", 0):
        options["is_causal"] = True
        taken.add("causal")
    if fused.says(case, "window", 0):
        far = case["dims"]["Lq"] + case["dims"]["Lk"]
        options["local_window_size"] = tuple(
            far if case["mask"]["window"][side] is None else case["mask"]["window"][side] for side in ("left", "right")
        )
        taken.add("window")
    keep, added = fused.keep_and_bias(case, arrays, taken)
    if added is not None:
        finite = added > -np.inf
        keep = finite if keep is None else keep & finite
        options["bias"] = np.where(finite, added, 0)
    if keep is not None:
        options["mask"] = keep
    half = DTYPES[case["dtype"]].half  # which XLA does not compile for CPUs in all shapes; in some it ends the process
    attend = jax.nn.dot_product_attention if half else COMPILED
    contexts = np.swapaxes(np.asarray(attend(q, k, v, scale=case["scale_factor"], **options)), 1, 2)
    return {"contexts": contexts if "B" in case["dims"] else contexts[0]}
