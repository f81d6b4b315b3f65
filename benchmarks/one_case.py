"""The yardstick of cost.py: one process that imports NumPy and torch and computes the hand-worked case in torch."""

import sys

import numpy as np
import torch
import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    case = yaml.safe_load(file)["cases"]["two_heads"]
p = {name: torch.from_numpy(np.array(value)) for name, value in case["parameters"].items()}
attention = torch.nn.MultiheadAttention(4, case["heads"], batch_first=True, dtype=torch.float64).eval()
with torch.no_grad():
    attention.in_proj_weight.copy_(torch.cat([p["w_q"], p["w_k"], p["w_v"]]))
    attention.in_proj_bias.copy_(torch.cat([p["b_q"], p["b_k"], p["b_v"]]))
    attention.out_proj.weight.copy_(p["w_o"])
    attention.out_proj.bias.copy_(p["b_o"])
    print(attention(p["x"][None], p["x"][None], p["x"][None])[0])
