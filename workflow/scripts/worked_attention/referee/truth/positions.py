"""Where tokens stand: sinusoids, rotation as a product of complex numbers, slopes and buckets.

Frequencies and angles are balls; an angle that the case rounds to a named precision is rounded here, by the definition of the format.
"""

import math
from fractions import Fraction

import numpy as np
from flint import acb, arb, fmpq

from worked_attention.referee.truth.balls import ANYTHING, NAN, Balls, balls, each

FORMATS = {  # IEEE 754 and bfloat16: bits of the significand, exponent of the smallest and of the largest normal number
    "float64": (53, -1022, 1023),
    "float32": (24, -126, 127),
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
}
FINE = 2.0**-70  # how wide an angle may be
PAIRS = {"half": lambda i, pairs: (i, i + pairs), "interleaved": lambda i, pairs: (2 * i, 2 * i + 1)}


def sinusoids(where: list[int], width: int, base: float) -> Balls:
    """[L, width]: the angle p / base^(2i/width) as its sine in column 2i and its cosine in column 2i + 1 (Vaswani et al. 2017, 3.5).

    where: the positions p. width: that of x.
    """
    step = [arb(base) ** (-arb(column - column % 2) / width) for column in range(width)]
    return np.array([[_wave(p * step[c], c) for c in range(width)] for p in where], dtype=object).reshape(len(where), width)


def _wave(angle: arb, column: int) -> arb:
    if not angle.rad() < FINE:
        return ANYTHING
    return angle.cos() if column % 2 else angle.sin()


# Rotation


def turns(where: list[int], rotary: dict) -> Balls:
    """The complex numbers by which pairs are multiplied, [L, dims/2]: stretch * exp(i * position * theta).

    where: the positions. rotary: the options of the case. Angles are exact where they say float64, else rounded as they say.
    """
    theta, stretch = frequencies(rotary["dims"], arb(rotary["base"]), rotary["scaling"])
    if rotary["angles"] == "float64":
        angle = [[p * t for t in theta] for p in where]
    else:
        angle = [[_rounded_angle(p, t, rotary["angles"]) for t in theta] for p in where]
    return each(lambda a: _turn(a) * stretch, np.array(angle, dtype=object).reshape(len(where), len(theta)))


def _turn(angle: arb) -> acb:
    """exp(i angle); of an angle that was rounded to infinity there is none."""
    if angle.is_exact() and not angle.is_finite():
        return acb(NAN, NAN)
    return acb(0, angle).exp() if angle.rad() < FINE else acb(ANYTHING, ANYTHING)


def _rounded_angle(position: int, theta: arb, name: str) -> arb:
    """Position and frequency rounded to the format `name`, and their product once more."""
    return rounded(rounded(arb(position), name) * rounded(theta, name), name)


def rotated(x: Balls, turn: Balls, pairing: str) -> Balls:
    """x [L, d] with each pair of columns, taken as a complex number, times its `turn` [L, pairs] (Su et al. 2021, equation 12).

    pairing: `half` pairs column i with i + pairs (GPT-NeoX), `interleaved` 2i with 2i + 1. The other columns stay.
    """
    y = x.copy()
    for i in range(turn.shape[1]):
        a, b = PAIRS[pairing](i, turn.shape[1])
        product = each(acb, x[:, a], x[:, b]) * turn[:, i]
        y[:, a], y[:, b] = each(lambda z: z.real, product), each(lambda z: z.imag, product)
    return y


def frequencies(dims: int, base: arb, scaling: dict | None) -> tuple[list[arb], arb]:
    """theta_i = base^(-2i/dims) of the pairs, as the rule of `scaling` changes it, and what multiplies cosine and sine."""
    plain = [base ** (-arb(2 * i) / dims) for i in range(dims // 2)]
    return (plain, arb(1)) if scaling is None else SCALING[scaling["rule"]](plain, dims, base, scaling)


def linear(theta: list[arb], dims: int, base: arb, scaling: dict) -> tuple[list[arb], arb]:
    """Positions divided by the factor (Chen et al. 2023, section 2.3)."""
    return [t / arb(scaling["factor"]) for t in theta], arb(1)


def ntk(theta: list[arb], dims: int, base: arb, scaling: dict) -> tuple[list[arb], arb]:
    """The slowest pair divided by the factor, the fastest kept, a geometric series between (Peng et al. 2023, section 3.1)."""
    return [t / arb(scaling["factor"]) ** (arb(2 * i) / (dims - 2)) for i, t in enumerate(theta)], arb(1)


def yarn(theta: list[arb], dims: int, base: arb, scaling: dict) -> tuple[list[arb], arb]:
    """Divided from the pair on that turns beta_slow times in the original length, kept up to that of beta_fast, a ramp between.

    The two pairs are rounded outwards, and kept within 0 and dims - 1 (Peng et al. 2023, sections 3.2 and 3.4, and the authors' code).
    """
    length, factor = scaling["original_length"], arb(scaling["factor"])

    def pair(turns: float) -> arb:
        """The pair, a real number, whose theta makes so many turns: base^(-2 pair/dims) * length = 2 pi turns."""
        return dims * (length / (2 * arb.pi() * arb(turns))).log() / (2 * base.log())

    first, last = pair(scaling["beta_fast"]).floor().unique_fmpz(), pair(scaling["beta_slow"]).ceil().unique_fmpz()
    if first is None or last is None:  # too near to a whole number, which pi keeps it from being
        return [ANYTHING for _ in theta], arb(1)
    first, last = max(int(first), 0), min(int(last), dims - 1)
    share = [_within(Fraction(i - first, last - first) if last > first else Fraction(i >= first)) for i in range(len(theta))]
    return [t * (1 - s) + t * s / factor for t, s in zip(theta, map(_ball, share), strict=True)], factor.log() / 10 + 1


def llama3(theta: list[arb], dims: int, base: arb, scaling: dict) -> tuple[list[arb], arb]:
    """Divided below `low` turns in the original length, kept above `high`, and between in proportion (Llama 3.1's model code)."""
    low, high, factor = arb(scaling["low"]), arb(scaling["high"]), arb(scaling["factor"])
    turned = [scaling["original_length"] * t / (2 * arb.pi()) for t in theta]
    kept = [((r.max(low)).min(high) - low) / (high - low) for r in turned]
    return [t / factor + k * (t - t / factor) for t, k in zip(theta, kept, strict=True)], arb(1)


SCALING = {"linear": linear, "ntk": ntk, "yarn": yarn, "llama3": llama3}


def _within(x: Fraction) -> Fraction:
    return min(max(x, Fraction(0)), Fraction(1))


def _ball(x: Fraction) -> arb:
    return arb(fmpq(x.numerator, x.denominator))


# Formats


def rounded(x: arb, name: str) -> arb:
    """x in the format `name`; `ANYTHING` where the two ends of the ball do not become the same number."""
    if not x.is_finite():
        return x
    ends = {nearest(*end.man_exp(), name) for end in (x.lower(), x.upper())}
    return arb(ends.pop()) if len(ends) == 1 else ANYTHING


def nearest(mantissa: int, exponent: int, name: str) -> float:
    """The number of the format `name` nearest to mantissa * 2^exponent; ties to even, and infinity beyond the largest number."""
    bits, smallest, largest = FORMATS[name]
    last = max(int(exponent) + int(abs(mantissa)).bit_length() - 1, smallest) - bits + 1  # the exponent of the last bit that is kept
    kept = round(Fraction(int(mantissa)) * Fraction(2) ** (int(exponent) - last))
    return math.ldexp(kept, last) if abs(kept) * Fraction(2) ** last < 2 ** (largest + 1) else math.copysign(math.inf, kept)


def largest(name: str) -> float:
    """The largest finite number of the format `name`."""
    bits, _, top = FORMATS[name]
    return (2 - 2.0 ** (1 - bits)) * 2.0**top


# Distances


def slopes(heads: int, rule: str) -> list[arb]:
    """ALiBi's slope of every head, a power of two (Press et al. 2022, section 3).

    2^(-8h/H) for h = 1 ... H where H is a power of two, or the rule is `geometric`. Else `interleaved`, as in the authors' code: the
    series of the largest power of two n below H, and for what is left over the first, third, fifth ... of that of 2n.
    """
    return [arb(2) ** _ball(-exponent) for exponent in SLOPES[rule](heads)]


def _geometric(heads: int) -> list[Fraction]:
    return [Fraction(8 * h, heads) for h in range(1, heads + 1)]


def _interleaved(heads: int) -> list[Fraction]:
    n = 1 << (heads.bit_length() - 1)
    return _geometric(n) + [Fraction(8 * (2 * h + 1), 2 * n) for h in range(heads - n)]


SLOPES = {"geometric": _geometric, "interleaved": _interleaved}
STEPS = {"distance": lambda i, j: -np.abs(i - j), "relative": lambda i, j: j - i, "key_index": lambda i, j: j + 0 * i}


def alibi(slope: arb, i: np.ndarray, j: np.ndarray, form: str) -> Balls:
    """Bias [n, Lc] of one head: its slope times a whole number, that `form` makes of the positions i [n, 1] and j [1, Lc]."""
    return balls(STEPS[form](i, j)) * slope


def bucket(relative: int, buckets: int, longest: int, direction: str) -> int:
    """T5's bucket of a key that stands `relative` = j - i from the query (Raffel et al. 2020, section 2.1, and the authors' code).

    A side has n buckets: one for each distance below n/2, and bucket n/2 + m from the distance n/2 * (longest / (n/2))^(m / (n/2)) on,
    in whole numbers: distance^(n - e) * e^m >= longest^m * e^(n - e), e = n/2 rounded down.
    """
    side, start, distance = SIDES[direction](relative, buckets)
    single = side // 2
    if distance < single:
        return start + distance
    log = side - single
    reached = [m for m in range(log) if distance**log * single**m >= longest**m * single**log]
    return start + single + reached[-1]


def _both(relative: int, buckets: int) -> tuple[int, int, int]:
    return buckets // 2, buckets // 2 if relative > 0 else 0, abs(relative)


def _left(relative: int, buckets: int) -> tuple[int, int, int]:
    return buckets, 0, max(-relative, 0)


SIDES = {"both": _both, "left": _left}
