"""All suites at a glance: counts by verdict, errata and failures."""

from collections import Counter
from pathlib import Path

from artifacts import read_json


def summarise(folders: list[Path]) -> tuple[dict, list[dict]]:
    """From the comparison folders of the suites to (summary, rows).

    summary: {suites: {suite: {cases, claims: {checked, errata}, references: {name: {verdict: count}}}}, errata: [...], failures: [...]}.
    rows: one per case and reference for a table, {suite, case, reference, verdict, reason, max_abs, ulp, gate}.
    """
    summary: dict = {"suites": {}, "errata": [], "failures": []}
    rows = []
    for folder in folders:
        comparisons = [read_json(path) for path in sorted(folder.glob("*.json"))]
        claims = [claim for comparison in comparisons for claim in comparison["claims"]]
        verdicts: dict[str, Counter] = {}
        for comparison in comparisons:
            where = {"suite": comparison["suite"], "case": comparison["case"]}
            for claim in comparison["claims"]:
                if not claim["agrees"]:
                    summary["errata"].append({**where, **{k: claim[k] for k in ("array", "index", "printed", "right", "rounded")}})
            for reference, result in comparison["references"].items():
                verdicts.setdefault(reference, Counter())[result["verdict"]] += 1
                rows.append({**where, "reference": reference, "verdict": result["verdict"], **_worst(result)})
                if first := result["first_divergence"]:
                    measured = {k: result["arrays"][first["array"]][k] for k in ("max_abs", "ulp", "gate")}
                    summary["failures"].append({**where, "reference": reference, **first, **measured})
        summary["suites"][folder.parent.name] = {
            "cases": len(comparisons),
            "claims": {"checked": len(claims), "errata": sum(not claim["agrees"] for claim in claims)},
            "references": {reference: dict(sorted(counts.items())) for reference, counts in verdicts.items()},
        }
    return summary, rows


def _worst(result: dict) -> dict:
    """What a table says of one reference on one case: the array farthest off, or why it did not run."""
    measured = [(a["max_abs"], name, a) for name, a in result["arrays"].items() if a["max_abs"] is not None]
    if not measured:
        return {"note": result.get("reason", "")}
    largest, name, array = max(measured, key=lambda item: item[0])
    return {"array": name, "max_abs": largest, "ulp": array["ulp"], "gate": array["gate"], "note": result.get("reason", "")}


def table(summary: dict) -> str:
    """The summary as text: a row per suite, then the errata and the failures."""
    references = list(dict.fromkeys(name for suite in summary["suites"].values() for name in suite["references"]))
    rows = [["suite", "cases", "claims", "errata", *references]]
    for name, suite in summary["suites"].items():
        counts = [_counts(suite["references"].get(reference, {})) for reference in references]
        rows.append([name, str(suite["cases"]), str(suite["claims"]["checked"]), str(suite["claims"]["errata"]), *counts])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if summary["errata"]:
        lines.append(f"\n{len(summary['errata'])} printed numbers are wrong (errata):")
        lines += [f"  {_place(e)} {e['array']}{e['index']}: printed {e['printed']}, right {e['rounded']}" for e in summary["errata"]]
    lines += [""] * bool(summary["failures"]) + [failure_line(failure) for failure in summary["failures"]]
    return "\n".join(lines) + "\n"


def failure_line(failure: dict) -> str:
    """One failing comparison in one line: case, reference, stage, array, and by how much."""
    size = "has another shape" if failure["max_abs"] is None else f"differs by {failure['max_abs']:.3g} (gate {failure['gate']:g})"
    where = f"{_place(failure)}: {failure['reference']} first diverges in stage {failure['stage']}"
    return f"{where}: {failure['array']} {size}"


def _place(entry: dict) -> str:
    return f"{entry['suite']}/{entry['case']}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "-"
