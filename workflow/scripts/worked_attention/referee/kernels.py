"""What a file says of a function `attention` that is a kernel or a layer: what it `CAN` take, and the order of its `AXES`.

A kernel that says nothing more is softmax(query key^T / sqrt(d_k)) value, with as many key heads as query heads, all of one width. A
`layer` is that between projections of x (or of x and x_kv), with weights and biases. A case that needs what `CAN` does not name is
`unsupported`, and the function is not called.
"""

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np

from worked_attention.cases.words import did_you_mean, shown
from worked_attention.stages.weights import KINDS

Arrays = dict[str, np.ndarray]
NEEDS: dict[str, Callable[[dict], bool]] = {  # each word of CAN: whether a case needs that
    "keep": lambda case: "keep" in case["shapes"],  # a boolean mask
    "bias": lambda case: "bias" in case["shapes"],  # what is added to the scores
    "scale": lambda case: case["scale_factor"] != 1 / math.sqrt(case["dims"]["d_k"]),  # another one than 1/sqrt(d_k)
    "groups": lambda case: case["heads"] != case["kv_heads"],  # fewer heads of keys and values than of queries
    "widths": lambda case: case["dims"]["d_v"] != case["dims"]["d_k"],  # values of another width than keys
    "softcap": lambda case: case["softcap"] is not None,
    "sinks": lambda case: "sinks" in case["shapes"],
    **{kind: lambda case, kind=kind: case["softmax"] == kind for kind in KINDS if kind != "plain"},
    "dropout": lambda case: case["dropout"] is not None,
    "fill": lambda case: case["mask"]["fill"] != "-inf",  # another number in place of blocked scores
}
LAYER = "layer"  # a word of CAN, too
WEIGHTS = {"x", "w_q", "w_k", "w_v", "w_o"}  # what a layer needs of a case
BETWEEN = ("sinusoidal", "qk_norm", "rotary")  # options that it has not
BESIDE = {"x_k", "x_v", "past_k", "past_v", "bias_k", "bias_v"}  # and parameters
AXES = {"bhld": (0, 1, 2, 3), "blhd": (0, 2, 1, 3)}  # batch, heads, length, width: where ours stand; each undoes itself
TURNED = ("query", "key", "value")
WITH_BATCH = (*TURNED, "keep", "bias", "added", "x", "x_kv")


def refusal(module: ModuleType, case: dict) -> str | None:
    """Why a case is beyond the kernel, by its `CAN`; None if it is not, or if the file has no CAN. Raises ValueError if CAN is not one."""
    if not hasattr(module, "CAN"):
        return None
    can = module.CAN
    if not isinstance(can, tuple | list | set | frozenset) or not all(isinstance(word, str) for word in can):
        raise ValueError(f"CAN is {shown(can)}, should be a list of words")
    words = (LAYER, *NEEDS)
    if unknown := [word for word in can if word not in words]:
        raise ValueError(f"CAN names {shown(unknown[0])}{did_you_mean(unknown[0], words)}; it takes {', '.join(words)}")
    if not {"q_heads", "k_heads", "contexts"} <= set(case["shapes"]):
        return "has no queries, keys and values"
    if LAYER in can and not _of_layer(case):
        return "is no layer from x to the output, with nothing between but masks and biases"
    lacking = [word for word, needed in NEEDS.items() if word not in can and needed(case)]
    return f"needs {', '.join(lacking)}" if lacking else None


def _of_layer(case: dict) -> bool:
    given = set(case["arrays"]["parameters"])
    return given >= WEIGHTS and not given & BESIDE and case["extra_key"] == "none" and not any(case[option] for option in BETWEEN)


def meant(module: ModuleType) -> str | None:
    """The name of the array that the function returns alone; None if its shape has to tell."""
    if LAYER in getattr(module, "CAN", ()):
        return "output"
    return "contexts" if hasattr(module, "AXES") else None


def order(module: ModuleType) -> tuple[int, ...] | None:
    """Where our axes stand in those of the kernel; None if the file has no AXES. Raises ValueError if it is not one."""
    if not hasattr(module, "AXES"):
        return None
    if not isinstance(module.AXES, str) or module.AXES not in AXES:
        raise ValueError(f"AXES is {shown(module.AXES)}, should be {' or '.join(AXES)}")
    return AXES[module.AXES]


def laid_out(case: dict, arrays: Arrays, axes: tuple[int, ...]) -> Arrays:
    """The arrays with a batch, of one where there is none, in those that a kernel or layer takes; queries, keys and values in its axes."""
    batched = {name: arrays[name] if "B" in case["dims"] else arrays[name][None] for name in WITH_BATCH if name in arrays}
    return arrays | batched | {name: np.ascontiguousarray(np.transpose(batched[name], axes)) for name in TURNED if name in batched}


def taken_back(contexts: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Contexts as the kernel lays them out, in our axes; those of another rank as they are, for they are wrong."""
    return np.transpose(contexts, axes) if contexts.ndim == len(axes) else contexts
