"""Bounds of all stages, one after the other, or of one stage alone."""

import math

import numpy as np

from worked_attention.referee.bounds import backward, contexts, outputs, projections, scores, weights
from worked_attention.referee.bounds.rounding import PRESCALED, Errors
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE, STAGES, computed
from worked_attention.stages.dtypes import DTYPES, usual_precision
from worked_attention.stages.masks import fill_value
from worked_attention.stages.whole import from_parameters

BOUNDS = {
    "projections": projections.stage,
    "scores": scores.stage,
    "weights": weights.stage,
    "contexts": contexts.stage,
    "outputs": outputs.stage,
    "backward": backward.stage,
}


def _errors(case: dict, arrays: dict[str, np.ndarray], u: float, u_kept: float | dict[str, float] | None) -> Errors:
    centre = {name: value if name in BOOLEAN else np.asarray(value, dtype=np.float64) for name, value in arrays.items()}
    kept = u_kept if isinstance(u_kept, dict) else {} if u_kept is None else dict.fromkeys((*CATALOGUE, PRESCALED), u_kept)
    return Errors(case, centre, u, kept)


def bounds(case: dict, arrays: dict[str, np.ndarray], u: float, u_kept: float | dict[str, float] | None = None) -> dict[str, np.ndarray]:
    """E of every computed array of a resolved `case`, when all is computed from the exact parameters.

    arrays: every array of the case, computed at least as well as what is bounded (see `centres`); they only serve as centres.
    u: unit roundoff of sums and exponentials. u_kept: unit roundoff of the arrays kept between the stages, one for all or by
    name; u itself where it is not given. Returns float64 arrays of the same shapes: |computed - exact| <= E.
    """
    of = _errors(case, arrays, u, u_kept)
    with np.errstate(over="ignore", invalid="ignore"):
        for bound in BOUNDS.values():
            bound(of)
    return {name: of.of(name) for name in computed(case)}


def stage_bounds(
    case: dict, stage: str, arrays: dict[str, np.ndarray], u: float, u_kept: float | dict[str, float] | None = None
) -> dict[str, np.ndarray]:
    """E of every array of one stage, when it is computed from the arrays of the stages before, which are known exactly.

    arrays: those of the stages before, and those of the stage itself as centres. Else as `bounds`.
    """
    of = _errors(case, arrays, u, u_kept)
    of.bound |= dict.fromkeys(name for before in STAGES[: STAGES.index(stage)] for name in case["arrays"][before])
    with np.errstate(over="ignore", invalid="ignore"):
        BOUNDS[stage](of)
    return {name: of.of(name) for name in case["arrays"][stage]}


def centres(case: dict, arrays: dict[str, np.ndarray], certain: float = math.inf) -> dict[str, np.ndarray]:
    """Every array of the case in float64, from its parameters as they are: centres for bounds of any arithmetic.

    certain: scores beyond it are infinite, see `certain_overflow`.
    """
    scores = case["precision"]["scores"]
    fill = np.asarray(fill_value(case["mask"]["fill"], np.dtype(scores)))
    with np.errstate(over="ignore"):
        mask = case["mask"] | {"fill": float(fill.astype(scores))}
    limits = case["overflow"] | {"certain": certain}
    wide = case | {"dtype": "float64", "precision": usual_precision("float64"), "mask": mask, "overflow": limits}
    made = {name: arrays[name] for name in case["arrays"]["parameters"]}
    return from_parameters(wide, {name: value if name in BOOLEAN else value.astype(np.float64) for name, value in made.items()})


def certain_overflow(case: dict, exact: dict[str, np.ndarray], error: dict[str, np.ndarray]) -> float:
    """The size beyond which each score of a case is certainly infinite, though none is in `exact`; infinite where there is no such score.

    exact: at least the arrays of stage scores, in float64. error: their E, as if nothing overflowed and no score were rounded to be
    stored. A score becomes infinite from half a unit beyond the largest number of its dtype on; from one step to the next, stored ones
    lose a few units.
    """
    possible = case["overflow"]["possible"]
    unit = next((dtype.roundoff for dtype in DTYPES.values() if dtype.largest == possible), 0.0)
    beyond, sizes = possible, [np.zeros(1)]
    for name in [name for name in ("qk", "scaled", "capped", "masked") if name in exact]:
        counted = np.isfinite(exact[name]) & (exact["keep"] if name == "masked" and "keep" in exact else True)
        size = np.abs(exact[name])[counted]
        margin = error[name][counted] + (0.0 if name == "qk" else 4 * unit * (size + np.abs(exact["scaled"])[counted]))
        unsure = (size + margin > possible) & ~(size - margin > possible * (1 + 0.51 * unit))
        beyond = max(beyond, size[unsure].max(initial=0.0))
        sizes.append(size)
    return beyond if np.concatenate(sizes).max() > beyond else math.inf


def kept_centres(case: dict, arrays: dict[str, np.ndarray], u: float, kept: dict[str, float]) -> dict[str, np.ndarray]:
    """As `centres`, but scores are infinite where they certainly overflow in what the case keeps them in.

    u, kept: unit roundoffs of whoever computes, as in `bounds`; those of scores play no part.
    """
    exact = centres(case, arrays)
    if not near_overflow(case, exact):
        return exact
    free = case | {"overflow": dict.fromkeys(case["overflow"], math.inf)}
    stored = {name: unit for name, unit in kept.items() if name not in case["arrays"]["scores"]}
    certain = certain_overflow(case, exact, bounds(free, exact, u, stored))
    return exact if certain == math.inf else centres(case, arrays, certain)


def near_overflow(case: dict, arrays: dict[str, np.ndarray]) -> bool:
    """Whether a finite score is so large that it may overflow in what the case keeps scores in."""
    shown = [np.abs(arrays[name]) for name in ("qk", "scaled", "masked") if name in arrays]
    return any(size[np.isfinite(size)].max(initial=0.0) > case["overflow"]["possible"] / 2 for size in shown)
