"""A row for each case: its options and sizes, what it costs, how even its weights are, and how far everybody else is from it."""

import csv
import io
import json

import numpy as np

from worked_attention.cases.columns import MEASURED, columns, options, references, said, sizes
from worked_attention.cases.words import harmless
from worked_attention.referee.units import spelled
from worked_attention.stages.weights import row_entropy


def row(case: dict, weights: np.ndarray, comparison: dict) -> dict:
    """The row of a case, by the columns of `cases.columns`; None where there is nothing to say.

    case: resolved. weights: its array of that name, [..., H, Lq, Lk], or the rows that are looked at. comparison: what its file holds.
    """
    p = weights.astype(np.float64)
    sweep, claims = case["sweep"], comparison["claims"]
    found = {
        "suite": case["suite"],
        "case": case["name"],
        "title": case["title"],
        "extends": case["extends"],
        "sweep": sweep and sweep["name"],
        "choices": sweep and "; ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in sweep["choices"].items()),
        "begins_at": case["begins_at"],
        "uses": " ".join(case["uses"]),
        **{name: said(case, name) for name in (*options(), *sizes())},
        "parameters": case["parameter_count"],
        "multiply_adds": sum(case["multiply_adds"].values()),
        "bytes": sum(case["bytes"].values()),
        "looked_at": len(case["sample"] or case["rows"]["numbers"]),
        "entropy": None if case["softmax"] == "none" else spelled(float(row_entropy(p).mean())),  # scores are no distribution
        "largest_weight": spelled(float(p.max())),
        "claims": len(claims),
        "errata": sum(not claim["agrees"] for claim in claims),
    }
    for name in references():
        result = comparison["references"].get(name, {"verdict": None, "arrays": {}})
        found[f"{name}.verdict"] = result["verdict"]
        for measure in MEASURED:
            told = [array[measure] for array in result["arrays"].values() if array[measure] is not None]
            found[f"{name}.{measure}"] = max(told, default=None)
    return found


def spreadsheet(rows: list[dict]) -> str:
    """The rows as CSV that a spreadsheet opens as it is meant: marked as UTF-8, and no text of a suite is a formula."""
    text = io.StringIO("\ufeff")
    text.seek(1)
    table = csv.DictWriter(text, list(columns()), lineterminator="\n")
    table.writeheader()
    for each in rows:
        table.writerow({name: harmless(value) for name, value in each.items()})
    return text.getvalue()
