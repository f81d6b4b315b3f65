"""Judges real libraries by their adapters beside this file, and prints a page: library by suite, and what is not right.

    python examples/libraries/matrix.py > docs/libraries.md
    python examples/libraries/matrix.py flax mlx --work /tmp/libraries

Each folder is a library: requirements.txt (and package.json, for npm) with pinned versions, and adapters, the files that have a function
`attention`. Each gets a virtual environment of its own in the folder `--work`, which a second run takes up again, and, from the judge, five
minutes for all suites.
"""

import argparse
import ast
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.referee.outcome import JUDGED, WORDS, counts, named, says  # noqa: E402

SUITES = ("handworked", "heads", "masks", "scores", "positions", "softmax", "cache", "precision", "blocks", "field_cases", "field_cases_2")
QUIET = ("right", "unsupported")  # what the list of reasons leaves out
DIGITS = 6
TITLE = """\
# Real libraries through the judge

What `python examples/libraries/matrix.py` found on {date}, with Python {python} on {machine}. Rows are the adapters in
[`examples/libraries`](../examples/libraries), columns the shipped suites; a cell counts verdicts, but for the cases that a library cannot
do (`–` if these are all). [`examples/README.md`](../examples/README.md) says what the verdicts mean.
"""


class Failed(Exception):
    """A library that cannot be installed or judged, and the last line of what was said about it."""


def libraries() -> list[str]:
    """The names of all that have adapters here."""
    return sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))


def adapters(library: str) -> list[str]:
    """The files of a library that have a function `attention`, without their ending."""
    return [path.stem for path in sorted((HERE / library).glob("*.py")) if _answers(path)]


def _answers(path: Path) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == "attention" for node in ast.parse(path.read_text("utf-8")).body)


def versions(library: str) -> dict[str, str]:
    """{package: version} that the requirements of a library pin. Raises ValueError if one is not pinned."""
    lines = (HERE / library / "requirements.txt").read_text("utf-8").split()
    pins = dict(line.split("==") for line in lines if re.fullmatch(r"[A-Za-z0-9_.-]+(\[\w+\])?==[0-9][0-9a-z.+]*", line))
    if len(pins) < len(lines):
        raise ValueError(f"{library}/requirements.txt: each line should be PACKAGE==VERSION")
    package = HERE / library / "package.json"
    of_npm = json.loads(package.read_text("utf-8"))["dependencies"] if package.exists() else {}
    if loose := [name for name, version in of_npm.items() if not re.fullmatch(r"[0-9][0-9a-z.-]*", version)]:
        raise ValueError(f"{library}/package.json: {loose[0]} should have one version")
    return pins | of_npm


def done(*command: object, cwd: Path) -> None:
    """Run a command. Raises Failed."""
    ran = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, encoding="utf-8", errors="replace")
    if ran.returncode:
        said = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
        raise Failed(said[-1] if said else f"{Path(str(command[0])).name} ended with {ran.returncode}")


def wheel(work: Path) -> Path:
    """The package of this checkout, as each environment gets it."""
    shutil.rmtree(work / "dist", ignore_errors=True)
    done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", work / "dist", ROOT, cwd=ROOT)
    (built,) = (work / "dist").glob("*.whl")
    return built


def installed(library: str, work: Path, package: Path) -> Path:
    """A copy of the library's folder with an environment in it. Raises Failed."""
    folder = work / library
    shutil.copytree(HERE / library, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    if not (folder / ".venv").exists():
        done(sys.executable, "-m", "venv", folder / ".venv", cwd=folder)
    pip = (folder / ".venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    done(*pip, "-r", folder / "requirements.txt", cwd=folder)
    done(*pip, "--force-reinstall", "--no-deps", package, cwd=folder)
    done(*pip, package, cwd=folder)  # and what it needs
    if (folder / "package.json").exists():
        done("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    return folder


def judged(folder: Path, adapter: str) -> dict[str, dict]:
    """The verdicts on an adapter by suite/case. Raises Failed."""
    found = folder / f"{adapter}.json"
    found.unlink(missing_ok=True)
    suites = [word for suite in SUITES for word in ("--suite", suite)]
    command = [folder / ".venv" / "bin" / "worked-attention", "judge", f"{adapter}.py", *suites, "--json", found]
    ran = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, encoding="utf-8", errors="replace")
    if not found.exists():
        raise Failed((ran.stderr.strip().splitlines() or [f"the judge ended with {ran.returncode}"])[-1])
    return json.loads(found.read_text("utf-8"))["cases"]


def cell(verdicts: dict[str, dict], suite: str) -> str:
    """The verdicts of one suite, counted. Raises ValueError on one that there is not."""
    words = [case["verdict"] for key, case in verdicts.items() if key.startswith(f"{suite}/")]
    found = {word: count for word, count in counts(words).items() if word != "unsupported"}
    return "<br>".join(f"{found[word]} {word}" for word in reversed(WORDS) if word in found) or "–"


def reasons(verdicts: dict[str, dict]) -> list[str]:
    """A line for each thing that is not right, with the cases that show it; equal ones together."""
    counts([case["verdict"] for case in verdicts.values()])  # raises on a verdict that there is not
    found: dict[str, list[str]] = {}
    for key, case in verdicts.items():
        if case["verdict"] not in QUIET:
            found.setdefault(f"{case['verdict']}: {_reason(case)}", []).append(key)
    order = [*WORDS]
    lines = sorted(found.items(), key=lambda entry: order.index(entry[0].partition(":")[0]))
    return [f"- **{word}**: {reason.strip()} (`{named(keys)}`)" for (word, _, reason), keys in [(r.partition(":"), k) for r, k in lines]]


def _reason(case: dict) -> str:
    """Why: a named mistake with its stage, a convention, or the words of the judge with their numbers."""
    if case["verdict"] == "wrong" and case["diagnosis"]:
        return f"{case['first_wrong_stage']}: {re.sub(r' [(]within [^)]*[)]$', '', case['diagnosis']['sentence'])}"
    if case["verdict"] == "convention":
        return f"follows {case['convention']}"
    if case["verdict"] == "undecided":
        return "the arithmetic is too coarse to tell"
    return says(case, DIGITS)


def page(found: dict[str, dict[str, dict] | str], pins: dict[str, dict[str, str]], date: str, python: str, machine: str) -> str:
    """The page: `found` has the verdicts of each library/adapter, or why there are none; `pins` the versions of each library."""
    lines = [TITLE.format(date=date, python=python, machine=machine)]
    lines += [f"| library | versions | {' | '.join(SUITES)} |", "|---" * (len(SUITES) + 2) + "|"]
    for name, verdicts in found.items():
        told = ", ".join(f"{package} {version}" for package, version in pins[name.partition("/")[0]].items())
        cells = ["not run"] * len(SUITES) if isinstance(verdicts, str) else [cell(verdicts, suite) for suite in SUITES]
        lines.append(f"| [{name}](../examples/libraries/{name}.py) | {told} | {' | '.join(cells)} |")
    lines += ["", "## What is not right"]
    for name, verdicts in found.items():
        said = [f"- **not run**: {verdicts}"] if isinstance(verdicts, str) else reasons(verdicts)
        nothing = (
            [] if isinstance(verdicts, str) or any(case["verdict"] in JUDGED for case in verdicts.values()) else ["- nothing was judged"]
        )
        lines += ["", f"### {name}", "", *(said + nothing or ["Everything that it can do is right."])]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="*", choices=[*libraries(), []], help="which ones; all if none is named")
    parser.add_argument("--work", type=Path, default=ROOT / ".snakemake" / "libraries", help="folder for environments and verdicts")
    parser.add_argument("--date", help="of the page; that of the last commit if none is given")
    options = parser.parse_args()
    date = options.date or subprocess.run(["git", "log", "-1", "--format=%cs"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    options.work.mkdir(parents=True, exist_ok=True)
    package, found, names = wheel(options.work), {}, options.library or libraries()
    for library in names:
        try:
            folder = installed(library, options.work.resolve(), package)
        except (Failed, OSError) as error:
            found |= {f"{library}/{adapter}": f"cannot be installed: {error}" for adapter in adapters(library)}
            continue
        for adapter in adapters(library):
            print(f"{library}/{adapter}", file=sys.stderr)
            try:
                found[f"{library}/{adapter}"] = judged(folder, adapter)
            except Failed as error:
                found[f"{library}/{adapter}"] = f"cannot be judged: {error}"
    python = ".".join(platform.python_version_tuple()[:2])
    sys.stdout.write(page(found, {library: versions(library) for library in names}, date, python, platform.machine()))
    if not any(isinstance(verdicts, dict) for verdicts in found.values()):
        sys.exit("no library could be judged")


if __name__ == "__main__":
    main()
