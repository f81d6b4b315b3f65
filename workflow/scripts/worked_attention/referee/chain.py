"""The stages as links of a chain that can be taken up at any array: what stands in for arrays that somebody left out."""

from worked_attention.stages import projections, weights
from worked_attention.stages.contexts import merge_heads
from worked_attention.stages.projections import latest
from worked_attention.stages.whole import STAGE, Arrays, Stage  # noqa: F401  `Stage` is what mistakes change

STEPS = {  # arrays of the projections behind each of their steps
    "norm": ("q_rot", "k_rot", "present_k", "present_v", "k_extended", "v_extended"),
    "rot": ("present_k", "present_v", "k_extended", "v_extended"),
    "present": ("k_extended", "v_extended"),
}
FIRST = ("q", "k", "v", "q_heads", "k_heads", "v_heads")  # arrays of the projections that its stage takes as it finds them


def after(step: str, case: dict, arrays: Arrays, heads: Arrays, go: Stage = projections.stage) -> Arrays:
    """The arrays of the projections behind `step` (norm, rot or present), from `heads` {q_heads, k_heads, v_heads} as they are there."""
    wanted = [name for name in STEPS[step] if name in case["arrays"]["projections"]]
    parameters = {name: arrays[name] for name in case["arrays"]["parameters"]}
    return go({**case, "arrays": {**case["arrays"], "projections": wanted}}, {**parameters, **heads}) if wanted else {}


def heads_at(step: str, arrays: Arrays) -> Arrays:
    """{q_heads, k_heads, v_heads} as they are behind `step`, from all arrays of the projections."""
    later = {name for name in STEPS[step]}
    known = {name: array for name, array in arrays.items() if name not in later}
    return {f"{name}_heads": latest(known, name) for name in ("q", "k", "v") if f"{name}_heads" in known}


def fill(case: dict, stage: str, before: Arrays, given: Arrays) -> Arrays:
    """Every array of `stage`: those `given`, and the others computed from them, or from the arrays `before` where none leads to them."""
    own = {name: given[name] for name in case["arrays"][stage] if name in given}
    if stage == "projections":
        made = STAGE[stage](case, before | {name: own[name] for name in FIRST if name in own}) | own
        for step in STEPS:
            if any(name.endswith(f"_{step}") or name.startswith(step) for name in own):
                made |= after(step, case, before, heads_at(step, before | made)) | own
        return made
    made = STAGE[stage](case, before)
    if stage == "scores" and {"qk", "scaled"} & set(own):
        made |= STAGE[stage](case, before | {"scaled": own["scaled"] if "scaled" in own else own["qk"] * case["scale_factor"]})
    made |= own
    if stage == "weights" and "dropped" in made and "weights" in own and "dropped" not in own:
        made["dropped"] = weights.dropout(own["weights"], before["dropout_keep"], case["dropout"])
    if stage == "contexts" and "contexts" in own and "concat" not in own:
        made["concat"] = merge_heads(own["contexts"])
    return made
