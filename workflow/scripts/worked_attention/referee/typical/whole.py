"""All stages of one case: standard deviations as `bounds` gives bounds."""

import numpy as np

from worked_attention.referee.bounds.rounding import PRESCALED
from worked_attention.referee.typical import backward, contexts, projections, scores, weights
from worked_attention.referee.typical.rounding import Spread
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE, COMPUTED, computed

TYPICAL = dict(
    zip(COMPUTED, (projections.stage, scores.stage, weights.stage, contexts.stage, contexts.output, backward.stage), strict=True)
)


def deviations(case: dict, arrays: dict[str, np.ndarray], u: float, u_kept: float | dict[str, float]) -> dict[str, np.ndarray]:
    """Standard deviation of every computed array of a resolved `case`, when all is computed from the exact parameters.

    arrays: every array of the case in float64, as centres. u: unit roundoff of sums and exponentials. u_kept: unit roundoff of the arrays
    kept between the stages, one for all or by name. Returns float64 arrays of the same shapes, infinite where nothing can be said.
    """
    centre = {name: value if name in BOOLEAN else np.asarray(value, dtype=np.float64) for name, value in arrays.items()}
    of = Spread(case, centre, u, u_kept if isinstance(u_kept, dict) else dict.fromkeys((*CATALOGUE, PRESCALED), u_kept))
    with np.errstate(all="ignore"):
        for stage in TYPICAL.values():
            stage(of)
    return {name: of.sigma(name) for name in computed(case)}
