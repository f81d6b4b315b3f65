"""All stages of one case, one after the other."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from worked_attention.stages import backward, contexts, outputs, parameters, projections, scores, weights

Arrays = dict[str, np.ndarray]
Stage = Callable[[dict, Arrays], Arrays]
STAGE: dict[str, Stage] = {  # every stage behind the parameters, in the order in which they follow each other
    "projections": projections.stage,
    "scores": scores.stage,
    "weights": weights.stage,
    "contexts": contexts.stage,
    "outputs": outputs.stage,
    "backward": backward.stage,
}


def compute(case: dict, folder: Path = Path()) -> dict[str, np.ndarray]:
    """Every array of a resolved `case` by name; parameter files are read from `folder`."""
    return from_parameters(case, parameters.stage(case, folder))


def from_parameters(case: dict, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every array of a resolved `case` by name, from the arrays that it is `given` as parameters."""
    arrays = dict(given)
    for stage in STAGE.values():
        arrays |= stage(case, arrays)
    return arrays
