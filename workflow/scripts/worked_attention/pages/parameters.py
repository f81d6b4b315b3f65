"""What a case starts from, told: every parameter as a table with its shape."""

import numpy as np

from worked_attention.pages.blocks import Fold, Part, Words
from worked_attention.pages.language import _
from worked_attention.pages.work import Work, beside
from worked_attention.stages.catalogue import CATALOGUE, axes

TABLES = 4  # of one array that stand open; more are folded away


def given(work: Work, names: list[str]) -> list:
    """The parameters of the case, each with its shape and what it is."""
    flat = [name for name in names if work.arrays[name].ndim < 3]
    made = beside([work.table(name, caption=f"{name}: {described(work, name)}") for name in flat])
    for name in [name for name in names if name not in flat]:
        made += [Part(name, (Words(described(work, name), "note"), *tables(work, name)))]
    return made


def described(work: Work, name: str) -> str:
    """What a given array is, and its shape."""
    return _("; ").join([meaning(name), shape_words(work, name)])


def meaning(name: str) -> str:
    """What a given array is, in words; one that a case could also compute is told as given."""
    return formula(name) if CATALOGUE[name].stage == "parameters" else _("given")


def formula(name: str) -> str:
    """How an array is computed, or what it is, as the catalogue says it."""
    array = CATALOGUE[name]
    return _("gradient of the loss by {name}").format(name=name[2:]) if array.stage == "backward" else _(array.formula)


def shape_words(work: Work, name: str) -> str:
    """The shape of an array in names and numbers: "[Lq, d_model] = [3, 4]"."""
    array = work.arrays[name]
    named = axes(name, work.case["dims"])[-array.ndim :]
    return f"[{', '.join(named)}] = [{', '.join(map(str, array.shape))}]"


def tables(work: Work, name: str, kind: str = "", masked: np.ndarray | None = None) -> list:
    """The tables of an array, one for each sequence and head, side by side; those behind the first few are folded away."""
    array = work.arrays[name]
    if array.ndim < 3:
        return [work.table(name, caption=name, kind=kind, masked=masked)]
    made = [work.table(name, lead, kind=kind, masked=masked) for lead in work.leads(name)]
    rest = made[TABLES:]
    return beside(made[:TABLES]) + (
        [Fold(_("{name} of the other {n}").format(name=name, n=len(rest)), tuple(beside(rest)))] if rest else []
    )
