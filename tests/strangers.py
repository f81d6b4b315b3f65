"""What people sent for cases of `field_cases_2`, made once more in plain NumPy: every array of it, with full precision.

Nothing here comes from the package: each function says one mistake as its report describes it. The right and wrong outputs to six
decimals, from another source, lie in data/field_cases_2.json; a test holds what is made here against them.
"""

import numpy as np

Arrays = dict[str, np.ndarray]


def grid(shape: tuple[int, ...], a: int = 7, c: int = 3, m: int = 11, den: int = 4) -> np.ndarray:
    i = np.arange(np.prod(shape))
    return ((((a * i + c) % m) - m // 2) / den).reshape(shape)


def fillers(lq: int, lk: int, heads: int, d: int, d_v: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values that most cases share."""
    return grid((heads, lq, d)), grid((heads, lk, d), 5, 1), grid((heads, lk, d_v or d), 3, 2)


def softmax(scores: np.ndarray, sinks: np.ndarray | None = None) -> np.ndarray:
    """Along the keys; rows without a key are 0."""
    largest = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        largest = np.maximum(largest, sinks)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    e = np.exp(scores - largest)
    below = e.sum(axis=-1, keepdims=True) + (0 if sinks is None else np.exp(sinks - largest))
    return np.divide(e, below, out=np.zeros_like(e), where=below > 0)


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    keep: np.ndarray | None = None,
    scale: float | None = None,
    bias: np.ndarray | None = None,
    sinks: np.ndarray | None = None,
    w_o: np.ndarray | None = None,
    fill: float = -np.inf,
    scaled: np.ndarray | None = None,
    weights=softmax,
    order: list[int] | None = None,
) -> Arrays:
    """All arrays from queries, keys and values [..., H, L, d] on; `scaled` in place of the products, `order` of the heads in concat."""
    made = {}
    if scaled is None:
        group = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
        made["qk"] = np.einsum("...id,...jd->...ij", q, k)
        scaled = made["scaled"] = made["qk"] * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scaled
    if bias is not None:
        made["bias"] = np.broadcast_to(bias, scores.shape)
        scores = scores + bias
    if keep is not None:
        made["keep"] = np.broadcast_to(keep, scores.shape)
        scores = np.where(keep, scores, fill)
    made["scaled"], made["masked"] = scaled, scores
    made["weights"] = softmax(scores, sinks) if weights is softmax else weights(scores)
    return made | mixed(made["weights"], v, w_o, order)


def mixed(weights: np.ndarray, v: np.ndarray, w_o: np.ndarray | None = None, order: list[int] | None = None) -> Arrays:
    contexts = np.einsum("...ij,...jd->...id", weights, v)
    rows = contexts if order is None else contexts[..., order, :, :]
    concat = np.moveaxis(rows, -3, -2).reshape(*contexts.shape[:-3], contexts.shape[-2], -1)
    return {"contexts": contexts, "concat": concat, "output": concat if w_o is None else concat @ w_o.T}


def causal(lq: int, lk: int, diagonal: int = 0) -> np.ndarray:
    return np.arange(lk)[None] <= np.arange(lq)[:, None] + diagonal


def turn(x: np.ndarray, at: list[int], pairs: list[tuple[int, int]], theta: np.ndarray, stretch: float = 1.0) -> np.ndarray:
    """Columns (i, j) of each pair turned by position times theta."""
    y = x.copy()
    for (i, j), t in zip(pairs, theta, strict=True):
        c, s = stretch * np.cos(np.array(at) * t), stretch * np.sin(np.array(at) * t)
        y[..., i], y[..., j] = x[..., i] * c - x[..., j] * s, x[..., i] * s + x[..., j] * c
    return y


def halves(dims: int) -> list[tuple[int, int]]:
    return [(i, i + dims // 2) for i in range(dims // 2)]


def neighbours(dims: int, first: int = 0) -> list[tuple[int, int]]:
    return [(first + 2 * i, first + 2 * i + 1) for i in range(dims // 2)]


def base(dims: int, number: float = 10000.0) -> np.ndarray:
    return number ** (-np.arange(0, dims, 2) / dims)


# The cases, each with what people sent. P holds the parameters of the case as arrays.


def sink_once(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(3, 3, 2, 2)
    sinks = p["sinks"][:, None, None]
    sent = {"right": sinks, "twice": sinks + np.log(2), "scaled sink": sinks / np.sqrt(2)}
    return {name: attend(q, k, v, causal(3, 3), sinks=sink) for name, sink in sent.items()}


def sink_bias_key0(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(3, 3, 2, 2)
    near = np.abs(np.arange(3)[:, None] - np.arange(3)) <= 1
    return {
        "right": attend(q, k, v, near, bias=p["bias_table"]),
        "as denominator": attend(q, k, v, near, sinks=np.array([2.0, -1.0])[:, None, None]),
        "dropped": attend(q, k, v, near),
    }


def chunked(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(5, 5, 1, 2)
    i, j = np.ogrid[:5, :5]
    past = j <= i
    keeps = {
        "right": past & (i // 2 == j // 2),
        "sliding": past & (j >= i - 1),
        "off by one": past & ((i + 1) // 2 == (j + 1) // 2),
        "full causal": past,
    }
    return {name: attend(q, k, v, keep) for name, keep in keeps.items()}


def cross_uncalled_causal(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(2, 3, 2, 2)
    keeps = {"right": None, "causal tl": causal(2, 3), "causal br": causal(2, 3, 1)}
    return {name: attend(q, k, v, keep) for name, keep in keeps.items()}


def encoder_uncalled_causal(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(3, 3, 2, 2)
    near = np.abs(np.arange(3)[:, None] - np.arange(3)) <= 1
    return {name: attend(q, k, v, keep) for name, keep in {"right": None, "causal": causal(3, 3), "window": near}.items()}


def queries_at_one_position(p: Arrays) -> dict[str, Arrays]:
    made = {}
    for name, at in {"right": [3, 3], "consecutive": [3, 4]}.items():
        q = turn(p["q_heads"], at, halves(4), base(4))
        k = turn(p["k_heads"], [3, 4], halves(4), base(4))
        k, v = np.concatenate([p["past_k"], k], axis=-2), np.concatenate([p["past_v"], p["v_heads"]], axis=-2)
        made[name] = {"q_rot": q, "present_k": k, "present_v": v} | attend(q, k, v)
    return made


def rotated(q: np.ndarray, k: np.ndarray, v: np.ndarray, pairs: list, theta: np.ndarray, stretch: float = 1.0, **options) -> Arrays:
    at = list(range(q.shape[-2]))
    turned = {"q_rot": turn(q, at, pairs, theta, stretch), "k_rot": turn(k, at, pairs, theta, stretch)}
    return turned | attend(turned["q_rot"], turned["k_rot"], v, **options)


def partial_rotary(p: Arrays) -> dict[str, Arrays]:
    ways = {
        "right": (halves(4), base(4)),
        "head dim freq and pairs": (halves(8)[:2], base(8)[:2]),
        "proportional": (halves(8)[:2], base(4)),
        "freq of head dim": (halves(4), base(8)[:2]),
        "factor twice": (halves(2), base(2)),
        "all columns": (halves(8), base(8)),
    }
    return {name: rotated(*fillers(3, 3, 1, 8), *way, keep=causal(3, 3)) for name, way in ways.items()}


def dynamic_ntk(p: Arrays) -> dict[str, Arrays]:
    power = 8 / 6
    ways = {
        "right": base(8, 10000 * 2**power),
        "constant factor": base(8, 10000 * 3**power),
        "no scaling": base(8),
        "linear too": base(8, 10000 * 2**power) / 2,
    }
    return {name: rotated(*fillers(3, 3, 1, 8), halves(8), theta, keep=causal(3, 3)) for name, theta in ways.items()}


def yarn(p: Arrays) -> dict[str, Arrays]:
    def slowed(rounded: bool) -> np.ndarray:
        first, last = (8 * np.log(64 / (turns * 2 * np.pi)) / (2 * np.log(10000)) for turns in (32, 1))
        first, last = (np.floor(first), np.ceil(last)) if rounded else (first, last)
        first, last = max(first, 0), min(last, 7)
        ramp = np.clip((np.arange(4) - first) / (last - first), 0, 1)
        return (1 - ramp) * base(8) + ramp * base(8) / 4

    stretch = 0.1 * np.log(4) + 1
    ways = {
        "right": (slowed(True), stretch),
        "not truncated": (slowed(False), stretch),
        "factor one": (slowed(True), 1.0),
        "mscale squared": (slowed(True), stretch**2),
        "no scaling": (base(8), 1.0),
    }
    return {name: rotated(*fillers(3, 3, 1, 8), halves(8), *way, keep=causal(3, 3)) for name, way in ways.items()}


def mla_scale(p: Arrays) -> dict[str, Arrays]:
    right = 0.764997776624
    stretch = (right * np.sqrt(6)) ** 0.5
    scales = {
        "right": right,
        "no mscale": 6**-0.5,
        "mscale once": stretch / 6**0.5,
        "absorbed": stretch**2 / 16**0.5,
        "nope only": stretch**2 / 4**0.5,
    }
    heads = p["q_heads"], p["k_heads"], p["v_heads"]
    return {name: rotated(*heads, neighbours(2), base(2), keep=causal(3, 3), scale=scale) for name, scale in scales.items()}


def pad_mask_on_rows(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(4, 4, 2, 2)
    real = np.array([True, True, False, False])
    columns, rows = np.broadcast_to(real, (4, 4)), np.broadcast_to(real[:, None], (4, 4))
    return {
        "right": attend(q, k, v, columns),
        "rows only 1e4": attend(q, k, v, rows, fill=-1e4),
        "rows only inf": attend(q, k, v, rows),
        "both": attend(q, k, v, rows & columns),
    }


def sentinel_5e4(p: Arrays) -> dict[str, Arrays]:
    def underflowing(scores: np.ndarray) -> np.ndarray:
        e = np.exp(scores)
        return np.divide(e, e.sum(axis=-1, keepdims=True), out=np.zeros_like(e), where=e.sum(axis=-1, keepdims=True) > 0)

    def way(**options) -> Arrays:
        made = attend(p["v_heads"], p["v_heads"], p["v_heads"], np.array([[True, True, False]]), scaled=p["scaled"], **options)
        return {name: array for name, array in made.items() if name != "scaled"}

    return {"right": way(), "fill 5e4": way(fill=-5e4), "zero row": way(weights=underflowing)}


def lse_merge(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(3, 6, 1, 2)
    whole = attend(q, k, v)
    parts = [(whole["scaled"][..., keys], v[..., keys, :]) for keys in (slice(0, 2), slice(2, 6))]
    (one, first), (two, second) = [(np.log(np.exp(s).sum(axis=-1, keepdims=True)), softmax(s) @ x) for s, x in parts]

    def merged(a: np.ndarray, b: np.ndarray, divisor: np.ndarray) -> Arrays:
        contexts = (a * first + b * second) / divisor
        return whole | {"contexts": contexts, "concat": contexts[0], "output": contexts[0]}

    a, b = np.exp(one), np.exp(two)
    a2, b2 = np.exp(one / np.log(2)), np.exp(two / np.log(2))
    return {
        "right": merged(a, b, a + b),
        "base2": merged(a2, b2, a2 + b2),
        "added": merged(a, b, a * b),
        "averaged": merged(1.0, 1.0, 2.0),
    }


def llama_gqa_permute(p: Arrays) -> dict[str, Arrays]:
    x = p["x"]

    def permuted(w: np.ndarray, heads: int) -> np.ndarray:
        return w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)

    def split(y: np.ndarray, heads: int) -> np.ndarray:
        return y.reshape(len(y), heads, -1).swapaxes(0, 1)

    def way(w_q: np.ndarray, w_k: np.ndarray, pairs: list) -> Arrays:
        made = {"q": x @ w_q.T, "k": x @ w_k.T, "v": x @ p["w_v"].T}
        made |= {"q_heads": split(made["q"], 6), "k_heads": split(made["k"], 2), "v_heads": split(made["v"], 2)}
        return made | rotated(made["q_heads"], made["k_heads"], made["v_heads"], pairs, base(6), keep=causal(3, 3))

    w_q, w_k = p["w_q"], p["w_k"]
    once = permuted(w_q, 6), permuted(w_k, 2)
    return {
        "right": way(w_q, w_k, neighbours(6)),
        "k_permuted_as_3": way(once[0], permuted(w_k, 3), halves(6)),
        "not_permuted": way(w_q, w_k, halves(6)),
        "permuted_twice": way(permuted(once[0], 6), permuted(once[1], 2), halves(6)),
        "only_q": way(once[0], w_k, halves(6)),
        "right_half": way(*once, halves(6)),
    }


def fp8_scales(p: Arrays) -> dict[str, Arrays]:
    q, k, v, scale = p["q_heads"], p["k_heads"], p["v_heads"], 0.08838834764831843
    return {
        "right": attend(q, k, v, scale=scale, w_o=p["w_o"]),
        "q scale missing": attend(q, k, v, scale=2 * scale, w_o=p["w_o"]),
        "v scale missing": attend(q, k, v, scale=scale, w_o=8 * p["w_o"]),
    }


def differential(p: Arrays) -> dict[str, Arrays]:
    q, k, _ = fillers(3, 3, 4, 2)
    v, w_o, order = p["v_heads"], p["w_o"], [0, 2, 1, 3]
    return {
        "right": attend(q, k, v, causal(3, 3), w_o=w_o),
        "blocks": attend(q[order], k[order], v, causal(3, 3), w_o=w_o),
        "sign": attend(q, k, v, causal(3, 3), w_o=np.abs(w_o)),
    }


def cosine_width_1(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(3, 3, 2, 1)

    def way(axis: int) -> Arrays:
        normed = [x / np.sqrt((x * x).sum(axis=axis, keepdims=True) + 1e-30) for x in (q, k)]
        return {"q_norm": normed[0], "k_norm": normed[1]} | attend(*normed, v, scale=10)

    return {"right": way(-1), "over tokens": way(-2)}


def lengths_and_causal(p: Arrays) -> dict[str, Arrays]:
    q, k, v = grid((2, 1, 2, 2)), grid((2, 1, 5, 2), 5, 1), grid((2, 1, 5, 2), 3, 2)
    real = np.arange(5) < np.array([5, 4])[:, None, None, None]
    own = np.stack([causal(2, 5, 3), causal(2, 5, 2)])[:, None]
    return {"right": attend(q, k, v, own & real), "padded diagonal": attend(q, k, v, causal(2, 5, 3) & real)}


def packed_reset(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(5, 5, 1, 4)
    document = np.array([0, 0, 0, 1, 1])
    own = causal(5, 5) & (document[:, None] == document)

    def way(at: list[int], keep: np.ndarray) -> Arrays:
        turned = {"q_rot": turn(q, at, halves(4), base(4)), "k_rot": turn(k, at, halves(4), base(4))}
        return turned | attend(turned["q_rot"], turned["k_rot"], v, keep)

    restarted = [0, 1, 2, 0, 1]
    return {
        "right": way(restarted, own),
        "not reset": way([0, 1, 2, 3, 4], own),
        "documents forgotten": way(restarted, causal(5, 5)),
    }


def dropout_backward(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(3, 3, 1, 2)
    kept, made = p["dropout_keep"], {}
    forward = attend(q, k, v)
    weights = forward["weights"]
    dropped = weights * kept / 0.5
    forward |= {"dropped": dropped} | mixed(dropped, v)
    upstream = np.ones((1, 3, 2))
    for name, (used, factor) in {
        "right": (weights, kept / 0.5),
        "post dropout weights": (dropped, kept / 0.5),
        "no dropout in dP": (weights, np.ones((1, 3, 3))),
        "both": (dropped, np.ones((1, 3, 3))),
        "scaled by p": (weights, kept * 0.5),
    }.items():
        d_weights = upstream @ v.swapaxes(-1, -2) * factor
        d_masked = used * (d_weights - (used * d_weights).sum(axis=-1, keepdims=True))
        d_qk = d_masked / np.sqrt(2)
        gradients = {
            "d_output": upstream[0],
            "d_concat": upstream[0],
            "d_contexts": upstream,
            "d_v_heads": dropped.swapaxes(-1, -2) @ upstream,
        }
        gradients |= {"d_weights": d_weights, "d_masked": d_masked, "d_scaled": d_masked, "d_qk": d_qk}
        made[name] = forward | gradients | {"d_q_heads": d_qk @ k, "d_k_heads": d_qk.swapaxes(-1, -2) @ q}
    return made


def empty_row_backward(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(2, 3, 1, 2)
    forward = attend(q, k, v, np.array([[False, False, False], [True, True, False]]))
    upstream = np.ones((1, 2, 2))
    d_weights, made = upstream @ v.swapaxes(-1, -2), {}
    for name, weights in {"right": forward["weights"], "nan from the row": forward["weights"].copy()}.items():
        if name != "right":
            weights[0, 0] = np.nan
        d_masked = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
        d_qk = d_masked / np.sqrt(2)
        gradients = {"d_weights": d_weights, "d_masked": d_masked, "d_qk": d_qk}
        made[name] = forward | gradients | {"d_q_heads": d_qk @ k, "d_k_heads": d_qk.swapaxes(-1, -2) @ q}
    return made


def window_decode(p: Arrays) -> dict[str, Arrays]:
    k, v = (np.concatenate([p[f"past_{name}"], p[f"{name}_heads"]], axis=-2) for name in "kv")
    i, j = np.ogrid[:3, :5]
    past = j <= i + 2
    keeps = {"right": past & (j >= i + 1), "local rows": past & (j >= i - 1), "no window": past}
    return {name: attend(p["q_heads"], k, v, keep) for name, keep in keeps.items()}


def constant(p: Arrays) -> dict[str, Arrays]:
    q, k, v = fillers(3, 3, 2, 2)
    return {name: attend(q, k, v, scale=factor / np.sqrt(2), w_o=p["w_o"]) for name, factor in {"right": 1.0, "factor3": 3.0}.items()}


STRANGERS = {
    made.__name__: made
    for made in (
        sink_once,
        sink_bias_key0,
        chunked,
        cross_uncalled_causal,
        encoder_uncalled_causal,
        queries_at_one_position,
        partial_rotary,
        dynamic_ntk,
        yarn,
        mla_scale,
        pad_mask_on_rows,
        sentinel_5e4,
        lse_merge,
        llama_gqa_permute,
        fp8_scales,
        differential,
        cosine_width_1,
        lengths_and_causal,
        packed_reset,
        dropout_backward,
        empty_row_backward,
        window_decode,
        constant,
    )
}
