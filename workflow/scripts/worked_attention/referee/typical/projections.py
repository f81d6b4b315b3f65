"""Typical errors of the projections: products with the weights, sinusoids, norm, rotation, cache and appended keys."""

import numpy as np

from worked_attention.referee.bounds.projections import lost_squares
from worked_attention.referee.typical.rounding import Spread, product
from worked_attention.stages import positions
from worked_attention.stages.catalogue import SOURCES
from worked_attention.stages.projections import SHARED, extend, split_heads

LITTLE = 1 / 8  # a part of r^2 up to which its error moves r by half of it


def project(of: Spread, name: str, x: str, w: str, b: str) -> None:
    """Y = X W^T + b: that of the product; where there is a bias, the product is stored once before it is added."""
    a = of.centre
    if w not in a:
        of.variance[name] = of.variance.get(x)
        return
    found = product(of.variance.get(x), a[x], None, a[w].T, of.u)
    if b in a:
        found = found + of.rounding(name, np.abs(a[name]) + np.abs(a[b]))
    of.settle(name, found)


def norm(of: Spread, name: str, x: str, gain: str) -> None:
    """y = g x / r: dy_i = g (dx_i / r) - y_i / r^2 sum_j x_j dx_j / n; r, its inverse, the quotient and the gain are rounded. Squares that
    are lost to underflow move r^2; where that is much, or squares may overflow, nothing can be told."""
    a, options = of.centre, of.case["qk_norm"]
    n = SHARED[options["kind"]](a[x].shape[-1])
    inverse = 1 / ((a[x] ** 2).sum(axis=-1, keepdims=True) / n + options["eps"])  # 1 / r^2
    g = a.get(gain, np.ones(()))
    along = (a[x] ** 2 * of.of(x)).sum(axis=-1, keepdims=True) / n**2
    lost = lost_squares(np.abs(a[x]), options, of.u) * inverse
    lost = np.where(lost < LITTLE, lost, np.inf)
    of.settle(name, g * g * inverse * of.of(x) + (a[name] * inverse) ** 2 * along + (a[name] * lost) ** 2, 4)


def turned(of: Spread, name: str, x: np.ndarray, variance: np.ndarray, where: list[int]) -> np.ndarray:
    """Variance of (a cos - b sin, a sin + b cos) before it is stored: of a and b, of the table and of both products, in the format of
    `name`. Columns that are not rotated keep theirs.

    x, variance: [..., L, d]. where: positions of the L tokens.
    """
    options = of.case["rotary"]
    cos, sin = (table**2 for table in positions.turns(np.array(where), options))

    def spread(y: np.ndarray) -> np.ndarray:
        """a cos^2 + b sin^2 and a sin^2 + b cos^2: `rotate` with both signs positive."""
        return np.maximum(positions.rotate(y, cos, -sin, options["pairing"]), positions.rotate(y, cos, sin, options["pairing"]))

    turning = np.arange(x.shape[-1]) < options["dims"]
    return np.where(turning, spread(variance + 2 * of.rounding(name, x)), variance)


def stage(of: Spread) -> None:
    """Projections in the order of the stage; splitting, appending to the cache and appending keys move errors and make none."""
    case, a, wanted = of.case, of.centre, of.case["arrays"]["projections"]
    where = {"q": case["query_positions"], "k": case["key_positions"]}
    for name in ("x", "x_kv"):
        if f"{name}_pos" in wanted:  # a sine or cosine is at most 1
            of.settle(f"{name}_pos", of.of(name) + of.rounding(f"{name}_pos", np.ones(())))
    for name in "qkv":
        if name in wanted and name not in case["arrays"]["parameters"]:
            project(of, name, next(s for s in SOURCES[name] if s in a), f"w_{name}", f"b_{name}")
        heads = f"{name}_heads"
        if heads in wanted and heads not in case["arrays"]["parameters"]:
            of.variance[heads] = split_heads(of.of(name), case["heads"] if name == "q" else case["kv_heads"])
    if "inv_freq" in wanted:  # computed in float64: what is left is to store them
        for name in ("inv_freq", "query_cos", "query_sin", "key_cos", "key_sin"):
            of.settle(name, np.zeros(a[name].shape), 2)
    for name in "qk":
        last = f"{name}_heads"
        if f"{name}_norm" in wanted:
            norm(of, f"{name}_norm", last, f"g_{name}")
            last = f"{name}_norm"
        if f"{name}_rot" in wanted:
            of.settle(f"{name}_rot", turned(of, f"{name}_rot", a[last], of.of(last), where[name]))
    for name in "kv":
        last = next((form for form in (f"{name}_rot", f"{name}_norm") if form in a), f"{name}_heads")
        if f"present_{name}" in wanted:
            of.variance[f"present_{name}"] = np.concatenate([np.zeros(a[f"past_{name}"].shape), of.of(last)], axis=-2)
            last = f"present_{name}"
        if f"{name}_extended" in wanted:
            bias = np.zeros(a[f"bias_{name}"].shape) if f"bias_{name}" in a else None
            of.variance[f"{name}_extended"] = extend(of.of(last), bias, case["extra_key"] == "zero", case["kv_heads"])
