"""The last product, told: the heads side by side, times the output weight."""

from collections.abc import Callable

from worked_attention.pages.blocks import Formula, Words
from worked_attention.pages.language import _
from worked_attention.pages.parameters import tables
from worked_attention.pages.projections import sums
from worked_attention.pages.work import Work, folds


def output(work: Work, name: str) -> list:
    """concat W_O^T + b_O, or concat itself."""
    if "w_o" not in work.arrays:
        return [Words(_("The case has no w_o, so the output is concat itself.")), *tables(work, name)]
    bias = "b_o" in work.arrays
    words = (
        _("Each output is the row of concat times a row of w_o, product by product, plus b_o.")
        if bias
        else _("Each output is the row of concat times a row of w_o, product by product.")
    )
    return [
        Formula(r"Y = Z W_O^\top" + (" + b_O" if bias else "")),
        Words(words),
        *folds(sums(work, name, "concat", "w_o", "b_o", "o")),
        *tables(work, name),
    ]


STEPS: dict[str, Callable[[Work, str], list]] = {"output": output}
