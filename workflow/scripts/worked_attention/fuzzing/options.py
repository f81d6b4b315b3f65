"""Choices of the options of a case for random ones, the simplest first, for that is where a failure shrinks to."""

from typing import Any

CHOICES: dict[str, list] = {  # by option of a case
    "scale": ["none", "1/d_k", "1/sqrt(d_k)", "1/sqrt(d_model)", 0.3, -0.7],
    "softcap": [0.5, 2, 30],
    "qk_norm": [{"kind": "rms"}, {"kind": "l2", "eps": 0.001}, {"kind": "l2", "eps": 0}],
    "fill": ["finfo_min", -1e9, -30],
}
PARTS: dict[str, dict[str, list]] = {  # of options with parts, each of which has a choice
    "alibi": {"slopes": ["interleaved", "geometric"], "form": ["distance", "relative", "key_index"]},
    "t5": {"direction": ["both", "left"], "longest": [20, 128]},
}


def rotary_parts(width: int) -> dict[str, list]:
    """Choices of the parts of a rotation of `width` columns or fewer; all but `pairing` may be left out."""
    scaling: list[dict[str, Any]] = [
        {"rule": "linear", "factor": 2},
        {"rule": "yarn", "factor": 4, "original_length": 16},
        {"rule": "llama3", "factor": 8, "original_length": 32},
    ]
    if width >= 4:
        scaling.append({"rule": "ntk", "factor": 2})
    dims = [width] if width < 6 else [4, width]
    return {"pairing": ["half", "interleaved"], "base": [100, 10000], "scaling": scaling, "dims": dims}
