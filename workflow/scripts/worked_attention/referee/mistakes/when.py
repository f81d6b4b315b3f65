"""What a case has: when a mistake can happen at all."""

from collections.abc import Callable


def has(*names: str) -> Callable[[dict], bool]:
    """Cases that have all these arrays."""
    return lambda case: all(name in case["shapes"] for name in names)


def heads(case: dict) -> bool:
    return case["heads"] > 1


def same_shape(case: dict, *names: str) -> bool:
    """Whether all these arrays are in the case and have one shape."""
    return all(name in case["shapes"] for name in names) and len({tuple(case["shapes"][name]) for name in names}) == 1


def square(case: dict, *names: str) -> bool:
    return all(name in case["shapes"] and len(set(case["shapes"][name])) == 1 for name in names)


def as_long(case: dict) -> bool:
    """As many keys as queries, and more than one."""
    return case["dims"]["Lq"] == case["dims"]["Lk"] > 1


def self_attention(case: dict) -> bool:
    return "w_q" in case["shapes"] and not {"x_kv", "x_k"} & set(case["shapes"])


def scaled(case: dict) -> bool:
    return "qk" in case["shapes"]


def layout(case: dict) -> bool:
    return case["begins_at"] in ("x", "qkv") and (case["heads"] > 1 or case["kv_heads"] > 1)


def fused(case: dict) -> bool:
    return self_attention(case) and heads(case) and same_shape(case, "w_q", "w_k", "w_v")


def rotated(case: dict) -> bool:
    return bool(case["rotary"])


def has_norm(case: dict) -> bool:
    return bool(case["qk_norm"])


def masked(case: dict) -> bool:
    return "keep" in case["shapes"]


def mask_names(*keys: str) -> Callable[[dict], bool]:
    return lambda case: all(key in case["mask"] for key in keys)


def padded(case: dict) -> bool:
    return "key_lengths" in case["mask"] or bool({"mask_key_keep", "mask_key_block"} & set(case["shapes"]))


def biased(case: dict) -> bool:
    return "bias" in case["shapes"]


def capped(case: dict) -> bool:
    return bool(case["softcap"])


def has_alibi(case: dict) -> bool:
    return bool(case["alibi"])


def has_t5(case: dict) -> bool:
    return bool(case["t5"])


def bare(case: dict) -> bool:
    others = {"keep", "bias", "sinks", "dropped"} & set(case["shapes"])
    return scaled(case) and as_long(case) and bool(case["arrays"]["contexts"]) and not others and case["softmax"] == "plain"


def plain(case: dict) -> bool:
    return case["softmax"] == "plain" and "sinks" not in case["shapes"]


def has_sinks(case: dict) -> bool:
    return case["softmax"] == "plus_one" or "sinks" in case["shapes"]


SOFT = {"plain": True, "plus_one": True, "hardmax": False, "none": False}  # whether weights are quotients of exponentials


def soft(case: dict) -> bool:
    return SOFT[case["softmax"]]


def unweighted(case: dict) -> bool:
    """Cases without a softmax."""
    return case["softmax"] == "none"


def has_gradients(*names: str) -> Callable[[dict], bool]:
    return lambda case: bool(case["backward"]) and has(*names)(case)
