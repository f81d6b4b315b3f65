"""Stage backward by moving forward: what the loss gains where one number of an array moves, all else ahead of it following.

A number that moves is a `Dual`, its value and its slopes along the unit directions, one for each number of its row; sums, products and
quotients of such numbers are such numbers (forward mode, Wengert 1964). The loss of a row is written as one formula of what
moves, and its slopes are the gradient: no Jacobian is derived, and none is transposed. Where the loss is linear in what moves, the slope is
what multiplies it.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from flint import acb, arb

from worked_attention.referee.truth.balls import Balls, closed, each, matmul
from worked_attention.referee.truth.parts import Part
from worked_attention.referee.truth.positions import PAIRS, turns
from worked_attention.referee.truth.projections import INPUTS, SHARE, entering, source
from worked_attention.referee.truth.scores import scale
from worked_attention.referee.truth.weights import kept

ZERO, ONE = arb(0), arb(1)


@dataclass(frozen=True)
class Dual:
    """Numbers that move: `value` [n, m] or, of sums, [n, 1], and `slope` [n, m] along the m unit directions of each row."""

    value: Balls
    slope: Balls

    def __add__(self, other: Self | arb) -> Self:
        return Dual(self.value + other.value, self.slope + other.slope) if isinstance(other, Dual) else Dual(self.value + other, self.slope)

    def __mul__(self, other: Balls | arb) -> Self:
        return Dual(self.value * other, self.slope * other)

    def __truediv__(self, other: Self) -> Self:
        return Dual(self.value / other.value, (self.slope * other.value - self.value * other.slope) / (other.value * other.value))

    def total(self) -> Self:
        """The sum of each row; a direction moves the one term that is its own."""
        return Dual(self.value.sum(axis=1)[:, None], self.slope)

    def root(self) -> Self:
        """The square root."""
        value = each(lambda v: v.sqrt(), self.value)
        return Dual(value, self.slope / (value + value))


def moving(x: Balls) -> Dual:
    """x [n, m], each number moving along its own direction."""
    return Dual(x, np.full(x.shape, ONE))


def of_outputs(case: dict, part: Part) -> dict[str, Balls]:
    """`d_output` [n, d_out], as given or 1, and `d_concat` [n, H * d_v] of some tokens."""
    d = part["upstream"] if "upstream" in part else np.full((len(part.queries), case["dims"]["d_out"]), ONE)
    return {"d_output": d, "d_concat": matmul(d, part["w_o"]) if "w_o" in part else d}


def of_head(case: dict, part: Part) -> tuple[dict[str, Balls], dict[str, Balls]]:
    """Gradients [n, ...] by contexts, weights and scores of one head, and, by q, k and v, those by what entered them.

    The part has `d_contexts` [n, d_v]. The second are [n, d_k] for q, [Lk, d_k] for k and [Lk, d_v] for v, of these queries alone.
    """
    d_contexts, used = part["d_contexts"], part.first("dropped", "weights")
    d_weights = matmul(d_contexts, entering(part, "v").T)
    if "dropout_keep" in part:
        d_weights = d_weights * kept(case, part)
    masked = np.where(closed(part["masked"]), ZERO, SOFTMAX[case["softmax"]](part["weights"], d_weights))
    scaled = np.where(part["keep"], masked, ZERO) if "keep" in part else masked
    if case["softcap"]:
        scaled = scaled * of_softcap(part["capped"], arb(case["softcap"]))
    qk = scaled * scale(case)
    made = {"d_contexts": d_contexts, "d_weights": d_weights, "d_masked": masked, "d_scaled": scaled, "d_qk": qk}
    entered = {"q": matmul(qk, entering(part, "k")), "k": matmul(qk.T, entering(part, "q")), "v": matmul(used.T, d_contexts)}
    return made, entered


def of_softmax(p: Balls, gain: Balls) -> Balls:
    """Slopes [n, Lk] of the loss by the scores. p: the weights; gain: what the loss gains by each.

    Where scores move by t, weights are p e^t / (rest + sum p e^t), with the rest that a sink holds of the whole, and the sum is 1 at first.
    The loss is sum of gain * p e^t over that sum; e^t is 1 and grows by 1.
    """
    e = Dual(p, p)
    whole = Dual(np.full((len(p), 1), ONE), e.slope)
    return ((e * gain).total() / whole).slope


def of_scores(p: Balls, gain: Balls) -> Balls:
    """Slopes [n, Lk] of the loss by the scores where they are the weights: sum of gain * s is linear in s."""
    return gain


SOFTMAX = {"plain": of_softmax, "plus_one": of_softmax, "none": of_scores}


def of_softcap(capped: Balls, cap: arb) -> Balls:
    """Slopes of cap * tanh(x / cap) by x, the same at x and -x: tanh is (1 - e) / (1 + e) with e = e^(-2|x|/cap), e' = -2/cap e."""
    size = each(abs, capped)
    e = (cap - size) / (cap + size)
    moved = Dual(e, e * (-2 / cap))
    return ((moved * -ONE + ONE) / (moved + ONE)).slope * cap


def of_norm(d: Balls, x: Balls, options: dict, gain: Balls | None) -> Balls:
    """Slopes [L, d] by x of the loss sum of d * gain * x / size, where the size of a row moves with each of its numbers."""
    x, c = moving(x), d if gain is None else d * gain
    squares = Dual(x.value * x.value, x.value + x.value).total() * SHARE[options["kind"]](c.shape[-1])
    return ((x * c).total() / (squares + arb(options["eps"])).root()).slope


def of_rotation(d: Balls, turn: Balls, pairing: str) -> Balls:
    """Slopes [L, d] by x of the loss sum of d * x rotated: a pair (1, 0) becomes its turn, and (0, 1) its turn times i."""
    y = d.copy()
    for n in range(turn.shape[1]):
        a, b = PAIRS[pairing](n, turn.shape[1])
        for column, unit in ((a, acb(1)), (b, acb(0, 1))):
            image = turn[:, n] * unit
            y[:, column] = d[:, a] * each(lambda z: z.real, image) + d[:, b] * each(lambda z: z.imag, image)
    return y


def of_projections(case: dict, part: Part, entered: dict[str, Balls]) -> dict[str, Balls]:
    """Gradients of one sequence by heads, queries, keys, values and inputs, and its share of those by projection weights and biases.

    entered: by q [H, Lq, d_k], k [H_kv, Lk, d_k] and v [H_kv, Lk, d_v], by what entered scores and contexts.
    """
    d, new = {}, slice(case["dims"]["Lp"], case["dims"]["Lc"])  # of the keys, neither the cached nor the appended ones
    heads = {"q": entered["q"], "k": entered["k"][:, new], "v": entered["v"][:, new]}
    for name, where in (("q", case["query_positions"]), ("k", case["key_positions"])):
        if case["rotary"]:
            turn = turns(where, case["rotary"])
            heads[name] = np.stack([of_rotation(y, turn, case["rotary"]["pairing"]) for y in heads[name]])
        if case["qk_norm"]:
            both = zip(heads[name], part[f"{name}_heads"], strict=True)
            heads[name] = np.stack([of_norm(y, x, case["qk_norm"], part.maybe(f"g_{name}")) for y, x in both])
    for name, y in heads.items():
        d[f"d_{name}_heads"], d[f"d_{name}"] = y, np.hstack(list(y))
        given = next((x for x in INPUTS[name] if x in part), None)
        if given is None:
            continue
        by_input = d[f"d_{name}"]
        if f"w_{name}" in part:
            d |= of_linear(name, d[f"d_{name}"], source(part, name))
            by_input = matmul(by_input, part[f"w_{name}"])
        d[f"d_{given}"] = d[f"d_{given}"] + by_input if f"d_{given}" in d else by_input
    return d


def of_linear(name: str, d: Balls, x: Balls) -> dict[str, Balls]:
    """`d_w_` and `d_b_` of projection `name`, from d [L, d_out] and its input x [L, d_in]: a weight moves its output by x, a bias by 1."""
    return {f"d_w_{name}": matmul(d.T, x), f"d_b_{name}": d.sum(axis=0)}
