"""Certified bounds: how far an array may lie from the exact one when it is computed in floating point, element by element.

u is the unit roundoff of the arithmetic (2^-53 for float64, 2^-24 for float32): each operation gives its exact result times 1 + delta,
|delta| <= u. n roundings one after the other make at most gamma_n = n u / (1 - n u) (Higham 2002, lemma 3.1), so a sum of n products is
within gamma_n sum |a| |b| in any order, with or without fused multiply-add. Arrays that are stored in fewer bits between the stages
are rounded once more, with a unit roundoff of their own.

Every bound has the same plan. Let E bound |computed - exact|, for the array at hand (the centre c) as for any other that is computed
in this arithmetic. Then |exact| <= |c| + E and |computed| <= |c| + 2E, which is called M below. What comes in with an error goes
through the formula (error of a product: |A'B' - AB| <= E_A M_B + M_A E_B), and the roundings of the formula itself are added.
Numbers that underflow add the smallest normal number. Where exact is infinite or NaN (a masked score, the weights of an empty row),
computed must be the same, and E is 0. E is infinite where nothing can be said.

Conventions hold as the case names them: angles of positions are computed in float64 and rounded as `rotary.angles` says.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from worked_attention.stages import backward, positions
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE, STAGES
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.masks import append_keys, fill_value
from worked_attention.stages.projections import extend, latest, split_heads
from worked_attention.stages.scores import repeat_heads
from worked_attention.stages.whole import from_parameters

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SAFE = 1 + 1e-9  # for the rounding of the bounds themselves
EXP = 8  # an exponential is right within 4 units in the last place, 8 u

INNER = {"weights": {"weights", "dropped"}, "scores": {"qk", "scaled", "capped", "bias", "masked"}}
OUTER = {name for name, array in CATALOGUE.items() if array.stage != "parameters"} - INNER["weights"] - INNER["scores"]
PRESCALED = "Q sqrt(s)"  # what some make of queries and keys before the product; no array of ours
CONTRACTS = {  # which arrays are rounded to half precision, the strictest first; all sums and exponentials are float32
    "float32 accumulation": OUTER,
    "weights stored in half": OUTER | INNER["weights"],
    "scores and weights stored in half": OUTER | INNER["weights"] | INNER["scores"],
    "queries and keys scaled in half": OUTER | INNER["weights"] | INNER["scores"] | {PRESCALED},
}


def gamma(n: float, u: float) -> float:
    """n u / (1 - n u), the most that n roundings make; infinite from n u = 1 on."""
    return n * u / (1 - n * u) if n * u < 1 else math.inf


def smallest(u: float) -> float:
    """Error of a number that underflows, in the format with unit roundoff u: its smallest normal one, in float16 half a subnormal step.

    For float64 it is 2^-960, so that the bounds are computed without subnormal numbers, which are slow.
    """
    return 2.0**-960 if u < 2.0**-24 else 2.0**-25 if u == UNIT["float16"] else 2.0**-126


def largest(u: float) -> float:
    """The largest finite number of the format with unit roundoff u."""
    return np.finfo(np.float64).max if u < 2.0**-24 else 65504.0 if u == UNIT["float16"] else (2 - 2 * u) * 2.0**127


def fused(n: int) -> int:
    """Roundings of a sum of n terms with a softmax: n, 6 for each rescaling if it is made online in blocks of 16 keys, and 2 to divide."""
    return n + 6 * ((n - 1) // 16) + 2


@dataclass
class Errors:
    """The bounds so far, with the case, the centres (float64) and the arithmetic that they are for."""

    case: dict
    centre: dict[str, np.ndarray]
    u: float
    kept: dict[str, float]
    bound: dict[str, np.ndarray] = field(default_factory=dict)
    sums: np.ndarray | float = 0.0  # bound on how far the sum of a row of weights (or of dropped ones) is from the exact sum

    def unit(self, name: str) -> float:
        """Unit roundoff of one operation whose result is `name`: never finer than the array is stored."""
        return max(self.u, self.kept.get(name, self.u))

    def of(self, name: str) -> np.ndarray:
        """E of an array; zeros if it is known exactly."""
        found = self.bound.get(name)
        return np.zeros(self.centre[name].shape) if found is None else found

    def most(self, name: str) -> np.ndarray:
        """M of an array: no exact or computed value is larger. Infinite and NaN elements count as 0; see `settle`."""
        return most(self.centre[name], self.bound.get(name))

    def settle(self, name: str, error: np.ndarray, roundings: float = 0) -> None:
        """Note the bound of `name`: `error` so far, then `roundings` of the result, at least one where it is stored in fewer bits."""
        unit = self.unit(name)
        self.bound[name] = finish(self.centre[name], error, max(roundings, float(unit > self.u)), unit)


def most(centre: np.ndarray, error: np.ndarray | None) -> np.ndarray:
    """|centre| + 2 E, and 0 where the centre is infinite or NaN."""
    size = np.abs(centre)
    if not np.isfinite(size.sum()):
        size = np.where(np.isfinite(size), size, 0.0)
    return size if error is None else size + 2 * error


def finish(centre: np.ndarray, error: np.ndarray, roundings: float, unit: float) -> np.ndarray:
    """E after the last `roundings` of a result: from |computed - exact| <= E0 + g (|exact| + E0), g = gamma_roundings, and
    |exact| <= |centre| + E follows E = (E0 + g (|centre| + E0)) / (1 - g). Infinite beyond the largest number of the format."""
    g, size = gamma(roundings, unit), np.abs(centre)
    if g >= 0.5:
        return np.where(np.isfinite(centre), math.inf, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        error = error * ((1 + g) / (1 - g) * SAFE) + size * (g / (1 - g) * SAFE)
    regular = size.max(initial=0.0) <= largest(unit) and np.isfinite(error.sum())
    if not regular:
        error = np.where((size > largest(unit)) | np.isnan(error), math.inf, error)
    error = np.where((size > 0) | (error > 0), error + 4 * smallest(unit), 0.0)
    return error if regular else np.where(np.isfinite(centre), error, 0.0)


def product(ea: np.ndarray | None, ma: np.ndarray, eb: np.ndarray | None, mb: np.ndarray, g: float) -> np.ndarray:
    """Error of a product A B of matrices: E_A M_B + M_A E_B + g M_A M_B, as one product of matrices twice as deep; g = gamma_n."""
    second = g * mb if eb is None else eb + g * mb
    if ea is None:
        return ma @ second
    return np.concatenate([ea, ma], axis=-1) @ np.concatenate([mb, second], axis=-2)


def terms(n: int, of: Errors, name: str) -> int:
    """Roundings of a sum of n products: n, and 2 if its factors are first rounded to the coarser arithmetic of the sum."""
    return n + 2 * (of.u > of.kept.get(name, of.u))


# Projections


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


def inverse_size(x: np.ndarray, ex: np.ndarray, options: dict) -> tuple[np.ndarray, np.ndarray, int]:
    """(eta, low, n) for r = sqrt(sum x^2 / n + eps): r is the length of the vector (x / sqrt(n), sqrt(eps)), so an error E of x moves it by
    at most eta = |E| / sqrt(n), and exact and computed r are at least low = r(centre) - 2 eta (0 where that is negative)."""
    n = x.shape[-1] if options["kind"] == "rms" else 1
    eta = np.sqrt((ex * ex).sum(axis=-1, keepdims=True) / n)
    return eta, np.maximum(np.sqrt((x * x).sum(axis=-1, keepdims=True) / n + options["eps"]) - 2 * eta, 0.0), n


def norm(of: Errors, name: str, x: str, gain: str) -> None:
    """y = g x / r: |y' - y| <= (|g| E_x + |y| |r' - r|) / r' <= (|g| E_x + |y| eta) / low, and |y| <= |centre| + E gives
    E = (|g| E_x + |centre| eta) / (low - eta). The sum of squares, eps, root, division and gain are at most d + 8 roundings."""
    a, ex = of.centre, of.of(x)
    eta, low, _ = inverse_size(a[x], ex, of.case["qk_norm"])
    roundings, unit = a[x].shape[-1] + 8, of.unit(name)
    gained = np.abs(a[gain]) * ex if gain in a else ex
    with np.errstate(divide="ignore", invalid="ignore"):
        error = (gained + (1 + 2 * gamma(roundings, unit)) * np.abs(a[name]) * eta) / np.maximum(low - eta, 0.0)
    error = np.where(np.isnan(error), math.inf, error)
    of.settle(name, finish(a[name], error, roundings, of.u), 2 * (unit > of.u))


def turned(x: np.ndarray, ex: np.ndarray, where: list[int], options: dict, unit: float) -> np.ndarray:
    """Error of (a cos - b sin, a sin + b cos): E_a |cos| + E_b |sin| and so on; M_a + M_b times the error of the angle, for sine and
    cosine are 1-Lipschitz; gamma_4 (M_a |cos| + M_b |sin|) to round table, products and sum. Columns that are not rotated keep theirs."""
    width = x.shape[-1]
    dims, base, scaling = options.get("dims", width), options.get("base", 10000.0), options.get("scaling")
    theta, stretch = positions.frequencies(dims, base, scaling)
    angle = positions.angles(np.array(where), theta, np.dtype(options.get("angles", "float64")))
    off = stretch * (angle_error(where, base, dims // 2, dims, (scaling or {}).get("factor", 1.0)) + 4 * UNIT["float64"])
    cos, sin = (np.abs(stretch * f(angle)) for f in (np.cos, np.sin))
    m, g = most(x, ex), gamma(4, unit)

    def spread(y: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
        """|a| |cos| + |b| |sin| and |a| |sin| + |b| |cos|: `rotate` with both signs positive."""
        return np.maximum(positions.rotate(y, c, -s, options["pairing"]), positions.rotate(y, c, s, options["pairing"]))

    error = spread(ex, cos + off, sin + off) + spread(m, off + g * (cos + off), off + g * (sin + off))
    turning = np.zeros(width, bool)
    turning[:dims] = True
    return np.where(turning, error, ex)


def project_all(of: Errors) -> None:
    """Projections in the order of the stage; splitting, appending to the cache and appending keys move errors and make none."""
    case, a, wanted = of.case, of.centre, of.case["arrays"]["projections"]
    where = {"q": case["query_positions"], "k": case["key_positions"]}
    if "x_pos" in wanted:
        sinusoids(of, "x_pos", "x", where["q"])
    if "x_kv_pos" in wanted:
        sinusoids(of, "x_kv_pos", "x_kv", where["k"])
    sources = {"q": ("x_pos", "x"), "k": ("x_k", "x_kv_pos", "x_kv", "x_pos", "x"), "v": ("x_v", "x_kv_pos", "x_kv", "x_pos", "x")}
    given = case["arrays"]["parameters"]
    for name in "qkv":
        if name in wanted and name not in given:
            project(of, name, next(s for s in sources[name] if s in a), f"w_{name}", f"b_{name}")
        heads = f"{name}_heads"
        if heads in wanted and heads not in given and name in of.bound:
            of.bound[heads] = split_heads(of.bound[name], case["heads"] if name == "q" else case["kv_heads"])
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


# Scores


def last_name(arrays: dict, name: str) -> str:
    """Name of the last form of the queries, keys or values."""
    return next(f for f in (f"{name}_extended", f"present_{name}", f"{name}_rot", f"{name}_norm", f"{name}_heads") if f in arrays)


def latest_error(of: Errors, name: str) -> tuple[np.ndarray | None, np.ndarray]:
    """(E, M) of the last form of queries, keys or values, repeated for the query heads; E is None where it is known exactly."""
    last = last_name(of.centre, name)
    error, heads = of.bound.get(last), of.case["heads"]
    error = None if error is None or not error.any() else repeat_heads(error, heads)
    return error, repeat_heads(of.most(last), heads)


def transposed(x: np.ndarray | None) -> np.ndarray | None:
    return None if x is None else np.swapaxes(x, -1, -2)


def products(of: Errors) -> np.ndarray:
    """Q K^T: E_Q M_K^T + M_Q E_K^T + gamma_d M_Q M_K^T. Returned is the error of (Q sqrt(s)) (K sqrt(s))^T over |s|, which rounds every
    element of Q and of K once more: gamma_2 M_Q M_K^T more, and not a part of the result, for its terms may cancel."""
    (eq, mq), (ek, mk) = latest_error(of, "q"), latest_error(of, "k")
    n, stored = terms(mq.shape[-1], of, "qk"), of.unit(PRESCALED)
    error = product(eq, mq, transposed(ek), transposed(mk), gamma(n, of.u))
    of.settle("qk", error)
    if stored == of.u:  # gamma_2 is then at most this part of gamma_n, and need not be multiplied out
        return of.of("qk") * (gamma(n + 2, of.u) / gamma(n, of.u) if (n + 2) * of.u < 1 else math.inf)
    return of.of("qk") + gamma(2, stored) * (mq @ transposed(mk))


def added(of: Errors) -> tuple[np.ndarray, np.ndarray, int]:
    """(error, sum of |terms|, number of terms) of what is added to the scores. Tables and masks are exact; an ALiBi slope is a power of two
    computed in float64 within (16 + 2 H) u, rounded with its product at most 4 times in the case's arithmetic."""
    case, a = of.case, of.centre
    i, j = np.array(case["query_positions"]), np.array(case["context_positions"])
    sizes = [np.abs(a[name]) for name in ("bias_table", "mask_add") if name in a]
    if "mask_key_add" in a:
        sizes.append(np.abs(a["mask_key_add"])[..., None, None, :])
    if "t5_table" in a:
        sizes.append(positions.t5_bias(np.abs(a["t5_table"]), i, j, case["t5"]))
    error = np.zeros(())
    if case["alibi"]:
        sizes.append(np.abs(positions.alibi(i, j, case["heads"], case["alibi"]["slopes"], case["alibi"]["form"])))
        error = sizes[-1] * (4 * of.unit("bias") + (16 + 2 * case["heads"]) * UNIT["float64"])
    spread = sum(np.where(np.isfinite(size), size, 0.0) for size in sizes)
    extra = case["dims"]["Lk"] - case["dims"]["Lc"]
    return append_keys(np.broadcast_to(error, spread.shape), extra, 0.0), append_keys(spread, extra, 0.0), len(sizes)


def score_all(of: Errors) -> None:
    """The stage in its order. Scale: |s| E + 6 u |scaled|, with E from `products`; six roundings cover what comes of sqrt(s) itself.
    Softcap c tanh(x/c): the slope is at most 1, and a relative error of x/c is at most the same of tanh; 10 roundings with 4 ulp for tanh.
    Bias: n terms and the score are added in any order, within gamma_n of the sum of all sizes. Mask: what is blocked becomes the fill, a
    number of the dtype, exactly.
    """
    case, a = of.case, of.centre
    last = "scaled"
    if "scaled" not in case["arrays"]["parameters"]:
        of.settle("scaled", abs(case["scale_factor"]) * products(of), 6)
    if case["softcap"]:
        of.settle("capped", of.of("scaled"), 10)
        last = "capped"
    error = of.of(last)
    if "bias" in a:
        own, spread, n = added(of)
        unit = of.unit("bias")
        rounded = own + gamma(n - 1, unit) * spread
        if n > 1 or case["alibi"]:
            of.settle("bias", np.broadcast_to(rounded, a["bias"].shape))
        error = error + own + gamma(n + 2 * (unit > of.u), unit) * (of.most(last) + spread)
    if "keep" in a:
        error = np.where(a["keep"], error, 0.0)
    error = np.where(np.abs(a["masked"]) > largest(of.unit("masked")), math.inf, error)
    of.bound["masked"] = np.where(np.isfinite(a["masked"]), error, 0.0)


# Weights


def read_scores(of: Errors) -> tuple[np.ndarray, np.ndarray]:
    """(centre, E) of the scores as the softmax reads them: rounded once more if its arithmetic is coarser than theirs."""
    x, ex = of.centre["masked"], of.of("masked")
    return x, ex + of.u * most(x, ex) if of.u > of.kept.get("masked", of.u) else ex


def softmax(of: Errors) -> None:
    """P = exp(x_j - m) / S. The softmax does not change when all x move together, so let m be the computed maximum itself.

    Exponent j is off by eta_j = E_j + 4 u |x_j - m|: the error of the score, and the roundings of the difference (4 rather than 1,
    for exponentials in base 2 and sums that are rescaled as the maximum grows). So exp_j is off by a factor 1 + r_j,
    |r_j| <= rho_j = e^eta_j (1 + EXP u) - 1. From P_i' / P_i = (1 + r_i) / (1 + sum_j P_j r_j) follows a relative error of at most
    [(1 - P_i) rho_i + sum_(j != i) P_j rho_j] / (1 - rho_bar), rho_bar = sum_j P_j rho_j; the sum and the division add gamma_fused(n).
    The exact P_j is at most (1 + rho_j) / (1 - rho_bar) times the centre's. Where rho_bar >= 1 a weight may be anything from 0 to 1, and
    NaN if a score overflows. A score so far below the maximum that eta_j >= 1 has exact and computed weights below
    e^(2 eta_j + 2 eta_m - (m - x_j)). A sink is one more score, known exactly.

    `sums`: computed weights are divided by their own sum, so a row adds up to 1 within gamma_(2 fused(n)), whatever the scores' errors.
    """
    case, a = of.case, of.centre
    (x, ex), p = read_scores(of), a["weights"]
    g = gamma(fused(x.shape[-1]), of.u)
    if np.isinf(ex).any():
        ex = np.where(np.isinf(ex) & (x < 0), np.abs(x) / 16, ex)  # a negative score that overflows becomes -inf: less weight, not more
    sink = np.zeros(case["heads"]) if case["softmax"] == "plus_one" else a.get("sinks")
    if sink is not None:
        sink = np.broadcast_to(sink[:, None, None], (*x.shape[:-1], 1))
        off = of.u * most(sink, None) if of.u > of.kept.get("masked", of.u) else np.zeros(sink.shape)
        x, ex = np.concatenate([x, sink], axis=-1), np.concatenate([ex, off], axis=-1)
        p = np.concatenate([p, sink_weight(x)], axis=-1)
    top = x.max(axis=-1, keepdims=True)
    empty = top == -np.inf
    top = np.where(empty, 0.0, top)
    blocked = x == -np.inf
    below = np.where(blocked, 0.0, top - x)
    p = np.where(blocked, 0.0, p)
    above = np.where(empty, 0.0, (x + 2 * ex).max(axis=-1, keepdims=True) - top)  # the computed maximum over the centre's
    eta = ex * (1 + 8 * of.u) + 4 * of.u * (below + above)
    far = eta >= 1
    leak = 0.0
    if some_far := bool(far.any()):
        first = np.take_along_axis(eta, x.argmax(axis=-1)[..., None], axis=-1)
        leak = np.nan_to_num(np.exp(2 * eta + 2 * first - below), nan=math.inf, posinf=math.inf) * (1 + EXP * of.u)
        eta = np.where(far, 0.0, eta)
    rho = eta / (1 - eta / 2) * (1 + EXP * of.u) + EXP * of.u  # e^eta - 1 <= eta / (1 - eta/2)
    share = np.where(far, leak, p * rho) if some_far else p * rho
    rough = share.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        up = (1 + rho) * ((1 + g) / np.maximum(1 - rough, 0.0))  # times p: at least the exact P
        bar = (share * up).sum(axis=-1, keepdims=True)
        own = share * (1 - rho) * (2 * (1 - g) / (1 + bar))  # at most 2 P_i rho_i
        left = (1 + g) / np.maximum(1 - bar, 0.0)
        error = p * up * ((rho + bar - own) * left + g) + 4 * x.shape[-1] * smallest(of.u)
    if some_far:
        error = np.where(far, leak * left, error)
    error = np.where(blocked, 0.0, np.fmin(error, 1 + 2 * g))  # no weight, exact or computed, is outside 0 and 1 + 2 gamma
    if not np.all((rough < 1) & (bar < 1)):
        lost = np.where(np.isinf(ex).any(axis=-1, keepdims=True), math.inf, 1 + 2 * g)
        error = np.where((rough < 1) & (bar < 1) | blocked, error, lost)
    lost = error[..., -1:] if sink is not None else 0.0
    error = error[..., : a["weights"].shape[-1]]
    if case["mask"]["empty_row"] == "uniform":
        error = np.where(empty, of.u, error)
    of.settle("weights", error)
    error, unit = of.bound["weights"], of.unit("weights")
    stored = unit + x.shape[-1] * smallest(unit) if unit > of.u else 0.0
    of.sums = np.minimum(error.sum(axis=-1, keepdims=True), lost + (gamma(2 * fused(x.shape[-1]), of.u) + stored) * (1 + 4 * g)) * SAFE


def sink_weight(x: np.ndarray) -> np.ndarray:
    """Weight [..., 1] of the sink, the last column of x."""
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return (shifted / shifted.sum(axis=-1, keepdims=True))[..., -1:]


def hardmax(of: Errors) -> None:
    """Exact unless another score could be the largest: then 1 for each that could. Of scores without error the rule takes the first."""
    x, ex = read_scores(of)
    floor = (x - 2 * ex).max(axis=-1, keepdims=True)
    could = (x + 2 * ex >= floor) & (x > -np.inf)
    open_ = could.sum(axis=-1, keepdims=True) > 1
    open_ &= np.where(could, ex, 0.0).max(axis=-1, keepdims=True) > 0
    of.bound["weights"] = np.where(could & open_, 1.0, 0.0)
    of.sums = np.zeros((*x.shape[:-1], 1))


def weigh_all(of: Errors) -> None:
    """The softmax, then dropout: E keep / (1 - p), with roundings for 1 - p, which loses relatively more as p nears 1."""
    (hardmax if of.case["softmax"] == "hardmax" else softmax)(of)
    if "dropout_keep" in of.centre:
        p = of.case["dropout"]
        of.settle("dropped", of.of("weights") * of.centre["dropout_keep"] / (1 - p), 4 + 2 * p / (1 - p))
        of.sums = of.of("dropped").sum(axis=-1, keepdims=True)


# Contexts and outputs


def context_all(of: Errors) -> None:
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


def output_all(of: Errors) -> None:
    """concat W_O^T + b_O, as any projection."""
    if "concat" in of.centre:
        project(of, "output", "concat", "w_o", "b_o")


# Backward


def backward_all(of: Errors) -> None:
    """Every gradient, by the chain rule of attention.backward: products of matrices as before; the rest in functions of their own."""
    case, a = of.case, of.centre
    if not case["backward"]:
        return
    e, m = {}, {}  # E and M of each gradient, those that the case does not show included

    def note(name: str, error: np.ndarray, roundings: float = 0) -> None:
        of.settle(f"d_{name}", np.broadcast_to(error, a[f"d_{name}"].shape), roundings)
        e[name], m[name] = of.bound[f"d_{name}"], of.most(f"d_{name}")

    def linear(dy: str, x: str, w: str) -> np.ndarray:
        """Notes dW = dY^T X and db = sum dY over n rows; the error of dX = dY W before it is stored."""
        (ey, my), (ex, mx), width = (e[dy], m[dy]), (of.bound.get(x), of.most(x)), a[w].shape[0]
        rows = [None if y is None else y.reshape(-1, y.shape[-1]) for y in (ey, my, ex, mx)]
        n = len(rows[1])
        note(w, product(transposed(rows[0]), transposed(rows[1]), rows[2], rows[3], gamma(n + 2, of.unit(f"d_{w}"))))
        if f"d_b{w[1:]}" in a:
            note("b" + w[1:], (rows[0] + gamma(n, of.unit(f"d_b{w[1:]}")) * rows[1]).sum(axis=0))
        return (ey + gamma(width + 4, of.u) * my) @ np.abs(a[w])

    e["output"], m["output"] = np.zeros(a["d_output"].shape), np.abs(a["d_output"])
    of.bound["d_output"] = e["output"]
    note("concat", linear("output", "concat", "w_o") if "w_o" in a else e["output"])
    note("contexts", split_heads(e["concat"], case["heads"]))
    (ev, mv), (ek, mk), (eq, mq) = (latest_error(of, name) for name in "vkq")
    used = "dropped" if "dropped" in a else "weights"
    lq, lk = a["weights"].shape[-2:]
    groups = case["heads"] // case["kv_heads"]
    new = slice(case["dims"]["Lp"], case["dims"]["Lc"])

    def grouped(x: np.ndarray) -> np.ndarray:
        return backward.sum_groups(x, case["kv_heads"])[..., new, :]

    d_values = product(
        transposed(of.bound.get(used)),
        transposed(of.most(used)),
        e["contexts"],
        m["contexts"],
        gamma(lq + groups + 2, of.unit("d_v_heads")),
    )
    error = product(e["contexts"], m["contexts"], transposed(ev), transposed(mv), gamma(mv.shape[-1] + 2, of.u))
    if "dropout_keep" in a:
        p = case["dropout"]
        note("weights", error * a["dropout_keep"] / (1 - p), 5 + 2 * p / (1 - p))
    else:
        note("weights", error)
    softmax_backward(of, e, m, note)
    factor = abs(case["scale_factor"])
    note("scaled", *softcap_backward(of, e, m))
    note("qk", factor * e["scaled"], 6)
    note("v_heads", grouped(d_values), 1)
    d_q = product(e["qk"], m["qk"], ek, mk, gamma(lk + 2, of.u))
    d_k = grouped(product(transposed(e["qk"]), transposed(m["qk"]), eq, mq, gamma(lq + groups + 2, of.unit("d_k_heads"))))
    if case["rotary"] or case["qk_norm"]:
        queries, keys = (repeat_heads(latest(a, name), case["heads"]) for name in "qk")
        d_q = heads_backward(of, "q", a["d_qk"] @ keys, d_q, case["query_positions"])
        d_k = heads_backward(of, "k", grouped(np.swapaxes(a["d_qk"], -1, -2) @ queries), d_k, case["key_positions"])
    note("q_heads", d_q, 1)
    note("k_heads", d_k, 1)
    sources = {"q": ("x",), "k": ("x_k", "x_kv", "x"), "v": ("x_v", "x_kv", "x")}
    parts: dict[str, list[np.ndarray]] = {}
    for name in "qkv":
        if f"d_{name}" in a:
            note(name, merge_heads(e[f"{name}_heads"]))
        source = next((s for s in sources[name] if s in a), None)
        if source is None:
            continue
        if f"w_{name}" in a:
            part = linear(name, f"{source}_pos" if f"{source}_pos" in a else source, f"w_{name}")
            size = m[name] @ np.abs(a[f"w_{name}"])
        else:
            part, size = e[name], m[name]
        parts.setdefault(source, []).append(part + gamma(4, of.unit(f"d_{source}")) * size)
    for source, errors in parts.items():
        note(source, sum(errors), 1)


def softmax_backward(of: Errors, e: dict, m: dict, note) -> None:
    """dS = P (dP - t), t = sum_j P_j dP_j. The error of t is at most sum E_P M_dP + sum M_P E_dP + gamma_n sum M_P M_dP; the first is, for
    the weights add up, also at most sum E_P |dP - t| + |sum P' - sum P| |t|. With a = dP - t this makes E_P M_a + M_P (E_dP + E_t), and
    three roundings of P dP and of P t, so that P dP - P t is covered too."""
    a = of.centre
    unit, ep, mp = of.unit("d_masked"), of.bound.get("weights"), of.most("weights")
    dp, edp, mdp = a["d_weights"], e["weights"], m["weights"]
    t = (np.where(np.isnan(a["weights"]), 0.0, a["weights"]) * dp).sum(axis=-1, keepdims=True)
    away = np.abs(dp - t)
    et = (mp * (edp + gamma(dp.shape[-1] + 2, unit) * mdp)).sum(axis=-1, keepdims=True)
    if ep is not None:
        plain = (ep * mdp).sum(axis=-1, keepdims=True)
        if "dropped" not in a:
            plain = np.minimum(plain, (ep * (away + 2 * edp)).sum(axis=-1, keepdims=True) + of.sums * np.abs(t))
        et = et + plain
    edp = edp + et
    error = mp * (edp + gamma(3, unit) * (mdp + (np.abs(t) + 2 * et)))
    if ep is not None:
        error = error + ep * (away + 2 * edp)
    note("masked", np.where(np.isneginf(a["masked"]), 0.0, error))


def softcap_backward(of: Errors, e: dict, m: dict) -> tuple[np.ndarray, float]:
    """(error, roundings) of d scaled: 0 where blocked. Softcap multiplies by f = 1 - t^2, t = capped / c: E_f = 2 M_t E_t + gamma_12 M_t^2
    + u, and E_d M_f + M_d E_f."""
    a, case = of.centre, of.case
    keep = a.get("keep", True)
    error, size = np.where(keep, e["masked"], 0.0), np.where(keep, m["masked"], 0.0)
    if not case["softcap"]:
        return error, 0
    unit, t = of.unit("d_scaled"), of.most("capped") / case["softcap"]
    ef = 2 * t * of.of("capped") / case["softcap"] + gamma(12, unit) * t * t + unit
    mf = np.abs(1 - (a["capped"] / case["softcap"]) ** 2) + 2 * ef
    return error * mf + size * ef, 2


def heads_backward(of: Errors, name: str, centre: np.ndarray, error: np.ndarray, where: list[int]) -> np.ndarray:
    """Error from the gradient at the last form of queries or keys back to the heads: the rotation by the opposite angle, then the norm."""
    unit = of.unit(f"d_{name}_heads")
    error = finish(centre, error, float(unit > of.u), unit)
    if of.case["rotary"]:
        error = turned(centre, error, where, of.case["rotary"], unit)
        centre = backward.unrotate(centre, np.array(where), of.case["rotary"])
    return norm_backward(of, name, centre, error, unit) if of.case["qk_norm"] else error


def norm_backward(of: Errors, name: str, dy: np.ndarray, error: np.ndarray, unit: float) -> np.ndarray:
    """dX = (y - h w) / r with y = g dY, h = x / r, w = h . y / n. E_h = (E_x + M_h eta) / low and d + 8 roundings, as in `norm`;
    E_w = sum (E_h M_y + M_h E_y) / n + gamma_(d+2) sum M_h M_y / n. The numerator z has E_z = E_y + E_h M_w + M_h E_w +
    gamma_3 (M_y + M_h M_w); the quotient (E_z + M_z eta / low) / low, with d + 8 roundings of r."""
    a = of.centre
    x, ex = a[f"{name}_heads"], of.of(f"{name}_heads")
    options, d = of.case["qk_norm"], a[f"{name}_heads"].shape[-1]
    eta, low, n = inverse_size(x, ex, options)
    gain = a.get(f"g_{name}", 1.0)
    y, ey = dy * gain, np.abs(gain) * error
    my = np.abs(y) + 2 * ey
    ey = ey + unit * my
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = 1 / low
        hat = x * (1 / (low + 2 * eta))
        mhat = (np.abs(x) + 2 * ex) * inverse
        ehat = (ex + mhat * eta) * inverse + gamma(d + 8, unit) * mhat
        mw = np.abs((hat * y).sum(axis=-1, keepdims=True) / n)
        ew = ((ehat * my + mhat * ey).sum(axis=-1, keepdims=True) + gamma(d + 2, unit) * (mhat * my).sum(axis=-1, keepdims=True)) / n
        mw = mw + 2 * ew
        mz = np.abs(y - hat * (hat * y).sum(axis=-1, keepdims=True) / n) + 2 * (ey + ehat * mw + mhat * ew)
        ez = ey + ehat * mw + mhat * ew + gamma(3, unit) * (my + mhat * mw)
        found = (ez + mz * eta * inverse) * inverse + gamma(d + 8, unit) * mz * inverse
    return np.where(np.isfinite(found), found, math.inf)


# Entry points

BOUNDS = dict(zip(STAGES[1:], (project_all, score_all, weigh_all, context_all, output_all, backward_all), strict=True))


def _errors(case: dict, arrays: dict[str, np.ndarray], u: float, u_kept: float | dict[str, float] | None) -> Errors:
    centre = {name: value if name in BOOLEAN else np.asarray(value, dtype=np.float64) for name, value in arrays.items()}
    kept = u_kept if isinstance(u_kept, dict) else {} if u_kept is None else dict.fromkeys((*CATALOGUE, PRESCALED), u_kept)
    return Errors(case, centre, u, kept)


def bounds(case: dict, arrays: dict[str, np.ndarray], u: float, u_kept: float | dict[str, float] | None = None) -> dict[str, np.ndarray]:
    """E of every computed array of a resolved `case`, when all is computed from the exact parameters.

    arrays: every array of the case, computed at least as well as what is bounded (see `centres`); they only serve as centres.
    u: unit roundoff of sums and exponentials. u_kept: unit roundoff of the arrays kept between the stages, one for all or by
    name; u itself where it is not given. Returns float64 arrays of the same shapes: |computed - exact| <= E.
    """
    of = _errors(case, arrays, u, u_kept)
    with np.errstate(over="ignore", invalid="ignore"):
        for bound in BOUNDS.values():
            bound(of)
    return {name: of.of(name) for stage in STAGES[1:] for name in case["arrays"][stage]}


def stage_bounds(
    case: dict, stage: str, arrays: dict[str, np.ndarray], u: float, u_kept: float | dict[str, float] | None = None
) -> dict[str, np.ndarray]:
    """E of every array of one stage, when it is computed from the arrays of the stages before, which are known exactly.

    arrays: those of the stages before, and those of the stage itself as centres. Else as `bounds`.
    """
    of = _errors(case, arrays, u, u_kept)
    with np.errstate(over="ignore", invalid="ignore"):
        BOUNDS[stage](of)
    return {name: of.of(name) for name in case["arrays"][stage]}


# Arithmetics and what they are called


def centres(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every array of the case in float64, from its parameters as they are: centres for bounds of any arithmetic."""
    fill = np.asarray(fill_value(case["mask"]["fill"], np.dtype(case["dtype"])))
    with np.errstate(over="ignore"):
        mask = case["mask"] | {"fill": float(fill.astype(case["dtype"]))}
    wide = case | {"dtype": "float64", "precision": {"accumulate": "float64", "softmax": "float64"}, "mask": mask}
    made = {name: arrays[name] for name in case["arrays"]["parameters"]}
    return from_parameters(wide, {name: value if name in BOOLEAN else value.astype(np.float64) for name, value in made.items()})


def roundoffs(case: dict) -> tuple[float, float]:
    """(u, u_kept) of the arithmetic that the case names."""
    return max(UNIT[case["precision"][part]] for part in ("accumulate", "softmax")), UNIT[case["dtype"]]


def contract(name: str, dtype: str) -> dict[str, float]:
    """u_kept of a named contract for `dtype` float16 or bfloat16; u is that of float32."""
    return dict.fromkeys(CONTRACTS[name], UNIT[dtype])


def within(theirs: np.ndarray, centre: np.ndarray, error: np.ndarray) -> bool:
    """Whether |theirs - centre| <= error everywhere; infinite and NaN numbers must be the same, unless nothing can be said of them."""
    theirs = theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.abs(theirs - centre) <= error
    return bool(np.all(close | (theirs == centre) | (np.isnan(theirs) & np.isnan(centre)) | np.isinf(error)))


def strictest(case: dict, arrays: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> str | None:
    """The first contract that holds for all of `theirs`, arrays of a float16 or bfloat16 case by name; None if none does.

    arrays: the parameters of the case at least. An array that is shown in half precision may have been rounded to be shown, whatever
    the contract says of the one that was used.
    """
    exact = centres(case, arrays)
    own = bounds(case, exact, UNIT["float64"])
    for name in CONTRACTS:
        allowed = bounds(case, exact, UNIT["float32"], contract(name, case["dtype"]))
        for key, value in theirs.items():
            shown = UNIT.get(value.dtype.name, 0.0)
            error = finish(exact[key], allowed[key], float(shown > UNIT["float32"]), shown) + own[key]
            if not within(value, exact[key], error):
                break
        else:
            return name
    return None


def gates(case: dict, ours: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By name, the largest difference between our array and that of a right implementation: the bound of ours plus the bound of theirs.

    ours: every array of the case, as its stages make them. Ours keep to the arithmetic that the case names; theirs may do all of it in
    the dtype of the case (float32 for the half precisions), and may store everything in that dtype.
    """
    u, kept = roundoffs(case)
    exact = centres(case, ours)
    own = bounds(case, exact, u, kept)
    usual = max(u, min(kept, UNIT["float32"]))
    theirs = own if usual == u else bounds(case, exact, usual, kept)
    return {name: own[name] + theirs[name] for name in own}
