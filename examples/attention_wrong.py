"""Plain multi-head attention from x, for cases without masks and other options. The line with np.sqrt is wrong."""

import numpy as np

BEYOND = ("softcap", "qk_norm", "sinusoidal", "rotary", "alibi", "t5", "dropout")
NEEDED, KNOWN = {"x", "w_q", "w_k", "w_v"}, {"x", "w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o"}


def attention(case, arrays):
    """Every array on the way, by name."""
    plain = case["softmax"] == "plain" and case["extra_key"] == "none" and not any(case[option] for option in BEYOND)
    if (
        not plain
        or "keep" in case["shapes"]
        or not NEEDED <= set(case["arrays"]["parameters"]) <= KNOWN
        or case["heads"] != case["kv_heads"]
    ):
        raise NotImplementedError("only plain attention from x")
    made = {}
    for name in "qkv":
        made[name] = arrays["x"] @ arrays[f"w_{name}"].T + arrays.get(f"b_{name}", 0)
        made[f"{name}_heads"] = np.swapaxes(made[name].reshape(*made[name].shape[:-1], case["heads"], -1), -2, -3)
    made["qk"] = made["q_heads"] @ np.swapaxes(made["k_heads"], -1, -2)
    made["scaled"] = made["masked"] = made["qk"] / np.sqrt(case["dims"]["d_model"])
    e = np.exp(made["masked"] - made["masked"].max(axis=-1, keepdims=True))
    made["weights"] = e / e.sum(axis=-1, keepdims=True)
    made["contexts"] = made["weights"] @ made["v_heads"]
    made["concat"] = np.swapaxes(made["contexts"], -2, -3).reshape(*arrays["x"].shape[:-1], -1)
    made["output"] = made["concat"] @ arrays["w_o"].T + arrays.get("b_o", 0) if "w_o" in arrays else made["concat"]
    return made
