"""Bounds of the projections: products, sinusoids, norms, rotations; splitting and appending make no error."""

import math

import numpy as np

from worked_attention.referee.bounds.rounding import UNIT, Errors, finish, gamma, largest, most, product, smallest, terms
from worked_attention.stages import positions
from worked_attention.stages.catalogue import source
from worked_attention.stages.projections import SHARED, extend, split_heads


def project(of: Errors, name: str, x: str, w: str, b: str) -> None:
    """Y = X W^T + b: E_Y = E_X |W|^T + gamma_(n+1) (M_X |W|^T + |b|) with n the width of X; without W, E_Y = E_X."""
    ex, mx, a = of.bound.get(x), of.most(x), of.centre
    if w not in a:
        of.bound[name] = of.of(x)
        return
    g = gamma(terms(a[x].shape[-1] + 1, of, name), of.u)
    error = product(ex, mx, None, np.abs(a[w]).T, g) if ex is None else (ex + g * mx) @ np.abs(a[w]).T
    if b not in a:
        of.settle(name, error)
    else:
        narrow = of.unit(name) > of.u  # the product may be stored before b is added; it is at most |Y| + |b|
        of.settle(name, error + (g + narrow * gamma(2, of.unit(name))) * np.abs(a[b]), 2 * narrow)


def angle_error(where: list[int], base: float, pairs: int, width: int, factor: float = 1.0) -> np.ndarray:
    """Bound [L, pairs] on the error of the angles p base^(-2i/width) in float64: the power loses 1 ulp, and ln(base) u for its exponent;
    the product and the rules for longer contexts, which only make angles smaller, a few u: (16 + 2 ln(base) + 2 ln(factor)) u in all."""
    theta = float(base) ** (-2.0 * np.arange(pairs) / width)
    return (16 + 2 * abs(math.log(base)) + 2 * math.log(factor)) * UNIT["float64"] * np.multiply.outer(where, theta)


def sinusoids(of: Errors, name: str, x: str, where: list[int]) -> None:
    """x + s: s is off by the error of its angle (sine and cosine are 1-Lipschitz) and 2 u |s|, |s| <= 1; then one addition."""
    base, width = of.case["sinusoidal"]["base"], of.centre[x].shape[-1]
    off = np.repeat(angle_error(where, base, (width + 1) // 2, width), 2, axis=-1)[:, :width]
    of.settle(name, of.of(x) + off + 2 * of.unit(name), 1)


def lost_squares(x: np.ndarray, options: dict, u: float) -> np.ndarray:
    """[..., 1]: how far r^2 = sum x^2 / n + eps may be off, for squares and eps may underflow in the arithmetic u if nobody scales them:
    each by `smallest`. Infinite where they may overflow, for then r is infinite and x / r is 0."""
    with np.errstate(over="ignore"):
        squares = (x * x).sum(axis=-1, keepdims=True) + options["eps"]
    lost = (x.shape[-1] + 1) * smallest(u) / SHARED[options["kind"]](x.shape[-1])
    return np.where(squares > largest(u) / 2, math.inf, lost)


def inverse_size(x: np.ndarray, ex: np.ndarray, options: dict, u: float) -> tuple[np.ndarray, np.ndarray, int]:
    """(eta, low, n) for r = sqrt(sum x^2 / n + eps): r is the length of the vector (x / sqrt(n), sqrt(eps)), so an error E of x moves it by
    at most |E| / sqrt(n). Squares that are lost in the arithmetic u move r^2 by `lost_squares`, and r by that over the least r. Both
    together are eta, and exact and computed r are at least low = r(centre) - 2 eta (0 where that is negative)."""
    n = SHARED[options["kind"]](x.shape[-1])
    eta = np.sqrt((ex * ex).sum(axis=-1, keepdims=True) / n)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        r = np.sqrt((x * x).sum(axis=-1, keepdims=True) / n + options["eps"])
        eta = eta + lost_squares(np.abs(x) + 2 * ex, options, u) / np.maximum(r - 2 * eta, 0.0)
        low = np.maximum(r - 2 * eta, 0.0)
    return eta, np.where(np.isnan(low), 0.0, low), n


def norm(of: Errors, name: str, x: str, gain: str) -> None:
    """y = g x / r: |y' - y| <= (|g| E_x + |y| |r' - r|) / r' <= (|g| E_x + |y| eta) / low, and |y| <= |centre| + E gives
    E = (|g| E_x + |centre| eta) / (low - eta); 0 where x is known to be 0, also where r is 0 too. The sum of squares, eps, root,
    division and gain are at most d + 8 roundings."""
    a, ex = of.centre, of.of(x)
    eta, low, _ = inverse_size(a[x], ex, of.case["qk_norm"], of.u)
    roundings, unit = a[x].shape[-1] + 8, of.unit(name)
    gained = np.abs(a[gain]) * ex if gain in a else ex
    with np.errstate(divide="ignore", invalid="ignore"):
        error = (gained + (1 + 2 * gamma(roundings, unit)) * np.abs(a[name]) * eta) / np.maximum(low - eta, 0.0)
    error = np.where((np.abs(a[x]) + ex).any(axis=-1, keepdims=True), np.where(np.isnan(error), math.inf, error), 0.0)
    of.settle(name, finish(a[name], error, roundings, of.u), 2 * (unit > of.u))


SCALED = {  # by rule for longer contexts, none of which makes an angle larger: the stretch of cosine and sine, and how much longer
    "linear": lambda scaling: (1.0, scaling["factor"]),
    "ntk": lambda scaling: (1.0, scaling["factor"]),
    "llama3": lambda scaling: (1.0, scaling["factor"]),
    "yarn": lambda scaling: (0.1 * math.log(scaling["factor"]) + 1, scaling["factor"]),
}


def tables(of: Errors) -> None:
    """Frequencies, cosines and sines, computed in float64 and stored: theta within the relative error of an angle; the others by the
    error of theirs, for sine and cosine are 1-Lipschitz, and 4 u for them and the stretch."""
    case, options = of.case, of.case["rotary"]
    stretch, longer = SCALED[options["scaling"]["rule"]](options["scaling"]) if options["scaling"] else (1.0, 1.0)

    def off(where: list[int]) -> np.ndarray:
        return angle_error(where, options["base"], options["dims"] // 2, options["dims"], longer)

    of.settle("inv_freq", off([1])[0], 1)
    for word, where in (("query", case["query_positions"]), ("key", case["key_positions"])):
        for wave in ("cos", "sin"):
            of.settle(f"{word}_{wave}", stretch * (off(where) + 4 * UNIT["float64"]), 1)


def turned(x: np.ndarray, ex: np.ndarray, where: list[int], options: dict, unit: float) -> np.ndarray:
    """Error of (a cos - b sin, a sin + b cos): E_a |cos| + E_b |sin| and so on; M_a + M_b times the error of the angle, for sine and
    cosine are 1-Lipschitz; gamma_4 (M_a |cos| + M_b |sin|) to round table, products and sum. Columns that are not rotated keep theirs."""
    width = x.shape[-1]
    dims, scaling = options["dims"], options["scaling"]
    stretch, longer = SCALED[scaling["rule"]](scaling) if scaling else (1.0, 1.0)
    off = stretch * (angle_error(where, options["base"], dims // 2, dims, longer) + 4 * UNIT["float64"])
    cos, sin = map(np.abs, positions.turns(np.array(where), options))
    m, g = most(x, ex), gamma(4, unit)

    def spread(y: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
        """|a| |cos| + |b| |sin| and |a| |sin| + |b| |cos|: `rotate` with both signs positive."""
        return np.maximum(positions.rotate(y, c, -s, options["pairing"]), positions.rotate(y, c, s, options["pairing"]))

    error = spread(ex, cos + off, sin + off) + spread(m, off + g * (cos + off), off + g * (sin + off))
    turning = np.zeros(width, bool)
    turning[:dims] = True
    return np.where(turning, error, ex)


def stage(of: Errors) -> None:
    """Projections in the order of the stage; splitting, appending to the cache and appending keys move errors and make none."""
    case, a, wanted = of.case, of.centre, of.case["arrays"]["projections"]
    where = {"q": case["query_positions"], "k": case["key_positions"]}
    if "x_pos" in wanted:
        sinusoids(of, "x_pos", "x", where["q"])
    if "x_kv_pos" in wanted:
        sinusoids(of, "x_kv_pos", "x_kv", where["k"])
    given = case["arrays"]["parameters"]
    for name in "qkv":
        if name in wanted and name not in given:
            project(of, name, source(name, a), f"w_{name}", f"b_{name}")
        heads = f"{name}_heads"
        if heads in wanted and heads not in given:
            error = of.bound.get(name)
            of.bound[heads] = None if error is None else split_heads(error, case["heads"] if name == "q" else case["kv_heads"])
    if "inv_freq" in wanted:
        tables(of)
    for name in "qk":
        last = f"{name}_heads"
        if f"{name}_norm" in wanted:
            norm(of, f"{name}_norm", last, f"g_{name}")
            last = f"{name}_norm"
        if f"{name}_rot" in wanted:
            rot = f"{name}_rot"
            of.bound[rot] = turned(a[last], of.of(last), where[name], case["rotary"], of.unit(rot))
            if of.unit(rot) > of.u:
                of.settle(rot, of.bound[rot], 1)
    for name in "kv":
        last = next((form for form in (f"{name}_rot", f"{name}_norm") if form in a), f"{name}_heads")
        if f"present_{name}" in wanted:
            of.bound[f"present_{name}"] = np.concatenate([np.zeros(a[f"past_{name}"].shape), of.of(last)], axis=-2)
            last = f"present_{name}"
        if f"{name}_extended" in wanted:
            bias = np.zeros(a[f"bias_{name}"].shape) if f"bias_{name}" in a else None
            of.bound[f"{name}_extended"] = extend(of.of(last), bias, case["extra_key"] == "zero", case["kv_heads"])
