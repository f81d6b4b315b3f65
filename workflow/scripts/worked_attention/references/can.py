"""What an implementation can do, as a list of the options and parameters that it knows; a case that uses another one is refused.

An adapter says `CAN = ...` in the words of `case["uses"]` and of the catalogue. An option that it has never heard of is therefore
`unsupported`, and never silently left out. Values that an option may not have here (a scale below 0, say) are its own affair.
"""

from worked_attention.stages.catalogue import CATALOGUE

FORM = frozenset(("dtype", "heads", "backward", "upstream", "mask.empty_row", "softmax"))
FORM |= {f"precision.{part}" for part in ("accumulate", "softmax", "scores")} | {"scale"}
# dtype and shape, conventions that every adapter tells, and values that each looks at; where scores overflow, their numbers tell
INPUTS = frozenset(("x", "x_kv", "x_k", "x_v", *(f"{kind}_{name}" for kind in "wb" for name in "qkvo")))
GIVEN = frozenset(("q", "k", "v", "q_heads", "k_heads", "v_heads"))
PLACES = frozenset(("sinusoidal", "sinusoidal.base", "positions.offset", "positions.queries", "positions.keys"))
TURNED = frozenset(("rotary", "rotary.pairing", "rotary.base", "rotary.dims", "rotary.angles", "rotary.scaling"))
NORMED = frozenset(("qk_norm", "qk_norm.kind", "qk_norm.eps", "qk_norm.zero_vector", "g_q", "g_k"))
KEPT = frozenset(("past_k", "past_v"))
APPENDED = frozenset(("bias_k", "bias_v", "extra_key"))
GROUPED = frozenset(("kv_heads",))
MASKS = frozenset(f"mask.{name}" for name in ("causal", "prefix", "diagonal", "window", "documents", "key_lengths"))
MASKS |= {name for name in CATALOGUE if name.startswith("mask_")}
BIASES = frozenset(("bias_table", "alibi", "alibi.slopes", "alibi.form", "t5", "t5.longest", "t5.direction", "t5_table"))
BEFORE = INPUTS | GIVEN | PLACES | TURNED | NORMED | KEPT | APPENDED | GROUPED  # all that makes queries, keys and values per head
ATTENDING = FORM | BEFORE | MASKS | BIASES  # what an operator can do that begins at queries, keys, values, mask and bias
SINKS, DROPOUT, SOFTCAP = frozenset(("sinks",)), frozenset(("dropout", "dropout_keep")), frozenset(("softcap",))
EVERYTHING = ATTENDING | SINKS | DROPOUT | SOFTCAP | {"mask.fill", "scaled"}  # as of today; a new option is not in it by itself

REFUSED = {  # the words for it, where there are better ones than `does not know`
    "scaled": "takes q, k and v, not scores",
    "scale": "always scales by 1/sqrt(d_k)",
    "softcap": "has no softcap",
    "sinks": "has the plain softmax only",
    "dropout": "has no dropout with a given mask",
    "mask.fill": "chooses what fills blocked scores itself",
    "rotary": "has no rotary positions",
    "qk_norm": "has no normed queries and keys",
    "qk_norm.zero_vector": "hides NaN in a row of scores",
    "kv_heads": "has no grouped heads",
    "past_k": "has no cache",
    "q": "begins at x; this case begins later",
    "q_heads": "begins at x; this case begins later",
}


def refusal(case: dict, can: frozenset[str]) -> str | None:
    """Why an implementation that `can` do so much cannot run the case: the first thing that it lacks, in a few words; None if it can."""
    lacking = [name for name in (*case["uses"], *case["arrays"]["parameters"]) if name not in can]
    return next((REFUSED[name] for name in lacking if name in REFUSED), f"does not know {lacking[0]}") if lacking else None
