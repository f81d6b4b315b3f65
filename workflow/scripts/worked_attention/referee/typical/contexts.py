"""Typical errors of the contexts, and of the output behind them."""

import numpy as np

from worked_attention.referee.typical.projections import project
from worked_attention.referee.typical.rounding import Spread, product
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import last_form
from worked_attention.stages.scores import repeat_heads


def stage(of: Spread) -> None:
    """sum_j D_j V_j with D the weights (or the dropped ones, D_j = r_j P_j) and c its value. Errors e of the scores make
    sum_j P_j e_j (r_j V_j - c), a common error of the sum makes c times it, storing the weights makes sum_j (error of D_j) V_j, and then
    there is the error of the values and of the sum itself. A sink has no value. Laying the heads side by side makes no error."""
    case, a = of.case, of.centre
    if not case["arrays"]["contexts"]:
        return
    used = "dropped" if "dropped" in a else "weights"
    last = last_form(a, "v")
    v, vv = repeat_heads(a[last], case["heads"]), of.variance.get(last)
    d, c = np.where(np.isnan(a[used]), 0.0, a[used]), a["contexts"]
    found = product(of.stored, d, None if vv is None else repeat_heads(vv, case["heads"]), v, of.u)
    if of.moved is not None:
        square = np.minimum(of.moved**2, 1e200)
        sink, square = square[..., d.shape[-1] :].sum(axis=-1, keepdims=True), square[..., : d.shape[-1]]
        r = a["dropout_keep"] / (1 - case["dropout"]) if "dropped" in a else np.ones(())
        away = (square * r * r) @ (v * v) - 2 * c * ((square * r) @ v) + c * c * (square.sum(axis=-1, keepdims=True) + sink)
        found = found + np.maximum(away, 0.0) + of.total * c * c
    unknown = np.isinf(of.of(used)).any(axis=-1, keepdims=True)
    of.settle("contexts", np.where(unknown, np.inf, found))
    of.variance["concat"] = merge_heads(of.variance["contexts"])


def output(of: Spread) -> None:
    """concat W_O^T + b_O, as any projection."""
    if "concat" in of.centre:
        project(of, "output", "concat", "w_o", "b_o")
