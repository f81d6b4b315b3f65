"""All stages of one case, one after the other."""

from pathlib import Path

import numpy as np

from worked_attention.stages import backward, contexts, outputs, parameters, projections, scores, weights


def compute(case: dict, folder: Path = Path()) -> dict[str, np.ndarray]:
    """Every array of a resolved `case` by name; parameter files are read from `folder`."""
    return from_parameters(case, parameters.stage(case, folder))


def from_parameters(case: dict, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every array of a resolved `case` by name, from the arrays that it is `given` as parameters."""
    arrays = dict(given)
    for stage in (projections, scores, weights, contexts, outputs, backward):
        arrays |= stage.stage(case, arrays)
    return arrays
