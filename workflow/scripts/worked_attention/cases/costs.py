"""What a case costs: numbers to learn, multiply-adds and bytes, counted from its shapes."""

from math import prod

from worked_attention.stages.catalogue import CATALOGUE, STAGES, WEIGHTS, kept_in, shape, size
from worked_attention.stages.dtypes import DTYPES
from worked_attention.stages.rows import COMPARED, blocks, is_large

BALLS = ("parameters", "projections", "backward")  # stages whose arrays are balls as long as anything is computed


def multiply_adds(arrays: dict[str, list[str]], dims: dict[str, int]) -> dict[str, int]:
    """Multiply-adds of each stage's matrix products (softmax has none); a backward product costs as much as its forward one."""
    made = {name for stage in arrays.values() for name in stage}
    batch = dims.get("B", 1)
    forward = {
        w: batch * prod(shape(w, dims)) * dims["Lq" if w in ("w_q", "w_o") else "Ln"] for w in ("w_q", "w_k", "w_v", "w_o") if w in made
    }
    counts = dict.fromkeys(STAGES, 0)
    counts["projections"] = sum(forward.get(w, 0) for w in ("w_q", "w_k", "w_v"))
    counts["scores"] = batch * size("H*Lq*Lk*d_k", dims) if "qk" in made else 0
    counts["contexts"] = batch * size("H*Lq*Lk*d_v", dims) if "contexts" in made else 0
    counts["outputs"] = forward.get("w_o", 0)
    counts["backward"] = 2 * sum(counts.values()) if arrays["backward"] else 0
    return counts


def counted(arrays: dict[str, list[str]], shapes: dict[str, tuple], dims: dict[str, int], dtype: str, scores: str) -> dict:
    """{parameter_count, multiply_adds, bytes} of a case with these arrays (names by stage), their shapes by name and its sizes.

    parameter_count: the numbers that a layer would learn, all of weights, biases and gains. bytes: of the arrays of each stage,
    kept in `dtype`, scores in the dtype `scores`, booleans in one byte each.
    """
    bytes_of = {"bool": 1} | {name: kind.bytes for name, kind in DTYPES.items()}

    def taken(stage: str) -> int:
        return sum(prod(shapes[name]) * bytes_of[kept_in(name, stage, dtype, scores)] for name in arrays[stage])

    return {
        "parameter_count": sum(prod(shapes[name]) for name in arrays["parameters"] if name in WEIGHTS),
        "multiply_adds": multiply_adds(arrays, dims),
        "bytes": {stage: taken(stage) for stage in STAGES},
    }


def truth_megabytes(case: dict) -> float:
    """Memory that rule truth needs for a case as it is looked at, estimated, in 10^6 bytes.

    Measured: 8 bytes for each number that is not a score or weight of a large case, for those are kept in files; 56 for each parameter,
    what is projected from them, and each gradient, for of their balls some are gone before others are made, and scores and contexts are
    computed in slices; 16 for each number while it is compared (ours, its bound), and 130 for each of the largest array, which is done
    in parts where a case is large; and 100 MB for Python and what is in work.
    """
    sizes = {name: prod(axes) for name, axes in case["shapes"].items()}
    plain = {name: size for name, size in sizes.items() if CATALOGUE[name].axes[-1] not in ("Lk", "Lc")}
    compared = (16 * sum(sizes.values()) + 130 * max(sizes.values())) / len(blocks(case, COMPARED))
    balls = sum(size for name, size in plain.items() if CATALOGUE[name].stage in BALLS and not name.endswith("_heads"))
    return 100 + (8 * sum((plain if is_large(case) else sizes).values()) + compared + 56 * balls) / 1e6
