"""mlx.core.fast.rope: queries and keys turned by their positions, which follow each other."""

import mlx.core as mx

WIDE = ("float64", "float32")


def attention(case, arrays):
    """The queries and keys, turned."""
    rotary, queries, keys = case["rotary"], case["query_positions"], case["key_positions"]
    if not rotary or rotary["angles"] not in WIDE or any(at != [*range(at[0], at[0] + len(at))] for at in (queries, keys)):
        raise NotImplementedError("rotary positions that follow each other")
    if rotary["scaling"] and rotary["scaling"]["rule"] != "linear":
        raise NotImplementedError("scaling of positions alone")
    scale = 1 / rotary["scaling"]["factor"] if rotary["scaling"] else 1.0

    def turned(name, first):
        pairs = rotary["pairing"] == "interleaved"
        return mx.fast.rope(mx.array(arrays[name]), rotary["dims"], traditional=pairs, base=rotary["base"], scale=scale, offset=first)

    return {"q_rot": turned("query_unrotated", queries[0]), "k_rot": turned("key_unrotated", keys[0])}
