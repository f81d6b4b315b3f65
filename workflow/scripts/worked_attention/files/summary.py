"""All suites at a glance: counts by verdict, errata and failures."""

from collections import Counter
from pathlib import Path

from worked_attention.files.artifacts import read_json


def summarise(folders: list[Path]) -> tuple[dict, list[dict]]:
    """From the comparison folders of the suites to (summary, rows).

    summary: {suites: {suite: {cases, claims: {checked, errata}, references: {name: {verdict: count}}}}, errata: [...], failures: [...]}.
    rows: one per case for a table, {suite, case, references: {name: {verdict, note, and max_abs, ulp, array of the worst array}}}.
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
            rows.append({**where, "references": {name: _worst(result) for name, result in comparison["references"].items()}})
            for reference, result in comparison["references"].items():
                verdicts.setdefault(reference, Counter())[result["verdict"]] += 1
                if first := result["first_divergence"]:
                    measured = {k: v for k, v in result["arrays"][first["array"]].items() if k != "verdict"}
                    summary["failures"].append({**where, "reference": reference, **first, **measured})
        summary["suites"][folder.parent.name] = {
            "cases": len(comparisons),
            "claims": {"checked": len(claims), "errata": sum(not claim["agrees"] for claim in claims)},
            "references": {reference: dict(sorted(counts.items())) for reference, counts in verdicts.items()},
        }
    return summary, rows


def _worst(result: dict) -> dict:
    """What a table says of one reference on one case: its verdict, the array farthest off, and why it did not run."""
    said = {"verdict": result["verdict"], "note": result.get("reason", "")}
    measured = [(a["max_abs"], a["ulp"], name) for name, a in result["arrays"].items() if a["max_abs"] is not None]
    return said | (dict(zip(("max_abs", "ulp", "array"), max(measured), strict=True)) if measured else {})


def table(summary: dict) -> str:
    """The summary as text: a row per suite, then the errata and the failures."""
    references = list(dict.fromkeys(name for suite in summary["suites"].values() for name in suite["references"]))
    rows = [["suite", "cases", "claims", "errata", *references]]
    for name, suite in summary["suites"].items():
        cells = [_cell(suite["references"].get(reference, {})) for reference in references]
        rows.append([name, str(suite["cases"]), str(suite["claims"]["checked"]), str(suite["claims"]["errata"]), *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines.append("pass/cases; +nc: follows another named convention; -: runs none of them. Reasons: results/summary.html")
    if summary["errata"]:
        lines.append(f"\n{len(summary['errata'])} printed numbers are wrong (errata):")
        lines += [f"  {_place(e)} {e['array']}{e['index']}: printed {e['printed']}, right {e['rounded']}" for e in summary["errata"]]
    lines += [""] * bool(summary["failures"]) + [failure_line(failure) for failure in summary["failures"]]
    return "\n".join(lines) + "\n"


def failure_line(failure: dict) -> str:
    """One failing comparison in one line: case, reference, stage, array, and by how much."""
    size = failure.get("reason") or f"differs by {failure['max_abs']:.3g} (gate {failure['gate']:g})"
    where = f"{_place(failure)}: {failure['reference']} first diverges in stage {failure['stage']}"
    return f"{where}: {failure['array']} {size}"


def _place(entry: dict) -> str:
    return f"{entry['suite']}/{entry['case']}"


def _cell(counts: dict[str, int]) -> str:
    """A reference's verdicts on a suite in a few letters: 31/42 +2c, or 1 FAIL in front."""
    if set(counts) <= {"unsupported", "not installed"}:
        return "-"
    fails = f"{counts['fail']} FAIL " if "fail" in counts else ""
    conventions = f" +{counts['convention']}c" if "convention" in counts else ""
    return f"{fails}{counts.get('pass', 0)}/{sum(counts.values())}{conventions}"
