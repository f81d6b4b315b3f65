"""Stage outputs: concat W_O^T + b_O, or concat itself (Vaswani et al. 2017, section 3.2.2)."""

from worked_attention.referee.truth.balls import Balls, linear
from worked_attention.referee.truth.parts import Part


def outputs(case: dict, part: Part) -> dict[str, Balls]:
    """`output` [n, d_out] of some tokens."""
    return {"output": linear(part["concat"], part.maybe("w_o"), part.maybe("b_o"))}
