"""The numbers of the studies: from cases and their arrays to the rows of a table.

A row is a dict from column to text, whole number or float; COLUMNS says what the columns mean.
"""

import json
from collections.abc import Callable

import numpy as np

from worked_attention.referee.bounds.contracts import roundoffs
from worked_attention.referee.bounds.whole import bounds, centres
from worked_attention.referee.truth.whole import truth
from worked_attention.stages.dtypes import DTYPES
from worked_attention.stages.weights import row_entropy
from worked_attention.studies.evaluations import evaluations

Arrays = Callable[[dict, str], np.ndarray]  # (case, "stage/array") -> the array

STAGES = ("projections", "scores", "contexts", "outputs")  # those with matrix products
WIDTH = 3  # of the convolution in `reach`

COLUMNS = {
    "variance": {
        "case": "name",
        "d_k": "width of queries and keys",
        "scale": "what multiplies q.k",
        "products": "how many q.k there are",
        "qk_variance": "their variance",
        "qk_expected": "d_k: the variance for independent components of mean 0 and variance 1",
        "scaled_variance": "variance of scale * q.k",
        "scaled_expected": "scale^2 * d_k",
    },
    "entropy": {
        "case": "name",
        "d_k": "width of queries and keys",
        "scale": "what multiplies q.k",
        "entropy": "-sum p ln p of a row of weights, mean over rows",
        "entropy_at_most": "ln Lk: equal weights",
        "largest_weight": "of a row, mean over rows",
        "jacobian_norm": "Frobenius norm of diag(p) - p p^T, mean over rows",
    },
    "permutation": {
        "case": "name",
        "partner": "the case with its tokens in another order",
        "order": "the partner's tokens, counted as in the case from 0",
        "largest_difference": "largest |output of the partner - output of the case, permuted|",
        "largest_output": "largest |output of the case|",
    },
    "costs": {
        "case": "name",
        "L": "queries",
        "d_model": "width of x",
        "H": "heads",
        "parameters": "numbers in weights and biases",
        **{f"{stage}_multiply_adds": f"multiply-adds of stage {stage}" for stage in STAGES},
        "multiply_adds": "of all stages",
        "parameter_bytes": "bytes of weights and biases",
        "weights_bytes": "bytes of the attention weights",
    },
    "reach": {
        "operation": "convolution, recurrence, or the case's attention",
        "L": "tokens",
        "steps_in_a_row": "that one layer cannot do at once",
        "pairs": "of tokens (j, i) such that one layer carries j to i",
        "longest_path": "most steps that any j needs to any i that it reaches",
        "unreachable": "pairs that no number of layers joins",
        "multiply_adds": "of one layer, products with projections left out for attention",
    },
    "rounding": {
        "case": "name",
        "dtype": "of all arrays",
        "L": "queries and keys",
        "evaluation": "ours, or the order in which every sum is taken",
        "stage": "name",
        "error": "largest difference from the exact number, in units of the roundoff of the dtype times the largest element",
        "bound": "largest certified bound from x on, in the same unit",
        "ratio": "largest ratio of difference to bound of one element",
    },
}


def called(axes: dict[str, str]) -> str:
    """The name of a study of columns. axes: {x, y, by}."""
    return "_by_".join([f"{axes['y']}_against_{axes['x']}", *([axes["by"]] if "by" in axes else [])]).replace(".", "_")


def columns(cases: list[dict], axes: dict[str, str], told: list[dict]) -> list[dict]:
    """The columns that a study draws, of the cases that have a number y, and x, or a sweep that chose to have none.

    axes: {x, y, by}. told: the cases' rows of cases.csv.
    """
    rows = []
    for case, own in zip(cases, told, strict=True):
        choices = case["sweep"]["choices"] if case["sweep"] else {}
        drawn = {name: {**choices, **own}.get(name) for name in axes.values()}
        chosen = any(f"{axes['x']}.".startswith(f"{option}.") for option in choices)
        if (chosen or drawn[axes["x"]] is not None) and isinstance(drawn[axes["y"]], int | float):
            rows.append({"case": case["name"]} | {name: _told(value) for name, value in drawn.items()})
    return rows


def _told(value: object) -> str | float:
    """A value as a table of a study has it: a number, or words."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, int | float) else "–" if value is None else str(value)


def variance(cases: list[dict], arrays: Arrays) -> list[dict]:
    """Variance of q.k, a sum of d_k products, and of what the scale leaves of it (Vaswani et al. 2017, footnote 4)."""
    rows = []
    for case in cases:
        qk, scaled = (arrays(case, f"scores/{name}").astype(np.float64) for name in ("qk", "scaled"))
        d_k = case["dims"]["d_k"]
        rows.append(
            {
                "case": case["name"],
                "d_k": d_k,
                "scale": str(case["scale"]),
                "products": qk.size,
                "qk_variance": float(qk.var()),
                "qk_expected": d_k,
                "scaled_variance": float(scaled.var()),
                "scaled_expected": case["scale_factor"] ** 2 * d_k,
            }
        )
    return rows


def jacobian_norm(p: np.ndarray) -> np.ndarray:
    """Frobenius norm [...] of diag(p) - p p^T for weights p [..., Lk]: the square root of sum p^2 - 2 sum p^3 + (sum p^2)^2."""
    squares = (p**2).sum(axis=-1)
    return np.sqrt(np.maximum(squares - 2 * (p**3).sum(axis=-1) + squares**2, 0))


def entropy(cases: list[dict], arrays: Arrays) -> list[dict]:
    """How even the weights are, and how much of a gradient their softmax lets through."""
    rows = []
    for case in cases:
        p = arrays(case, "weights/weights").astype(np.float64)
        rows.append(
            {
                "case": case["name"],
                "d_k": case["dims"]["d_k"],
                "scale": str(case["scale"]),
                "entropy": float(row_entropy(p).mean()),
                "entropy_at_most": float(np.log(p.shape[-1])),
                "largest_weight": float(p.max(axis=-1).mean()),
                "jacobian_norm": float(jacobian_norm(p).mean()),
            }
        )
    return rows


def permutation(cases: list[dict], arrays: Arrays, partners: dict[str, dict]) -> list[dict]:
    """Whether permuted tokens give the permuted output; partners: the permuted cases by name."""
    rows = []
    for case in cases:
        partner = partners[f"{case['name']}_permuted"]
        order = [case["tokens"].index(token) for token in partner["tokens"]]
        output, permuted = (arrays(c, "outputs/output").astype(np.float64) for c in (case, partner))
        rows.append(
            {
                "case": case["name"],
                "partner": partner["name"],
                "order": " ".join(map(str, order)),
                "largest_difference": float(np.abs(permuted - output[..., order, :]).max()),
                "largest_output": float(np.abs(output).max()),
            }
        )
    return rows


def costs(cases: list[dict]) -> list[dict]:
    """Exact counts, as case.json has them."""
    rows = []
    for case in cases:
        dims = case["dims"]
        counts = {stage: case["multiply_adds"][stage] for stage in STAGES}
        rows.append(
            {
                "case": case["name"],
                "L": dims["Lq"],
                "d_model": dims["d_model"],
                "H": dims["H"],
                "parameters": case["parameter_count"],
                **{f"{stage}_multiply_adds": count for stage, count in counts.items()},
                "multiply_adds": sum(counts.values()),
                "parameter_bytes": case["parameter_count"] * DTYPES[case["dtype"]].bytes,
                "weights_bytes": case["bytes"]["weights"],
            }
        )
    return rows


def series(rows: list[dict], axis: str) -> list[dict]:
    """The rows that differ from the first one in `axis` (L, d_model or H) alone, by size."""
    others = [name for name in ("L", "d_model", "H") if name != axis]
    return sorted((row for row in rows if all(row[name] == rows[0][name] for name in others)), key=lambda row: row[axis])


def paths(step: np.ndarray) -> np.ndarray:
    """Fewest steps from token j to token i, int [L, L] (row i, column j); 0 where no number of steps leads there.

    step: bool [L, L], whether one step carries j to i.
    """
    found, reached = step.astype(int), step
    for n in range(2, len(step) + 1):
        reached = step.astype(int) @ reached.astype(int) > 0
        found = np.where((found == 0) & reached, n, found)
    return found


def convolution(tokens: int, width: int = WIDTH) -> np.ndarray:
    """Whether one layer carries j to i: at most width // 2 tokens apart."""
    i, j = np.ogrid[:tokens, :tokens]
    return abs(i - j) <= width // 2


def recurrence_paths(tokens: int) -> np.ndarray:
    """Steps from j to i in one recurrent layer: x_j enters the state at step j, and i - j steps follow; 0 for the future."""
    i, j = np.ogrid[:tokens, :tokens]
    return np.maximum(i - j + 1, 0)


def reach(cases: list[dict], arrays: Arrays) -> tuple[list[dict], list[tuple[str, np.ndarray]]]:
    """Rows as in Vaswani et al. 2017, table 1, in numbers; and (operation, paths [L, L]) to draw.

    Convolution and recurrence have the tokens and the width of the first case.
    """
    dims = cases[0]["dims"]
    tokens, width = dims["Lq"], dims["H"] * dims["d_k"]
    step = convolution(tokens)
    drawn = [(f"convolution of width {WIDTH}", paths(step)), ("recurrence", recurrence_paths(tokens))]
    rows = [
        _reach(drawn[0][0], drawn[0][1], step, 1, WIDTH * tokens * width**2),
        _reach(drawn[1][0], drawn[1][1], drawn[1][1] > 0, tokens, 2 * tokens * width**2),
    ]
    for case in cases:
        weights = arrays(case, "weights/weights")
        step = (weights > 0).any(axis=tuple(range(weights.ndim - 2)))
        drawn.append((f"attention: {case['name'].replace('_', ' ')}", paths(step)))
        rows.append(_reach(case["name"], drawn[-1][1], step, 1, case["multiply_adds"]["scores"] + case["multiply_adds"]["contexts"]))
    return rows, drawn


def _reach(operation: str, found: np.ndarray, step: np.ndarray, in_a_row: int, multiply_adds: int) -> dict:
    return {
        "operation": operation,
        "L": len(found),
        "steps_in_a_row": in_a_row,
        "pairs": int(step.sum()),
        "longest_path": int(found.max()),
        "unreachable": int((found == 0).sum()),
        "multiply_adds": multiply_adds,
    }


ROUNDED = {
    "projections": ("q", "k", "v"),
    "scores": ("masked",),
    "weights": ("weights",),
    "contexts": ("contexts",),
    "outputs": ("output",),
}


def rounding(cases: list[dict], arrays: Arrays) -> list[dict]:
    """How far honest evaluations are from the exact numbers, against the bound that certifies them: at most 1, or the bound is wrong.

    What the exact number, a float64 here, may be off by itself is added to each difference.
    """
    rows = []
    for case in cases:
        given = {name: arrays(case, f"parameters/{name}") for name in case["arrays"]["parameters"]}
        exact, allowed = truth(case, given), bounds(case, centres(case, given), *roundoffs(case))
        for evaluation, found in evaluations(case, given).items():
            for stage, names in ROUNDED.items():
                off = {name: np.abs(found[name].astype(np.float64) - exact[name].middle) + exact[name].radius for name in names}
                unit = DTYPES[case["dtype"]].roundoff * max(np.abs(exact[name].middle).max() for name in names)
                rows.append(
                    {
                        "case": case["name"],
                        "dtype": case["dtype"],
                        "L": case["dims"]["Lq"],
                        "evaluation": evaluation,
                        "stage": stage,
                        "error": float(max(off[name].max() for name in names) / unit),
                        "bound": float(max(allowed[name].max() for name in names) / unit),
                        "ratio": float(max((off[name] / allowed[name]).max() for name in names)),
                    }
                )
    return rows
