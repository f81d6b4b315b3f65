"""Which options and parameters of a case need each other, or exclude each other."""

from worked_attention.cases.literals import Report
from worked_attention.cases.options import applies, schema
from worked_attention.cases.sizes import place
from worked_attention.cases.words import did_you_mean, short
from worked_attention.stages.catalogue import BOOLEAN, DRAWABLE

MASK_ARRAYS = ("keep", "block", "add", "key_keep", "key_block", "key_add")
ANYWHERE = {"w_o", "b_o", "sinks", "bias_table", "t5_table", "dropout_keep", "upstream", *(f"mask_{name}" for name in MASK_ARRAYS)}
KEYS = {"g_q", "g_k", "bias_k", "bias_v", "past_k", "past_v"}
PROJECTIONS = {f"{kind}_{name}" for kind in "wb" for name in "qkv"}
BEGINNINGS = {  # what each beginning needs, and what it may have besides
    "x": ({"x"}, {"x_kv", "x_k", "x_v"} | PROJECTIONS | KEYS),
    "qkv": ({"q", "k", "v"}, KEYS),
    "heads": ({"q_heads", "k_heads", "v_heads"}, KEYS),
    "scaled": ({"scaled"}, {"v", "v_heads"}),
}
BEGIN_WORDS = {"x": "x", "qkv": "q, k and v", "heads": "q_heads, k_heads and v_heads", "scaled": "scaled scores"}
TOGETHER = [  # parameters that make sense only with another one
    ("x_k", "x_v"),
    ("x_v", "x_k"),
    ("bias_k", "bias_v"),
    ("bias_v", "bias_k"),
    ("past_k", "past_v"),
    ("past_v", "past_k"),
    *((f"b_{name}", f"w_{name}") for name in "qkvo"),
]
TURNS = {
    "yarn": ("beta_slow", "beta_fast"),
    "llama3": ("low", "high"),
}  # of rotary.scaling: below the first all is divided, above the other nothing changes


def drawn(options: dict, given: dict, fail: Report) -> list[str]:
    """Names of the parameters that torch draws; one that it cannot draw, or that is in `given` as well, goes to `fail`."""
    found = []
    for i, parameter in enumerate(options["torch_draws"]["order"] if options["torch_draws"] else []):
        if parameter not in DRAWABLE:
            fail(("torch_draws", "order", i), f"{short(parameter)} cannot be drawn{did_you_mean(parameter, DRAWABLE)}")
        elif parameter in given:
            fail(("parameters", parameter), "is given here and drawn in torch_draws.order; keep one of them")
        else:
            found.append(parameter)
    return found


def beginning(names: set[str], fail: Report) -> str:
    """Which of the beginnings the case has: x, qkv, heads or scaled. names: of its parameters; what does not fit goes to `fail`."""
    begins = [key for key, (needed, _) in BEGINNINGS.items() if names & (needed - {"v", "v_heads"})]
    if len(begins) != 1:
        got = " and ".join(n for key in begins for n in sorted(BEGINNINGS[key][0] & names))
        advice = f"this one gives {got}; keep one beginning" if got else "this one gives none of them; give one"
        fail(("parameters",), f"a case begins at x, at q, k and v, or at scaled scores; {advice}")
        return "x"
    needed, besides = BEGINNINGS[begins[0]]
    for name in sorted(names - needed - besides - ANYWHERE):
        fail(place(name), f"has no place in a case that begins at {BEGIN_WORDS[begins[0]]}; remove it")
    for name in sorted(needed - names):
        fail(place(name), f"is missing; give all of {BEGIN_WORDS[begins[0]]}")
    if names & PROJECTIONS:
        for name in sorted({"w_q", "w_k", "w_v"} - names):
            fail(place(name), "is missing; give all of w_q, w_k and w_v, or none for x itself")
    for name, other in TOGETHER:
        if name in names and other not in names and other not in ("w_q", "w_k", "w_v"):
            fail(place(other), f"is missing, but {name} is there; give both, or neither")
    if "x_kv" in names and "x_k" in names:
        fail(place("x_kv"), "is there as well as x_k and x_v; keep x_kv for one input of both, or the other two")
    if begins[0] == "scaled" and "w_o" in names and not names & {"v", "v_heads"}:
        fail(place("v"), "is missing, but w_o is there; give v, or no w_o")
    return begins[0]


def check_options(raw: dict, options: dict, names: set[str], begins_at: str, fail: Report) -> None:
    """Options that need each other, or exclude each other; what is wrong goes to `fail`.

    raw: the case as its suite says it. options: the same with every default. names: of its parameters.
    """
    if begins_at == "scaled":
        for key in ("scale", "qk_norm", "sinusoidal", "rotary", "extra_key", "backward"):
            if key in raw:
                fail((key,), "has no place in a case that begins at scaled scores; remove it")
    if options["sinusoidal"] and begins_at not in ("x", "scaled"):
        fail(("sinusoidal",), "is added to x, but this case begins later; remove it")
    if options["sinusoidal"] and "x_k" in names:
        fail(("sinusoidal",), "is added to x and x_kv; give x_kv in place of x_k and x_v")
    _check_mask(raw.get("mask", {}), fail)
    for option, parameter in (("dropout", "dropout_keep"), ("t5", "t5_table")):
        if option in raw and parameter not in names:
            fail(("parameters", parameter), f"is missing, but {option} is there; give both, or neither")
    if "dropout_keep" in names and "dropout" not in raw:
        fail(("dropout",), "is missing, but dropout_keep is there; give the probability that it was drawn with")
    if names & {"g_q", "g_k"} and not options["qk_norm"]:
        fail(("qk_norm",), "is missing, but its gain g_q or g_k is there; add it")
    if "zero_vector" in raw.get("qk_norm", {}) and options["qk_norm"]["eps"]:
        fail(
            ("qk_norm", "zero_vector"), f"has a meaning where eps is 0, but it is {options['qk_norm']['eps']}; leave it out, or add eps: 0"
        )
    if "sinks" in names and options["softmax"] != "plain":
        fail(("softmax",), f"is {options['softmax']}, but sinks join the plain softmax; remove one of them")
    if options["rotary"] and options["rotary"]["scaling"]:
        _check_scaling(raw["rotary"]["scaling"], options["rotary"], fail)
    if ("upstream" in names) != (options["backward"] == "given"):
        fail(("backward",), "is `given` if and only if parameters.upstream is there; add the other one")
    if options["softmax"] == "none" and options["mask"]["fill"] != "-inf":
        fail(("mask", "fill"), f"is {options['mask']['fill']}, which would be a weight without a softmax; leave it out")
    if options["backward"] and options["softmax"] == "hardmax":
        fail(("backward",), "does not go through hardmax; remove one of them")


def _check_mask(given: dict, fail: Report) -> None:
    """Keys of `mask` that need others, or must agree with them."""
    if given.get("prefix") and "causal" not in given:
        fail(("mask", "prefix"), "widens a causal mask; add mask.causal")
    if "causal" in given and given.get("window", {}).get("align", given["causal"]) != given["causal"]:
        fail(("mask", "window", "align"), f"is {given['window']['align']}, but mask.causal is {given['causal']}; leave it out")
    if given.get("diagonal") == "own":
        if "key_lengths" not in given:
            fail(
                ("mask", "diagonal"), "is own, each sequence's last real key, but all keys are real; add mask.key_lengths, or leave it out"
            )
        if "bottom_right" not in (given.get("causal"), given.get("window", {}).get("align")):
            fail(("mask", "diagonal"), "moves a diagonal that is bottom_right; add mask.causal: bottom_right, or leave it out")


def _check_scaling(given: dict, rotary: dict, fail: Report) -> None:
    """Options of the rule for longer contexts: only those that it has, and in their order."""
    scaling = rotary["scaling"]
    rule = scaling["rule"]
    rules = schema("suite")["$defs"]["case"]["properties"]["rotary"]["properties"]["scaling"]["properties"]
    known = [key for key in rules if key != "rule" and applies(rules[key], given)]
    for key in [key for key in given if key not in ("rule", *known)]:
        fail(("rotary", "scaling", key), f"is not used by {rule}, which has {', '.join(known)}; remove it")
    if "original_length" in known and "original_length" not in given:
        fail(("rotary", "scaling"), f"original_length is missing; {rule} needs it")
    if rule not in TURNS:
        return
    slow, fast = TURNS[rule]
    least, most = scaling[slow], scaling[fast]
    if least >= most and slow in given:
        fail(("rotary", "scaling", slow), f"is {least}, should be less than {fast} = {most}")
    elif least >= most:
        fail(("rotary", "scaling", fast), f"is {most}, should be more than {slow} = {least}")
    if rule == "yarn" and rotary["base"] <= 1:
        fail(("rotary", "base"), f"is {rotary['base']}, should be more than 1 for yarn")


def _check_friendly(name: str, shape: list[int], decimals: int, fail: Report) -> None:
    """Whether an array of numbers that are pleasant by hand can be drawn: it holds numbers, and its rows can differ."""
    rows, kinds = shape[-2] if len(shape) > 1 else 1, (2 * (10**decimals - 1)) ** shape[-1]
    if name in BOOLEAN:
        fail((*place(name), "friendly"), "draws numbers, but this array holds true and false; write it out")
    elif 2 * rows > kinds:
        more = "add decimals" if decimals < 3 else "use normal"
        fail((*place(name), "friendly"), f"cannot draw {rows} rows that all differ from {kinds} kinds of them; {more}")


def check_values(raw: dict, case: dict, fail: Report) -> None:
    """Options whose values depend on the sizes; what is wrong goes to `fail`. raw: as its suite says it. case: resolved."""
    dims, mask, rotary = case["dims"], case["mask"], case["rotary"]
    for name, spec in case["parameters"].items():
        if isinstance(spec, dict) and "friendly" in spec:
            _check_friendly(name, case["shapes"][name], spec["friendly"]["decimals"], fail)
    if rotary:
        turned = rotary["dims"]
        if turned % 2 and "dims" not in raw["rotary"]:
            advice = "add dims, an even number up to d_k" if turned > 1 else "make d_k even"
            fail(("rotary",), f"turns columns in pairs, but d_k = {turned} is odd; {advice}")
        elif turned % 2 or turned > dims["d_k"]:
            fail(("rotary", "dims"), f"is {turned}, should be even and at most d_k = {dims['d_k']}")
        elif rotary["scaling"] and rotary["scaling"]["rule"] == "ntk" and turned < 4:
            fail(("rotary", "scaling", "rule"), "ntk needs at least 4 rotated columns")
    if "key_lengths" in mask:
        if len(mask["key_lengths"]) != dims.get("B", 1):
            fail(
                ("mask", "key_lengths"),
                f"names {len(mask['key_lengths'])}, but the batch has {dims.get('B', 1)}; give one for each sequence",
            )
        for i, length in enumerate(mask["key_lengths"]):
            if length > dims["Lc"]:
                fail(("mask", "key_lengths", i), f"is {length}, but there are {dims['Lc']} keys")
    for side, axis in (("queries", "Lq"), ("keys", "Lc")):
        if "documents" in mask and len(mask["documents"][side]) != dims[axis]:
            fail(("mask", "documents"), f"names {len(mask['documents'][side])} {side}, but the case has {axis} = {dims[axis]}")
    if case["t5"] and case["t5"]["direction"] == "both" and dims["buckets"] % 2:
        fail(("parameters", "t5_table"), f"has {dims['buckets']} buckets, should have an even number for direction: both")
    if case["t5"] and dims["buckets"] < 4:
        fail(("parameters", "t5_table"), f"has {dims['buckets']} buckets, should have at least 4")
    elif case["t5"]:
        alone = dims["buckets"] // (4 if case["t5"]["direction"] == "both" else 2)
        if case["t5"]["longest"] <= alone:
            fail(("t5", "longest"), f"is {case['t5']['longest']}, should be more than {alone}, for so many buckets hold one distance each")
