"""equinox.nn.RotaryPositionalEmbedding: queries and keys turned in halves, from position 0 on."""

import equinox as eqx
import jax

jax.config.update("jax_enable_x64", True)  # or all is float32

WIDE = ("float64", "float32")


def attention(case, arrays):
    """The queries and keys, turned."""
    rotary, positions = case["rotary"], (case["query_positions"], case["key_positions"])
    if (
        not rotary
        or rotary["angles"] not in WIDE
        or rotary["pairing"] != "half"
        or rotary["scaling"]
        or rotary["dims"] != case["dims"]["d_k"]
    ):
        raise NotImplementedError("rotary positions in halves, unscaled, of all columns")
    if any(at != [*range(len(at))] for at in positions):
        raise NotImplementedError("positions from 0 on")
    query, key = arrays["query_unrotated"], arrays["key_unrotated"]
    turn = jax.vmap(eqx.nn.RotaryPositionalEmbedding(case["dims"]["d_k"], theta=rotary["base"], dtype=query.dtype))
    turned = {"q_rot": query, "k_rot": key}
    return {name: turn(heads.reshape(-1, *heads.shape[-2:])).reshape(heads.shape) for name, heads in turned.items()}
