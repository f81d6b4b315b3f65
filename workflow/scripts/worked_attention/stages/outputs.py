"""Stage outputs: concat W_O^T + b_O (Vaswani et al. 2017, section 3.2.2); without W_O the output is concat itself."""

import numpy as np

from worked_attention.stages.projections import project


def stage(case: dict, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`output` [..., Lq, d_out]; nothing if the case has no contexts."""
    if "concat" not in arrays:
        return {}
    return {"output": project(arrays["concat"], arrays.get("w_o"), arrays.get("b_o"), case["precision"]["accumulate"])}
