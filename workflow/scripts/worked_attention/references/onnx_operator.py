"""The ONNX operators Attention and RotaryEmbedding as a small model of one case, whoever runs it."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from worked_attention.references import fused
from worked_attention.stages.positions import turns
from worked_attention.stages.projections import stage as projections
from worked_attention.stages.projections import unrotated

INTERLEAVED = {"half": 0, "interleaved": 1}  # attribute of RotaryEmbedding
SHOWN = ("scaled", "capped", "masked", "weights")  # by qk_matmul_output_mode
Evaluate = Callable[[onnx.ModelProto, dict[str, np.ndarray]], list[np.ndarray]]


def supports(case: dict) -> str | None:
    """What fused attention supports, with a positive scale and no key that the layer appends."""
    if reason := fused.supports(case):
        return reason
    if case["scale_factor"] <= 0:
        return "takes the square root of the scale, which must be above 0"
    if case["dims"]["Lk"] != case["dims"]["Lc"]:
        return "appends no keys"
    return None


def native(case: dict, opset: int) -> dict:
    """Attributes for the masks that the operator has itself: its diagonal starts at the first new key, its window came with opset 25."""
    past, found = case["dims"]["Lp"], {}
    if fused.says(case, "causal", past):
        found["is_causal"] = 1
    if fused.says(case, "window", past) and opset >= 25:
        window = case["mask"]["window"]
        found |= {f"{side}_window_size": -1 if window[side] is None else window[side] for side in ("left", "right")}
    return found


def attributes(case: dict) -> dict:
    """Attributes for scale, softcap and the precision of the softmax."""
    found = {} if case["scale"] == "1/sqrt(d_k)" else {"scale": case["scale_factor"]}
    found["softcap"] = float(case["softcap"] or 0)
    if case["precision"]["softmax"] != case["dtype"]:
        found["softmax_precision"] = helper.np_dtype_to_tensor_dtype(np.dtype(case["precision"]["softmax"]))
    return found


def run(case: dict, arrays: dict[str, np.ndarray], evaluate: Evaluate, opset: int, modes: list[str]) -> dict[str, np.ndarray]:
    """Every array that the operators show: `modes` of SHOWN, contexts, rotated and cached ones. evaluate: (model, feeds) -> outputs."""
    made = projections(case, arrays)
    feeds = {name: fused.batched(case, unrotated(made, name)) for name in ("q", "k", "v")}
    feeds |= {name: fused.batched(case, arrays[name]) for name in ("past_k", "past_v") if name in arrays}
    own = native(case, opset)
    taken = ({"causal"} if "is_causal" in own else set()) | ({"window"} if "left_window_size" in own else set())
    keep, added = fused.keep_and_bias(case, arrays, taken)
    if keep is not None or added is not None:
        feeds["mask"] = np.where(True if keep is None else keep, 0 if added is None else added, -np.inf).astype(feeds["q"].dtype)
    nodes, rotated, inputs = [], [], ["q", "k", "v"]
    if case["rotary"]:
        inputs[:2] = rotated = ["q_rot", "k_rot"]
        for name, positions in (("q", case["query_positions"]), ("k", case["key_positions"])):
            nodes.append(rotation(case, name, positions, feeds))
    inputs += [name if name in feeds else "" for name in ("mask", "past_k", "past_v")]
    for mode, name in enumerate(SHOWN):
        made_there = [*(f"{other}_{mode}" for other in ("contexts", "present_k", "present_v")), name]  # an unnamed one is read again
        nodes.append(helper.make_node("Attention", inputs, made_there, qk_matmul_output_mode=mode, **attributes(case), **own))
    outputs = [*modes, *rotated, "contexts_0", *(["present_k_0", "present_v_0"] if "past_k" in feeds else [])]
    results = evaluate(model(nodes, feeds, outputs, opset), feeds)
    found = {name.removesuffix("_0"): array for name, array in zip(outputs, results, strict=True)}
    return {name: array if "B" in case["dims"] else array[0] for name, array in found.items()}


def rotation(case: dict, name: str, positions: list[int], feeds: dict[str, np.ndarray]) -> onnx.NodeProto:
    """The node that rotates `name`; cosines and sines join the feeds."""
    options, x = case["rotary"], feeds[name]
    dims = options["dims"]
    for kind, table in zip(("cos", "sin"), turns(np.array(positions), options), strict=True):
        table = table.astype(x.dtype)
        feeds[f"{kind}_{name}"] = np.broadcast_to(table, (len(x), *table.shape)).copy()
    paired = {"interleaved": INTERLEAVED[options["pairing"]], "rotary_embedding_dim": dims if dims < x.shape[-1] else 0}
    return helper.make_node("RotaryEmbedding", [name, f"cos_{name}", f"sin_{name}"], [f"{name}_rot"], **paired)


def model(nodes: list[onnx.NodeProto], feeds: dict[str, np.ndarray], outputs: list[str], opset: int) -> onnx.ModelProto:
    """A model of `nodes` whose inputs are the feeds; its outputs have the dtype of q and whatever shape comes out."""
    kind = helper.np_dtype_to_tensor_dtype(feeds["q"].dtype)
    inputs = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in feeds.items()]
    graph = helper.make_graph(nodes, "attention", inputs, [helper.make_tensor_value_info(name, kind, None) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
