"""LlamaRotaryEmbedding of transformers with its rules of scaling: queries and keys turned in halves by their positions."""

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

ARRAYS = "torch"
NAMES = {  # of our options, by rule
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low": "low_freq_factor",
        "high": "high_freq_factor",
        "original_length": "original_max_position_embeddings",
    },
    "yarn": {"factor": "factor", "beta_fast": "beta_fast", "beta_slow": "beta_slow", "original_length": "original_max_position_embeddings"},
}
WIDE = ("float64", "float32")


def attention(case, arrays):
    """The queries and keys, turned."""
    rotary, scaling = case["rotary"], case["rotary"] and case["rotary"]["scaling"]
    if (
        not rotary
        or rotary["angles"] not in WIDE
        or rotary["pairing"] != "half"
        or rotary["dims"] != case["dims"]["d_k"]
        or (scaling and scaling["rule"] not in NAMES)
    ):
        raise NotImplementedError("rotary positions in halves, of all columns, plain, linear, llama3 or yarn")
    options = {"rope_type": "default", "rope_theta": rotary["base"]}
    if scaling:
        options |= {"rope_type": scaling["rule"]} | {name: scaling[ours] for ours, name in NAMES[scaling["rule"]].items()}
    length = (scaling or {}).get("original_length") or 2048
    config = LlamaConfig(head_dim=rotary["dims"], rope_parameters=options, max_position_embeddings=length)
    embedding, made = LlamaRotaryEmbedding(config), {}
    for made_name, name, positions in (("q_rot", "query", case["query_positions"]), ("k_rot", "key", case["key_positions"])):
        heads = arrays[f"{name}_unrotated"]
        cosine, sine = embedding(heads, torch.tensor([positions]))
        made[made_name] = apply_rotary_pos_emb(heads, heads, cosine[0], sine[0], unsqueeze_dim=0)[0]
    return made
