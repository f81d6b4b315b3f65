"""All suites at a glance: counts by verdict, errata and failures."""

from collections import Counter
from collections.abc import Callable, Iterable
from textwrap import wrap

from worked_attention.files.formats import FORMAT

VERDICTS = {  # of a reference on a case: the word in the JSON, and that above the column of a table
    "pass": "passed",
    "fail": "failed",
    "undecided": "undecided",
    "convention": "convention",
    "unsupported": "unsupported",
}
WIDTH = 100  # columns of a table, and of the words below it
UNBROKEN = "\N{NO-BREAK SPACE}"
TOLD = 24  # errata and failures that are told one by one on a terminal
COLUMNS: dict[str, Callable[[dict], object]] = {  # of the table of suites: what stands above, and the cell from a suite of the summary
    "cases": lambda suite: suite["cases"],
    "claims": lambda suite: suite["claims"]["checked"],
    "errata": lambda suite: suite["claims"]["errata"],
    "truth": lambda suite: suite["references"].get("truth", {"pass": "-"}).get("pass", 0),
    **{heading: lambda suite, word=word: _sum(_others(suite), word) for word, heading in VERDICTS.items()},
}


def summarise(suites: Iterable[tuple[str, list[dict]]]) -> dict:
    """From each suite's name and the comparisons of its cases to the summary.

    {format, suites: {suite: {cases, claims: {checked, errata}, references: {name: {verdict: count}}}}, errata: [...], failures: [...],
    sampled: [{suite, case, queries, of}], the cases of which not all queries were looked at}.
    """
    summary: dict = {"format": FORMAT, "suites": {}, "errata": [], "failures": [], "sampled": []}
    for suite, comparisons in suites:
        claims = [claim for comparison in comparisons for claim in comparison["claims"]]
        verdicts: dict[str, Counter] = {}
        for comparison in comparisons:
            where = {"suite": comparison["suite"], "case": comparison["case"]}
            if "looked_at" in comparison:
                rows = comparison["looked_at"]
                summary["sampled"].append({**where, "queries": len(rows["numbers"]), "of": rows["of"]})
            for claim in comparison["claims"]:
                if not claim["agrees"]:
                    summary["errata"].append({**where, **{k: claim[k] for k in ("array", "index", "printed", "right", "rounded")}})
            for reference, result in comparison["references"].items():
                verdicts.setdefault(reference, Counter())[result["verdict"]] += 1
                if first := result["first_divergence"]:
                    measured = {k: v for k, v in result["arrays"][first["array"]].items() if k != "verdict"}
                    summary["failures"].append({**where, "reference": reference, **first, **measured})
        summary["suites"][suite] = {
            "cases": len(comparisons),
            "claims": {"checked": len(claims), "errata": sum(not claim["agrees"] for claim in claims)},
            "references": {reference: dict(sorted(counts.items())) for reference, counts in verdicts.items()},
        }
    return summary


def table(summary: dict, page: str) -> str:
    """The summary as text, at most WIDTH columns wide: a row per suite, a row per reference, the errata. page: where to see every case."""
    suites = [[name, *(str(cell(suite)) for cell in COLUMNS.values())] for name, suite in summary["suites"].items()]
    counts: dict[str, Counter] = {}
    for suite in summary["suites"].values():
        for reference, found in suite["references"].items():
            counts.setdefault(reference, Counter()).update(found)
    missing = [reference for reference, found in counts.items() if "not installed" in found]
    references = [[name, *(str(found[word]) for word in VERDICTS)] for name, found in counts.items() if name not in missing]
    lines = _aligned([["suite", *COLUMNS], *suites])
    lines += ["truth: cases that agree with the exact numbers; the rest counts each case once for each reference"]
    if not all(suite["references"] for suite in summary["suites"].values()):
        lines.append("-: compared with nobody, as the suite says")
    lines += ["", *_aligned([["reference", *VERDICTS.values()], *references])]
    if missing:
        lines += _wrapped(f"not installed: {', '.join(missing)}", "(pip install -r envs/requirements-references.txt)")
    if found := [f"  {_place(e)}: {e['queries']:,} of {e['of']:,} queries" for e in summary["sampled"]]:
        words = (
            "of a large case some queries are looked at, and nothing is said of the others; its file in comparison/ tells which, and why:"
        )
        lines += ["", *_wrapped(words), *_shortened(found, page)]
    if found := [f"  {_place(e)} {e['array']}{e['index']}: printed {e['printed']}, right {e['rounded']}" for e in summary["errata"]]:
        words = "1 printed number is wrong" if len(found) == 1 else f"{len(found)} printed numbers are wrong"
        lines += ["", f"{words} (errata):", *_shortened(found, page)]
    return "\n".join(lines) + "\n"


def failure_lines(failures: list[dict], page: str) -> list[str]:
    """The failing comparisons in a line each: case, reference, stage, array, and by how much. page: where to see all of them."""
    return _shortened([f"Error: {_failure(failure)}" for failure in failures], page)


def _failure(failure: dict) -> str:
    size = failure.get("reason") or f"differs by {failure['max_abs']:.3g} (gate {failure['gate']:g})"
    return f"{_place(failure)}: {failure['reference']} first diverges in stage {failure['stage']}: {failure['array']} {size}"


def _place(entry: dict) -> str:
    return f"{entry['suite']}/{entry['case']}"


def _wrapped(words: str, command: str = "") -> list[str]:
    """`words` in lines no wider than a table may be, and behind them a `command`, which stays on one line so that it can be copied."""
    unbroken = f"{words} {command.replace(' ', UNBROKEN)}".rstrip()
    return [line.replace(UNBROKEN, " ") for line in wrap(unbroken, WIDTH, break_long_words=False, break_on_hyphens=False)]


def _shortened(lines: list[str], page: str) -> list[str]:
    """`lines`, or so many of them as a terminal can show and a word on the rest."""
    return lines if len(lines) <= TOLD else [*lines[:TOLD], f"and {len(lines) - TOLD} more, in {page}"]


def _aligned(rows: list[list[str]]) -> list[str]:
    """The rows of a table as lines: the first column flush left, numbers flush right, a rule below the headings."""
    rows = [[_cut(row[0]), *row[1:]] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _cut(name: str) -> str:
    """`name`, shortened so that no table is too wide for a terminal."""
    return name if len(name) <= 18 else f"{name[:15]}..."


def _others(suite: dict) -> list[dict[str, int]]:
    """The counts of each reference of a suite but the exact numbers."""
    return [counts for reference, counts in suite["references"].items() if reference != "truth"]


def _sum(references: list[dict[str, int]], word: str) -> object:
    """How often `word` stands among the counts of the references; "-" where there are none."""
    return sum(counts.get(word, 0) for counts in references) if references else "-"
