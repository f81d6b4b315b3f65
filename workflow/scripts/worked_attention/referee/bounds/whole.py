"""Bounds of all stages, one after the other, or of one stage alone."""

import numpy as np

from worked_attention.referee.bounds import backward, contexts, outputs, projections, scores, weights
from worked_attention.referee.bounds.rounding import PRESCALED, Errors
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE, STAGES
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
    return {name: of.of(name) for stage in STAGES[1:] for name in case["arrays"][stage]}


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


def centres(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every array of the case in float64, from its parameters as they are: centres for bounds of any arithmetic."""
    fill = np.asarray(fill_value(case["mask"]["fill"], np.dtype(case["dtype"])))
    with np.errstate(over="ignore"):
        mask = case["mask"] | {"fill": float(fill.astype(case["dtype"]))}
    wide = case | {"dtype": "float64", "precision": {"accumulate": "float64", "softmax": "float64"}, "mask": mask}
    made = {name: arrays[name] for name in case["arrays"]["parameters"]}
    return from_parameters(wide, {name: value if name in BOOLEAN else value.astype(np.float64) for name, value in made.items()})
