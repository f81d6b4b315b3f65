"""A suite of many small cases, to measure what one more case costs.

    python benchmarks/generate.py 1000 config/suites/many.yaml

The first case states every parameter (three tokens, d_model 4, two heads); each other extends it with an x of its own.
"""

import random
import sys
from pathlib import Path

SHAPES = {"w_q": (4, 4), "b_q": (4,), "w_k": (4, 4), "b_k": (4,), "w_v": (4, 4), "b_v": (4,), "w_o": (4, 4), "b_o": (4,)}


def suite(cases: int) -> str:
    """The text of a suite with so many cases and no figures; the same for the same number."""
    draw = random.Random(0)

    def numbers(*shape: int) -> list:
        return [numbers(*shape[1:]) for _ in range(shape[0])] if shape else round(draw.uniform(-1, 1), 2)

    lines = ["figures: none", "cases:", "  case_1:", "    heads: 2", "    parameters:", f"      x: {numbers(3, 4)}"]
    lines += [f"      {name}: {numbers(*shape)}" for name, shape in SHAPES.items()]
    lines += [f"  case_{i}: {{extends: case_1, parameters: {{x: {numbers(3, 4)}}}}}" for i in range(2, cases + 1)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(suite(int(sys.argv[1])), encoding="utf-8")
