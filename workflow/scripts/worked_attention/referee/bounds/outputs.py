"""Bounds of the output."""

from worked_attention.referee.bounds.projections import project
from worked_attention.referee.bounds.rounding import Errors


def stage(of: Errors) -> None:
    """concat W_O^T + b_O, as any projection."""
    if "concat" in of.centre:
        project(of, "output", "concat", "w_o", "b_o")
