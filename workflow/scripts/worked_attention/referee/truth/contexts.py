"""Stage contexts: the values of one head averaged with its weights, and the heads side by side (Vaswani et al. 2017, section 3.2.2)."""

import numpy as np

from worked_attention.referee.truth.balls import Balls, matmul
from worked_attention.referee.truth.parts import Part
from worked_attention.referee.truth.projections import entering


def contexts(case: dict, part: Part) -> dict[str, Balls]:
    """`contexts` [n, d_v] of one head."""
    return {"contexts": matmul(part.first("dropped", "weights"), entering(part, "v"))}


def concat(heads: list[Balls]) -> dict[str, Balls]:
    """`concat` [n, H * d_v]: for each token the context of the first head, then that of the second, ..."""
    return {"concat": np.hstack(heads)}
