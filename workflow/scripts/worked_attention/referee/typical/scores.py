"""Typical errors of the scores: product, scale, softcap, bias and mask."""

import numpy as np

from worked_attention.referee.bounds.rounding import PRESCALED, smallest
from worked_attention.referee.bounds.scores import added, rounds_given
from worked_attention.referee.typical.rounding import Spread, finite, product, rounding
from worked_attention.stages.projections import last_form
from worked_attention.stages.scores import repeat_heads


def latest(of: Spread, name: str) -> tuple[np.ndarray | None, np.ndarray]:
    """(variance, centre) of the last form of queries, keys or values, repeated for the query heads; None where it is known exactly."""
    last, heads = last_form(of.centre, name), of.case["heads"]
    variance = of.variance.get(last)
    return None if variance is None else repeat_heads(variance, heads), repeat_heads(of.centre[last], heads)


def turn(x: np.ndarray | None) -> np.ndarray | None:
    """The last two axes swapped; None stays None."""
    return None if x is None else np.swapaxes(x, -1, -2)


def stage(of: Spread) -> None:
    """Scale: the factor and the result are rounded; where Q and K are scaled before, they and the root of the factor are, too.
    Softcap c tanh(x/c): slope 1 - tanh^2; x/c, the tangent and the product are rounded, the first two also where they underflow. Bias: its
    n terms and the score are added one after the other; of ALiBi also slope and product are rounded. Mask: what is blocked becomes the
    fill, exactly."""
    case, a = of.case, of.centre
    last, narrower = "scaled", rounds_given(case)
    if "scaled" in case["arrays"]["parameters"]:
        if narrower:
            of.settle("scaled", np.zeros(a["scaled"].shape), 1)
    else:
        (vq, q), (vk, k) = latest(of, "q"), latest(of, "k")
        of.settle("qk", product(vq, q, turn(vk), turn(k), of.u))
        found = of.of("qk")
        if PRESCALED in of.kept:
            found = found + 4 * rounding(1.0, of.unit(PRESCALED)) * ((q * q) @ turn(k * k))
        of.settle("scaled", case["scale_factor"] ** 2 * found, 3)
    if case["softcap"]:
        slope = 1 - (a["capped"] / case["softcap"]) ** 2
        lost = 2 * (case["softcap"] * smallest(of.unit("capped"))) ** 2 / 3
        of.settle("capped", slope**2 * (of.of("scaled") + of.rounding("capped", a["scaled"])) + lost, 2)
        last = "capped"
    if case["alibi"]:
        of.settle("slopes", np.zeros(a["slopes"].shape), 2)
    if "buckets" in a:
        of.settle("buckets", np.zeros(a["buckets"].shape))
    found = of.of(last)
    if "bias" in a:
        _, spread, n = added(of)
        own = (n - 1 + 2 * bool(case["alibi"]) + (n == 1 and narrower)) * of.rounding("bias", spread)
        if n > 1 or case["alibi"] or narrower:
            of.settle("bias", np.broadcast_to(own, a["bias"].shape))
        else:
            of.variance["bias"] = None
        found = found + own + n * of.rounding("masked", np.abs(finite(a[last])) + spread)
    if "keep" in a:
        found = np.where(a["keep"], found, 0.0)
    of.settle("masked", found, 0)
