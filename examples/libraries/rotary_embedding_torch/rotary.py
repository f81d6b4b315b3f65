"""rotary_embedding_torch.RotaryEmbedding: queries and keys turned by their positions, in neighbouring columns."""

from rotary_embedding_torch import RotaryEmbedding

ARRAYS = "torch"
KNOWN = (None, "linear", "ntk")
WIDE = ("float64", "float32")


def attention(case, arrays):
    """The queries and keys, turned."""
    rotary, queries, keys = case["rotary"], case["query_positions"], case["key_positions"]
    scaling = rotary and rotary["scaling"] or {"rule": None, "factor": 1.0}
    if not rotary or rotary["angles"] not in WIDE or rotary["pairing"] != "interleaved" or scaling["rule"] not in KNOWN:
        raise NotImplementedError("rotary positions of neighbouring columns, plain, linear or NTK")
    if any(at != [*range(at[0], at[0] + len(at))] for at in (queries, keys)):
        raise NotImplementedError("positions that follow each other")
    option = {None: "interpolate_factor", "linear": "interpolate_factor", "ntk": "theta_rescale_factor"}[scaling["rule"]]
    turn = RotaryEmbedding(rotary["dims"], theta=rotary["base"], **{option: scaling["factor"]}).rotate_queries_or_keys
    return {"q_rot": turn(arrays["query_unrotated"], offset=queries[0]), "k_rot": turn(arrays["key_unrotated"], offset=keys[0])}
