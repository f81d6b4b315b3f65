"""The front page: what was found, every suite with its cases one click away, studies, and what made the numbers."""

from collections import Counter
from pathlib import Path

import numpy as np

from worked_attention.pages.blocks import Cell, Fold, Part, Picture, Printed, Section, Table, Words
from worked_attention.pages.language import _, ngettext
from worked_attention.pages.svg import picture
from worked_attention.pages.verdicts import REFERENCES
from worked_attention.pages.work import STEPS_OF

SHOWN = 12  # rows of a table that stand open
FEW = 8  # cases of a suite whose list stands open
GROUP = 100  # cases in one list; of a suite with more each hundred is folded away by itself
SIDE = 84  # of a thumbnail
MET = {"pass", "fail", "undecided", "convention"}  # verdicts of references that show something
TELLING = ("numpy", "torch", "onnx", "onnxruntime", "jax", "python-flint", "snakemake")  # packages that make numbers


def front_sections(
    suites: list[dict],
    errata: list[dict],
    failures: list[dict],
    environment: dict,
    studies: list[str],
    more: list,
    questions: list[tuple[str, str]],
    unanswered: dict[str, list[str]],
) -> list:
    """The chapters of the front page.

    suites: {name, description, cases: [{name, title, comparison, page}], thumbnail: weights [Lq, Lk] or None}. errata, failures: as in
    summary.json, each with its page. environment: environment.json. studies: tables. more: (words, file). questions: (title, page).
    unanswered: the suites that a question lacks, by its title. All addresses are relative.
    """
    files = tuple((words, (Cell(at, at),)) for words, at in more)
    return [
        found(suites, errata, failures),
        *([questions_section(questions, unanswered)] if questions or unanswered else []),
        Section(_("Suites"), "suites", tuple(suite_part(suite) for suite in suites)),
        *([Section(_("Studies"), "studies", (study_table(studies),))] if studies else []),
        Section(_("More"), "more", (Table(_("Other files"), (_("address"),), files, _("what")),)),
        Section(_("How these numbers were made"), "made", (Words(environment_line(environment)),)),
    ]


def questions_section(questions: list[tuple[str, str]], unanswered: dict[str, list[str]]) -> Section:
    """The short pages by their titles, and those that could not be made."""
    blocks: list = [Words(_("Short pages that answer a question with numbers of the cases below."))]
    rows = tuple((str(n), (Cell(title, page),)) for n, (title, page) in enumerate(questions, 1))
    if rows:
        title = ngettext("{n} question", "{n} questions", len(rows)).format(n=len(rows))
        blocks.append(Fold(title, (Table("", (_("question"),), rows, _("number")),), len(rows) <= FEW))
    if unanswered:
        words = ngettext(
            "{n} question is not answered, for it needs suites that are not in this run",
            "{n} questions are not answered, for they need suites that are not in this run",
            len(unanswered),
        )
        needed = tuple((title, (Cell(_(", ").join(suites)),)) for title, suites in unanswered.items())
        blocks.append(Fold(words.format(n=len(unanswered)), (Table("", (_("suites"),), needed, _("question")),)))
    return Section(_("Questions"), "questions", tuple(blocks))


def found(suites: list[dict], errata: list[dict], failures: list[dict]) -> Section:
    """Failures, what could not be decided, printed numbers that are wrong; then who passes how many cases."""
    verdicts = {result["verdict"] for suite in suites for case in suite["cases"] for result in case["comparison"]["references"].values()}
    blocks: list = [verdict_words(failures, verdicts)]
    if failures:
        rows = []
        for failure in failures:
            text, at = link(failure)
            rows.append((text, (Cell(_("page"), at), Cell(failure["reference"]), Cell(failure["array"]), Cell(failure_size(failure)))))
        blocks += cut(rows, _("Comparisons that failed"), (_("page"), _("reference"), _("array"), _("by")))
    undecided = [
        (
            f"{suite['name']} / {case['name']}",
            (Cell(_("page"), case["page"]), Cell(name), Cell(result.get("reason", ""))),
        )
        for suite in suites
        for case in suite["cases"]
        for name, result in case["comparison"]["references"].items()
        if result["verdict"] == "undecided"
    ]
    if undecided:
        words = ngettext(
            "{n} comparison could not be decided: the arithmetic is too coarse to tell right from wrong there.",
            "{n} comparisons could not be decided: the arithmetic is too coarse to tell right from wrong there.",
            len(undecided),
        )
        blocks.append(Words(words.format(n=len(undecided))))
        blocks += cut(undecided, _("Comparisons that could not be decided"), (_("page"), _("reference"), _("why")))
    checked = sum(len(case["comparison"]["claims"]) for suite in suites for case in suite["cases"])
    if errata:
        blocks.append(Words(_("{wrong} of {all} numbers that sources print are wrong:").format(wrong=len(errata), all=checked)))
        rows = [erratum(e) for e in errata]
        blocks += cut(rows, _("Printed numbers that are wrong"), (_("number"), _("printed"), _("right")))
    elif checked:
        blocks.append(Words(_("All {all} numbers that sources print are right.").format(all=checked)))
    blocks += [references(suites)] if verdicts else []
    return Section(_("What was found"), "found", tuple(blocks))


def verdict_words(failures: list[dict], verdicts: set[str]) -> Words:
    """Whether all comparisons passed, in a sentence; verdicts: those of all references on all cases."""
    if failures:
        words = ngettext(
            "{n} comparison failed: ours and the reference differ by more than is allowed.",
            "{n} comparisons failed: ours and the reference differ by more than is allowed.",
            len(failures),
        )
        return Words(words.format(n=len(failures)), "bad")
    if not verdicts & MET:
        return Words(_("Nothing was compared: these suites ask for no reference, or for none that is installed and can run their cases."))
    if "undecided" in verdicts:
        return Words(_("No comparison failed."))
    return Words(_("No comparison failed: wherever a reference can run a case by the same convention, it agrees with ours."), "good")


def failure_size(failure: dict) -> str:
    """By how much a comparison failed."""
    return failure.get("reason") or _("{max_abs:.2g}, allowed {gate:.2g}").format(**failure)


def link(entry: dict) -> tuple[str, str]:
    return f"{entry['suite']} / {entry['case']}", entry["page"]


def erratum(entry: dict) -> tuple[str, tuple[Cell, ...]]:
    """A row for a printed number that is wrong, which leads to its line."""
    text, at = link(entry)
    anchor = "-".join([entry["array"], *map(str, entry["index"])])
    number = f"{entry['array']}[{', '.join(map(str, entry['index']))}]"
    printed, right = (entry[key].replace("-", "−") for key in ("printed", "rounded"))
    return text, (Cell(number, f"{at}#{anchor}"), Cell("", "", "", (Printed(printed, right, False),)), Cell(right))


def cut(rows: list, caption: str, columns: tuple[str, ...]) -> list:
    """A table whose later rows are folded away."""
    first, rest = Table(caption, columns, tuple(rows[:SHOWN]), _("case")), rows[SHOWN:]
    return [first] + ([Fold(_("{n} more").format(n=len(rest)), (Table(caption, columns, tuple(rest), _("case")),))] if rest else [])


def references(suites: list[dict]) -> Table:
    """How many cases each reference passes, follows by another convention, cannot run, and so on."""
    counts: dict[str, Counter] = {}
    for suite in suites:
        for case in suite["cases"]:
            for name, result in case["comparison"]["references"].items():
                counts.setdefault(name, Counter())[result["verdict"]] += 1
    there = [verdict for verdict in REFERENCES if any(verdict in count for count in counts.values())]
    unknown = {verdict for count in counts.values() for verdict in count} - set(REFERENCES)
    if unknown:
        raise ValueError(f"the front page knows no verdict {', '.join(sorted(unknown))}")
    rows = []
    for name, count in counts.items():
        cells = [
            Cell(f"{count[verdict]:,}" if count[verdict] else "–", "", verdict.replace(" ", "-") if count[verdict] else "")
            for verdict in there
        ]
        rows.append((name, tuple(cells)))
    return Table(
        _("Cases by reference and verdict"), tuple(_(REFERENCES[verdict]) for verdict in there), tuple(rows), _("reference"), "numbers"
    )


def suite_part(suite: dict) -> Part:
    """One suite: a thumbnail, what it is about, what was found in it, and a link to each of its cases."""
    cases = suite["cases"]
    claims = [claim for case in cases for claim in case["comparison"]["claims"]]
    wrong = sum(not claim["agrees"] for claim in claims)
    count = ngettext("{n} case", "{n} cases", len(cases)).format(n=len(cases))
    said = [count]
    if claims:
        checked = _("{n} printed numbers checked, {wrong} wrong") if wrong else _("{n} printed numbers checked, all right")
        said.append(checked.format(n=len(claims), wrong=wrong))
    failed = sum(bool(case["comparison"]["first_divergence"]) for case in cases)
    in_cases = ngettext("a comparison failed in {n} case.", "a comparison failed in {n} cases.", failed)
    nobody = not any(result["verdict"] in MET for case in cases for result in case["comparison"]["references"].values())
    said.append(in_cases.format(n=failed) if failed else _("compared with nobody.") if nobody else _("no comparison failed."))
    blocks: list = [Words(suite["description"])] if suite["description"] else []
    if suite["thumbnail"] is not None:
        picture = _("{suite}: weights of {case}, first head").format(suite=suite["name"], case=cases[0]["title"])
        blocks.insert(0, thumbnail(suite["thumbnail"], picture))
    blocks.append(Words(_("; ").join(said), "bad" if failed else "note"))
    return Part(suite["name"], (*blocks, Fold(count, case_lists(cases), len(cases) <= FEW)))


def case_lists(cases: list[dict]) -> tuple:
    """A table with a row for each case that leads to its page; of many cases, one for each hundred, folded away under their names."""
    tables = []
    for some in (cases[first : first + GROUP] for first in range(0, len(cases), GROUP)):
        rows = tuple((case["name"], (Cell(case["title"], case["page"]), Cell(mark(case), "", mark_kind(case)))) for case in some)
        tables.append((f"{some[0]['name']} – {some[-1]['name']}", Table("", (_("title"), _("found")), rows, _("case"))))
    return tuple(Fold(names, (table,)) for names, table in tables) if len(tables) > 1 else (tables[0][1],)


def mark(case: dict) -> str:
    """What was found in a case, in a few words."""
    comparison = case["comparison"]
    wrong = sum(not claim["agrees"] for claim in comparison["claims"])
    counts = Counter(result["verdict"] for result in comparison["references"].values())
    said = [ngettext("{n} printed number wrong", "{n} printed numbers wrong", wrong).format(n=wrong)] * bool(wrong)
    words = {"fail": _("{n} failed"), "undecided": _("{n} undecided"), "pass": _("{n} agree")}
    said += [text.format(n=counts[verdict]) for verdict, text in words.items() if counts[verdict]]
    return _(", ").join(said) or _("compared with nobody")


def mark_kind(case: dict) -> str:
    return "fail" if case["comparison"]["first_divergence"] else ""


def thumbnail(weights: np.ndarray, text: str) -> Picture:
    """A small map of weights [Lq, Lk]."""
    queries, keys = weights.shape
    cell = SIDE / max(queries, keys)
    squares = [
        f'<rect x="{j * cell:.1f}" y="{i * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" class="{STEPS_OF["weights"](float(w), 1.0)}"/>'
        for (i, j), w in np.ndenumerate(weights)
    ]
    return picture(keys * cell, queries * cell, text, squares, "")


def study_table(studies: list[str]) -> Table:
    """A row for each study, with its figure and its table."""
    rows = []
    for at in map(Path, studies):
        cells = Cell(_("figure"), at.with_suffix(".svg").as_posix()), Cell(_("table"), at.with_suffix(".csv").as_posix())
        rows.append((_("{study} of {suite}").format(study=at.stem, suite=at.parts[-3]), cells))
    return Table(_("Studies over the cases of a suite"), (_("figure"), _("table")), tuple(rows), _("study"))


def environment_line(environment: dict) -> str:
    """The machine and the packages, in a line."""
    packages = {name.lower(): version for name, version in environment["packages"].items()}
    said = [f"Python {environment['python']['version']}", *(f"{name} {packages[name]}" for name in TELLING if name in packages)]
    system, commit = environment["system"], environment["git"]["commit"]
    parts = [
        _(", ").join(said),
        _("{system} on {machine}").format(system=system["name"], machine=environment["cpu"]["model"] or system["machine"]),
    ]
    if commit:
        at = _("commit {commit} with changes") if environment["git"]["code_dirty"] else _("commit {commit}")
        parts.append(at.format(commit=commit[:12]))
    return _("; ").join(parts) + _(".")
