"""What an archive says against another, or against what its suites give here: the JSON that tells all of it, and a few lines of it."""

from pathlib import Path

from worked_attention.archives.agreement import FAULTS, agreement, around, counts, share, staged
from worked_attention.archives.causes import differences
from worked_attention.archives.reading import SUITES, Archive, Refused, taken
from worked_attention.cases.escapes import printable
from worked_attention.stages import parameters
from worked_attention.stages.rows import looked_at, stored
from worked_attention.stages.whole import from_parameters

FORMAT = 1  # of reproduction.json and comparison.json
SHOWN = 20  # lines of a kind on a terminal
HERE = "here"
NOT_AGAIN = "only arrays were computed again; exact numbers, references, comparisons, figures and pages were not"


def reproduced(archive: Archive, environment: dict) -> dict:
    """The report on an archive and on what its own suites give here. environment: as environment.json, of here. Raises Refused."""
    found = {}
    for key, case in _cases(archive):
        try:
            whole, part = parameters.stage(case, archive.folder / SUITES), looked_at(case)
            given = {name: taken(case, name, whole[stored(case, name)]) for name in part["arrays"]["parameters"]}
            ours = from_parameters(part, given)
        except (ValueError, OSError) as error:  # what the case forbids, or a parameter file that is damaged
            raise Refused(printable(f"{archive.name}: {key}: {error}")) from None
        sides = {archive.name: archive.arrays(case), HERE: (staged(part, given, ours), {})}
        found[key] = agreement(part, sides, lambda ours=ours: ours)
    found |= _uncalled(archive, found)
    environments, notes = {archive.name: archive.environment, HERE: environment}, [*_sampled(archive), NOT_AGAIN]
    return _report("reproduce", environments, [archive], found, notes, [])


def compared(one: Archive, other: Archive) -> dict:
    """The report on two archives; bounds are computed here, from the inputs of the first."""
    names = [one.name, other.name if other.name != one.name else f"{other.name} (2)"]
    known = dict(_cases(other)) | dict(_cases(one))
    found, notes = {}, _sampled(one)
    for key, case in known.items():
        part, sides = looked_at(case), [one.arrays(case), other.arrays(case)]
        found[key] = agreement(part, dict(zip(names, sides, strict=True)), lambda case=part, arrays=sides[0][0]: around(case, arrays))
    theirs = dict(_cases(other))
    notes += [f"{key}: the two suites say other things of it" for key, case in _cases(one) if key in theirs and theirs[key] != case]
    found |= _uncalled(one, found) | _uncalled(other, found)
    a, b = one.checked.hashes, other.checked.hashes
    rest = sorted(name for name in {*a, *b} if a.get(name) != b.get(name) and not name.endswith(".npy"))
    environments = dict(zip(names, (one.environment, other.environment), strict=True))
    return _report("compare", environments, [one, other], found, notes, rest)


def faults(report: dict) -> str | None:
    """Why the command that made a report ends with an error; None if it does not."""
    parts = [f"{n} {word}" for word, n in report["counts"].items() if word in FAULTS and n]
    parts += [f"{name} is not whole" for name, archive in report["archives"].items() if archive["damage"]]
    return ", ".join(parts) or (None if report["cases"] else "no array was held against another")


def table(report: dict) -> str:
    """The report in a few lines."""
    lines = []
    for name, archive in report["archives"].items():
        lines += _shortened([f"{name}: {damage}" for damage in archive["damage"]])
    found = [(f"{key} {name}", told) for key, arrays in report["cases"].items() for name, told in arrays.items()]
    for word in ("unreadable", "missing", "beyond", "undecided"):
        lines += _shortened([f"{name}: {_said(told)}" for name, told in found if told["verdict"] == word])
    if within := [(share(told), name, told) for name, told in found if told["verdict"] == "within"]:
        _, name, told = max(within, key=lambda row: row[0])
        lines += [f"nearest to its bound: {name}: {_said(told)}"]
    lines += _shortened(report["notes"])
    total = sum(report["counts"].values())
    counted = ", ".join(f"{n} {word}" for word, n in report["counts"].items() if n)
    lines += ["", f"{total} arrays of {len(report['cases'])} cases: {counted}"]
    if causes := [f"  {cause['what']}: {' | '.join(map(_cut, cause['said'].values()))}" for cause in report["environments"]]:
        lines += [f"The environments differ, the likeliest cause first ({' | '.join(report['sides'])}):", *_shortened(causes, 8)]
    if report["files"]:
        lines += [f"{len(report['files'])} of the other files differ, such as {', '.join(report['files'][:3])}"]
    return "\n".join(map(printable, lines))


def stem(path: Path) -> str:
    """The name of an archive's file without its ending, fit for a folder."""
    return "".join(letter if letter.isalnum() or letter in "_-+." else "_" for letter in path.stem)[:100]


def _cases(archive: Archive):
    return [(f"{suite}/{name}", case) for suite, told in archive.suites.items() for name, case in told["cases"].items()]


def _sampled(archive: Archive) -> list[str]:
    """A line for each case that is too large to be looked at in all its rows."""
    return [
        f"{key}: {len(case['sample'])} of its {case['dims']['Lq']} rows are looked at" for key, case in _cases(archive) if case["sample"]
    ]


def _uncalled(archive: Archive, found: dict) -> dict[str, dict[str, dict]]:
    """The cases that an archive has arrays of and no suite, as faults."""
    reason = f"no suite of {archive.name} has this case"
    return {key: {"-": {"verdict": "missing", "reason": reason}} for key in sorted(archive.cases - set(found))}


def _report(command: str, environments: dict[str, dict], archives: list[Archive], found: dict, notes: list[str], files: list[str]) -> dict:
    found_counts = counts(found)
    causes = differences(*environments.values(), beyond=bool(found_counts["beyond"]))
    told = ("name", "digest", "commit", "code_dirty", "config_changed")
    names = list(environments)
    return {
        "format": FORMAT,
        "command": command,
        "sides": names,
        "archives": {
            name: {key: archive.checked.manifest.get(key) for key in told} | {"damage": archive.checked.damage}
            for name, archive in zip(names, archives, strict=False)
        },
        "counts": found_counts,
        "cases": found,
        "notes": [archive.checked.renamed for archive in archives if archive.checked.renamed] + notes,
        "files": files,  # others than arrays, that differ
        "environments": [{"what": what, "said": dict(zip(names, said, strict=True))} for what, *said in causes],
    }


def _said(found: dict) -> str:
    if "reason" in found:
        return f"{found['verdict']}: {found['reason']}"
    return f"{found['verdict']}: differs by {found['max_abs']:.3g} ({found['ulp']:.2g} ulp), may by {float(found['gate']):.3g}"


def _cut(text: str, most: int = 100) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shortened(lines: list[str], most: int = SHOWN) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"  and {len(lines) - most} more, in the JSON"]
