"""Where tokens stand: sinusoids added to x, rotation of queries and keys, and biases by distance.

Angles are computed in float64 (or in a named precision) and applied in the dtype of the case.
"""

import math

import numpy as np

from worked_attention.stages.precision import rounded, widened


def sinusoids(positions: np.ndarray, width: int, base: float = 10000.0) -> np.ndarray:
    """Sinusoidal position encoding [L, width], float64 (Vaswani et al. 2017, section 3.5).

    positions: [L]. Column 2i holds sin(p / base^(2i/width)), column 2i+1 the cosine.
    """
    angles = np.multiply.outer(positions, base ** (-np.arange(0, width, 2) / width))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), -1)[:, :width]


def linear(theta: np.ndarray, base: float, options: dict) -> tuple[np.ndarray, float]:
    """theta / factor (Chen et al. 2023, "position interpolation")."""
    return theta / options["factor"], 1.0


def ntk(theta: np.ndarray, base: float, options: dict) -> tuple[np.ndarray, float]:
    """base * factor^(dims/(dims-2)) in place of base ("NTK-aware", Peng et al. 2023, section 3.1)."""
    dims = 2 * len(theta)
    return frequencies(dims, base * options["factor"] ** (dims / (dims - 2)), None)


def llama3(theta: np.ndarray, base: float, options: dict) -> tuple[np.ndarray, float]:
    """By turns within `original_length`: kept above `high` of them, divided below `low`, blended between (Llama 3.1's code)."""
    turns = options["original_length"] * theta / (2 * math.pi)
    kept = np.clip((turns - options["low"]) / (options["high"] - options["low"]), 0, 1)
    return kept * theta + (1 - kept) * theta / options["factor"], 1.0


def yarn(theta: np.ndarray, base: float, options: dict) -> tuple[np.ndarray, float]:
    """Between theta and theta / factor by a ramp over the pairs, from the one with `beta_fast` turns within `original_length` to the one
    with `beta_slow`; cosine and sine times 0.1 ln(factor) + 1 (Peng et al. 2023, sections 3.2 and 3.4)."""
    dims = 2 * len(theta)

    def pair(turns: float) -> float:
        return dims * math.log(options["original_length"] / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = max(math.floor(pair(options["beta_fast"])), 0), min(math.ceil(pair(options["beta_slow"])), dims - 1)
    i = np.arange(len(theta))
    ramp = np.clip((i - first) / (last - first), 0, 1) if last > first else (i >= first).astype(float)
    return (1 - ramp) * theta + ramp * theta / options["factor"], 0.1 * math.log(options["factor"]) + 1


SCALING = {"linear": linear, "ntk": ntk, "llama3": llama3, "yarn": yarn}


def frequencies(dims: int, base: float, scaling: dict | None) -> tuple[np.ndarray, float]:
    """Angles per position of the dims/2 rotated pairs, float64 [dims/2], and what multiplies cosine and sine.

    theta_i = base^(-2i/dims) (Su et al. 2021, section 3.2.2), changed by the rule that `scaling` {rule, factor, ...} names.
    """
    theta = base ** (-np.arange(0, dims, 2) / dims)
    return SCALING[scaling["rule"]](theta, base, scaling) if scaling else (theta, 1.0)


def angles(positions: np.ndarray, theta: np.ndarray, precision: np.dtype) -> np.ndarray:
    """position * theta [L, dims/2], both rounded to `precision` and multiplied there, returned as float64."""
    product = positions.astype(precision)[:, None] * theta.astype(precision)
    return product.astype(precision).astype(np.float64)


PAIRING = {  # columns of a and of b in each pair
    "half": lambda half: (slice(0, half), slice(half, 2 * half)),
    "interleaved": lambda half: (slice(0, 2 * half, 2), slice(1, 2 * half, 2)),
}


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, pairing: str) -> np.ndarray:
    """Each pair (a, b) of the first columns of x becomes (a cos - b sin, a sin + b cos); the other columns stay.

    x: [..., L, d]; cos, sin: [L, dims/2]. Pairs are (i, i + dims/2) for `half` (GPT-NeoX) and (2i, 2i + 1) for
    `interleaved` (Su et al. 2021, equation 34).
    """
    half = cos.shape[-1]
    a, b = PAIRING[pairing](half)
    y = x.copy()
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., a] * sin + x[..., b] * cos
    return y


def rotary(x: np.ndarray, positions: np.ndarray, options: dict) -> np.ndarray:
    """`x` [..., L, d] rotated at `positions` [L] by the case's `rotary` options {pairing, base, dims, scaling, angles}."""
    wide = widened(x)
    cos, sin = (table.astype(wide.dtype) for table in turns(positions, options))
    return rounded(rotate(wide, cos, sin, options["pairing"]), x.dtype)


def turns(positions: np.ndarray, options: dict) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [L, dims/2], float64, of `rotary` options at `positions` [L], stretched as the scaling says."""
    theta, stretch = frequencies(options["dims"], options["base"], options["scaling"])
    angle = angles(positions, theta, np.dtype(options["angles"]))
    return stretch * np.cos(angle), stretch * np.sin(angle)


def tables(query_positions: list[int], key_positions: list[int], options: dict) -> dict[str, np.ndarray]:
    """`inv_freq` [pairs], `query_cos`, `query_sin` [Lq, pairs], `key_cos`, `key_sin` [Ln, pairs] of `rotary` options, float64."""
    made = {"inv_freq": frequencies(options["dims"], options["base"], options["scaling"])[0]}
    for word, where in (("query", query_positions), ("key", key_positions)):
        made[f"{word}_cos"], made[f"{word}_sin"] = turns(np.array(where), options)
    return made


def alibi_slopes(heads: int, rule: str) -> np.ndarray:
    """Slopes [H] of the heads, float64 (Press et al. 2022, section 3, and the authors' code for other head counts).

    2^(-8h/n) for h = 1 ... n where n = H is a power of two. Otherwise `geometric` uses the same series with n = H;
    `interleaved` takes the series of the power of two below H and fills up with every second slope of twice that power.
    """
    return SLOPES[rule](heads)


def geometric(heads: int) -> np.ndarray:
    """2^(-8h/H) for h = 1 ... H."""
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


def interleaved(heads: int) -> np.ndarray:
    """The series of the power of two below H, filled up with every second slope of twice that power."""
    below = 2 ** int(math.log2(heads))
    return np.concatenate([geometric(below), geometric(2 * below)[::2][: heads - below]])


SLOPES = {"geometric": geometric, "interleaved": interleaved}
STEPS = {  # what an ALiBi slope multiplies, by form, of positions i [Lq, 1] and j [1, Lk]
    "distance": lambda i, j: -abs(i - j),
    "relative": lambda i, j: j - i,
    "key_index": lambda i, j: j + 0 * i,
}


def alibi(query_positions: np.ndarray, key_positions: np.ndarray, heads: int, slopes: str, form: str) -> np.ndarray:
    """Bias [H, Lq, Lk], float64: -slope * |i - j| for `distance`, slope * (j - i) for `relative`, slope * j for `key_index`.

    The last two differ by a constant in each row, which the softmax does not see; under a causal mask all three agree.
    """
    i, j = query_positions[:, None], key_positions[None, :]
    return alibi_slopes(heads, slopes)[:, None, None] * STEPS[form](i, j)


DIRECTION = {  # first bucket and distance of each relative position, and the buckets of a side
    "both": lambda relative, buckets: (np.where(relative > 0, buckets // 2, 0), np.abs(relative), buckets // 2),
    "left": lambda relative, buckets: (np.zeros_like(relative), np.maximum(-relative, 0), buckets),
}


def t5_buckets(relative: np.ndarray, buckets: int, longest: int, direction: str) -> np.ndarray:
    """Bucket of each relative position j - i, int [Lq, Lk] (Raffel et al. 2020, section 2.1, and the authors' code).

    `both` gives half of the buckets to keys on the right; `left` sends them to bucket 0. Half of a side's buckets hold one
    distance each; the others grow in logarithmic steps up to the distance `longest`, and the last one holds all beyond.
    """
    start, distance, buckets = DIRECTION[direction](relative, buckets)
    exact = buckets // 2
    far = exact + (np.log(np.maximum(distance, 1) / exact) / math.log(longest / exact) * (buckets - exact)).astype(int)
    return start + np.where(distance < exact, distance, np.minimum(far, buckets - 1))


def relative_buckets(query_positions: list[int], key_positions: list[int], buckets: int, options: dict) -> np.ndarray:
    """The bucket of each key for each query, int [Lq, Lk], of so many `buckets`; options {longest, direction}."""
    relative = np.array(key_positions)[None, :] - np.array(query_positions)[:, None]
    return t5_buckets(relative, buckets, options["longest"], options["direction"])


def t5_bias(table: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray, options: dict) -> np.ndarray:
    """Bias [H, Lq, Lk] from a `table` [buckets, H] by bucketed relative position; options {longest, direction}."""
    found = relative_buckets(query_positions, key_positions, len(table), options)
    return np.moveaxis(table[found], -1, 0)
