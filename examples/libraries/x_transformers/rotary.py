"""RotaryEmbedding of x-transformers: queries and keys turned by their positions, in neighbouring columns."""

import torch
from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

ARRAYS = "torch"
KNOWN = (None, "linear", "ntk")
WIDE = ("float64", "float32")


def attention(case, arrays):
    """The queries and keys, turned."""
    rotary = case["rotary"]
    scaling = rotary and rotary["scaling"] or {"rule": None, "factor": 1.0}
    if not rotary or rotary["angles"] not in WIDE or rotary["pairing"] != "interleaved" or scaling["rule"] not in KNOWN:
        raise NotImplementedError("rotary positions of neighbouring columns, plain, linear or NTK")
    option = {None: "interpolation_factor", "linear": "interpolation_factor", "ntk": "base_rescale_factor"}[scaling["rule"]]
    embedding = RotaryEmbedding(rotary["dims"], base=rotary["base"], **{option: scaling["factor"]})

    def turned(name, positions):
        frequencies, _ = embedding(torch.tensor(positions))
        heads = arrays[name].reshape(-1, *arrays[name].shape[-3:])
        return apply_rotary_pos_emb(heads, frequencies).reshape(arrays[name].shape)

    return {"q_rot": turned("query_unrotated", case["query_positions"]), "k_rot": turned("key_unrotated", case["key_positions"])}
