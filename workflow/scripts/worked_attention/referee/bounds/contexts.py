"""Bounds of the contexts."""

import numpy as np

from worked_attention.referee.bounds.rounding import Errors, fused, gamma, latest_error, terms
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import latest
from worked_attention.stages.scores import repeat_heads


def stage(of: Errors) -> None:
    """P V: sum (P' - P) V + sum P' (V' - V) + rounding. The first is, for any c, at most E_P |V - c| + |sum P' - sum P| |c|. For c take
    the middle of a column's range, so that an offset common to all values costs little, and 0 where the range holds 0. The second is at
    most M_P E_V, the rounding gamma_fused(n) M_P M_V. Laying the heads side by side makes no error."""
    if not of.case["arrays"]["contexts"]:
        return
    a = of.centre
    used = "dropped" if "dropped" in a else "weights"
    (ev, mv), ep, mp = latest_error(of, "v"), of.bound.get(used), of.most(used)
    n = a[used].shape[-1]
    rest = gamma(terms(fused(n), of, "contexts"), of.u) * mv
    rest = rest if ev is None else rest + ev
    if ep is None:
        error = mp @ rest
    else:
        v = repeat_heads(latest(a, "v"), of.case["heads"])
        low, high = v.min(axis=-2, keepdims=True), v.max(axis=-2, keepdims=True)
        middle = np.where((low > 0) | (high < 0), (low + high) / 2, 0.0)
        spread = np.abs(v - middle) if ev is None else np.abs(v - middle) + 2 * ev
        error = np.concatenate([ep, mp], axis=-1) @ np.concatenate([spread, rest], axis=-2) + of.sums * np.abs(middle)
    of.settle("contexts", error)
    of.bound["concat"] = merge_heads(of.bound["contexts"])
