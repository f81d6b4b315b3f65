"""Where tokens stand: sinusoids added to x, rotation of queries and keys, and biases by distance.

Angles are computed in float64 (or in a named precision) and applied in the dtype of the case.
"""

import math

import numpy as np

Number = float | int


def sinusoids(positions: np.ndarray, width: int, base: float = 10000.0) -> np.ndarray:
    """Sinusoidal position encoding [L, width], float64 (Vaswani et al. 2017, section 3.5).

    positions: [L]. Column 2i holds sin(p / base^(2i/width)), column 2i+1 the cosine.
    """
    angles = np.multiply.outer(positions, base ** (-np.arange(0, width, 2) / width))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), -1)[:, :width]


def frequencies(dims: int, base: float = 10000.0, scaling: dict | None = None) -> tuple[np.ndarray, float]:
    """Angles per position of the dims/2 rotated pairs, float64 [dims/2], and what multiplies cosine and sine.

    theta_i = base^(-2i/dims) (Su et al. 2021, section 3.2.2). `scaling` is {rule, factor, ...}:
    linear: theta / factor (Chen et al. 2023). ntk: base * factor^(dims/(dims-2)) in place of base ("NTK-aware", Peng et al. 2023,
    section 3.1). yarn: between theta and theta/factor by a ramp over turns within `original_length`, cosine and sine
    times 0.1 ln(factor) + 1 (Peng et al. 2023, sections 3.2 and 3.4). llama3: by wavelength, kept below original_length/high,
    divided above original_length/low, blended between (Llama 3.1's model code).
    """
    if scaling and scaling["rule"] == "ntk":
        base = base * scaling["factor"] ** (dims / (dims - 2))
    theta = base ** (-np.arange(0, dims, 2) / dims)
    if not scaling or scaling["rule"] == "ntk":
        return theta, 1.0
    factor = scaling["factor"]
    if scaling["rule"] == "linear":
        return theta / factor, 1.0
    length = scaling["original_length"]
    turns = length * theta / (2 * math.pi)
    if scaling["rule"] == "llama3":
        low, high = scaling.get("low", 1.0), scaling.get("high", 4.0)
        blend = np.clip((turns - low) / (high - low), 0, 1)
        return blend * theta + (1 - blend) * theta / factor, 1.0
    fast, slow = scaling.get("beta_fast", 32.0), scaling.get("beta_slow", 1.0)

    def pair(turns: float) -> float:
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = max(math.floor(pair(fast)), 0), min(math.ceil(pair(slow)), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - first) / max(last - first, 0.001), 0, 1)
    return (1 - ramp) * theta + ramp * theta / factor, 0.1 * math.log(factor) + 1


def angles(positions: np.ndarray, theta: np.ndarray, precision: np.dtype) -> np.ndarray:
    """position * theta [L, dims/2], both rounded to `precision` and multiplied there, returned as float64."""
    product = positions.astype(precision)[:, None] * theta.astype(precision)
    return product.astype(precision).astype(np.float64)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, pairing: str) -> np.ndarray:
    """Each pair (a, b) of the first columns of x becomes (a cos - b sin, a sin + b cos); the other columns stay.

    x: [..., L, d]; cos, sin: [L, dims/2]. Pairs are (i, i + dims/2) for `half` (GPT-NeoX) and (2i, 2i + 1) for
    `interleaved` (Su et al. 2021, equation 34).
    """
    half = cos.shape[-1]
    a, b = {
        "half": (slice(0, half), slice(half, 2 * half)),
        "interleaved": (slice(0, 2 * half, 2), slice(1, 2 * half, 2)),
    }[pairing]
    y = x.copy()
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., a] * sin + x[..., b] * cos
    return y


def rotary(x: np.ndarray, positions: np.ndarray, options: dict) -> np.ndarray:
    """`x` [..., L, d] rotated at `positions` [L] by the case's `rotary` options {pairing, base, dims, scaling, angles}."""
    theta, stretch = frequencies(options.get("dims", x.shape[-1]), options.get("base", 10000.0), options.get("scaling"))
    turned = angles(positions, theta, np.dtype(options.get("angles", "float64")))
    cos, sin = (np.asarray(stretch * f(turned), dtype=x.dtype) for f in (np.cos, np.sin))
    return rotate(x, cos, sin, options["pairing"])


def alibi_slopes(heads: int, rule: str) -> np.ndarray:
    """Slopes [H] of the heads, float64 (Press et al. 2022, section 3, and the authors' code for other head counts).

    2^(-8h/n) for h = 1 ... n where n = H is a power of two. Otherwise `geometric` uses the same series with n = H;
    `interleaved` takes the series of the power of two below H and fills up with every second slope of twice that power.
    """
    below = 2 ** int(math.log2(heads))
    if rule == "geometric" or below == heads:
        return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    return np.concatenate([alibi_slopes(below, rule), alibi_slopes(2 * below, rule)[::2][: heads - below]])


def alibi(query_positions: np.ndarray, key_positions: np.ndarray, heads: int, slopes: str, form: str) -> np.ndarray:
    """Bias [H, Lq, Lk], float64: -slope * |i - j| for `distance`, slope * (j - i) for `relative`, slope * j for `key_index`.

    The last two differ by a constant in each row, which the softmax does not see; under a causal mask all three agree.
    """
    i, j = query_positions[:, None], key_positions[None, :]
    steps = {"distance": -abs(i - j), "relative": j - i, "key_index": j + 0 * i}[form]
    return alibi_slopes(heads, slopes)[:, None, None] * steps


def t5_buckets(relative: np.ndarray, buckets: int, longest: int, direction: str) -> np.ndarray:
    """Bucket of each relative position j - i, int [Lq, Lk] (Raffel et al. 2020, section 2.1, and the authors' code).

    `both` gives half of the buckets to keys on the right; `left` sends them to bucket 0. Half of a side's buckets hold one
    distance each; the others grow in logarithmic steps up to the distance `longest`, and the last one holds all beyond.
    """
    start = np.zeros_like(relative)
    if direction == "both":
        buckets //= 2
        start = np.where(relative > 0, buckets, 0)
        distance = np.abs(relative)
    else:
        distance = np.maximum(-relative, 0)
    exact = buckets // 2
    far = exact + (np.log(np.maximum(distance, 1) / exact) / math.log(longest / exact) * (buckets - exact)).astype(int)
    return start + np.where(distance < exact, distance, np.minimum(far, buckets - 1))


def t5_bias(table: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray, options: dict) -> np.ndarray:
    """Bias [H, Lq, Lk] from a `table` [buckets, H] by bucketed relative position; options {longest, direction}."""
    relative = key_positions[None, :] - query_positions[:, None]
    found = t5_buckets(relative, len(table), options.get("longest", 128), options.get("direction", "both"))
    return np.moveaxis(table[found], -1, 0)
