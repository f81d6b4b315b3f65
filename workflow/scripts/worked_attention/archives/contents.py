"""What an archive holds: every file of the current cases, what they came from, and the words that go with it.

Beside results/ and config/: source/, the workflow's own files; config.json and looks.json, the config as the run had it; envs/, the pins;
README.md, ro-crate-metadata.json, manifest.json and SHA256SUMS.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from worked_attention import __version__
from worked_attention.archives.crate import METADATA, metadata
from worked_attention.archives.sources import address, changed, committed, workflow_files
from worked_attention.archives.zips import Files, as_json, write_archive
from worked_attention.files.artifacts import read_suite
from worked_attention.files.environment import git_state
from worked_attention.files.lost import lacking
from worked_attention.stages.catalogue import STAGES

COUNTED_CONFIG = ("suites", "gates", "limits")  # of the config, what numbers and verdicts depend on
LOOKS = ("language", "looks", "worksheet")  # the rest, but for what single commands are asked
NO_DATE = "1980-01-01"  # where no commit has a date; what the files in the zip carry, too
SHORT = 12  # digits of the digest in the name of an archive
ENDS = {".html": b"</html>", ".json": b"}\n", ".svg": b"</svg>\n", ".png": b"IEND\xaeB`\x82"}  # of files; of others the end of a line
DIRECTORY_END = 22  # bytes with which a zip ends, from PK\5\6 on
LONGEST = 60  # letters of the names of suites in the name of an archive
README = """\
# {title}

Made by {made_by}, a workflow that rebuilds attention number by number: the arrays of every stage of every case, what other
implementations make of them, figures and pages. Open `results/{front}index.html`.

- Inputs and numbers: digest `{digest}`. Two archives with one digest have the same suites, config and arrays.
- Workflow: {workflow}
- Suites and config: {config}

| here | what it is |
|---|---|
| `config/`, `config.json`, `looks.json` | suites and config, and the config as the run had it, command line included |
| `results/` | the results, of each suite the arrays stage by stage, comparisons, figures and pages |
| `results/{front}environment.json`, `envs/` | machine, packages and settings that made the numbers; the pins |
| `source/` | the workflow itself |
| `manifest.json`, `SHA256SUMS` | digest and origin; the sha256 of every file |
| `ro-crate-metadata.json` | the same for machines, as a Workflow Run RO-Crate |

## Is it whole?

In the unpacked folder, with nothing of ours: `sha256sum -c SHA256SUMS`. With the workflow, which also names what was added or renamed:

    snakemake --cores 1 verify --config archive={name}.zip

## Do the numbers come out again?

Python 3.11 or later; in the unpacked folder, with the zip beside it:

    cd source && python3 -m venv .venv && . .venv/bin/activate && python -m pip install -r envs/requirements.txt
    snakemake --cores 1 reproduce --config archive=../../{name}.zip

This computes every array again from `config/suites` and says of each: identical, within its certified bound, or not; and how the two
environments differ. Exact numbers, references, comparisons, figures and pages are not computed again by it:
`rm -r config && cp -r ../config . && snakemake --cores 1` makes everything anew.
`snakemake --cores 1 compare --config 'archives=[A.zip,B.zip]'` says the same of two archives.
"""


class Lost(Exception):
    """A file that an archive must hold is not there."""


def archive(root: Path, folder: Path, config: dict, inputs: Iterable[str], made: Files, place: str, every: bool) -> Path:
    """Write the archive of the checkout at `root` to `folder`; returns its path.

    config: as the run had it, its suites by name. inputs: the files of config/ and envs/ that it read. made: from `results`. place: as
    there. every: whether its suites are all that there are. Raises ValueError where a file has a name that no archive takes.
    """
    suites, inputs = config["suites"], list(inputs)
    commit, date = committed(root)
    state = git_state(root)
    as_committed = bool(commit) and not state["code_dirty"]
    files = {**made, **{name: root / name for name in inputs}}
    files |= {f"source/{name}": source for name, source in workflow_files(root, as_committed).items()}
    files |= {
        "config.json": as_json({key: config[key] for key in COUNTED_CONFIG}),
        "looks.json": as_json({key: config[key] for key in LOOKS}),
    }
    origin = {
        "title": f"Worked Attention: {title(suites, every)}",
        "made_by": f"worked-attention {__version__}",
        "suites": suites,
        "place": place,
        "commit": commit,
        "date": date,
        "code_dirty": state["code_dirty"],
        "config_changed": [name for name in changed(root, "config") if name in inputs],
        "repository": address(root),
    }

    def told(digest: str) -> tuple[dict, Files]:
        name = f"{title(suites, every)}-{date[:10] if date else 'none'}-{digest[:SHORT]}"
        manifest = {"name": name, "digest": digest, **origin}
        citation = yaml.safe_load((root / "CITATION.cff").read_text("utf-8"))
        readme = {"README.md": _readme(manifest).encode()}
        return manifest, readme | {METADATA: as_json(metadata(manifest, citation, [*files, *readme], date or NO_DATE))}

    return write_archive(folder, files, told)


def title(suites: list[str], every: bool) -> str:
    """The suites in the name of an archive. every: whether these are all that there are."""
    joined = "-".join(suites)
    return "all" if every else joined if len(joined) <= LONGEST else f"{len(suites)}-suites"


def results(
    root: Path, suites: Iterable[str], glance: Iterable[str], references: dict[str, dict[str, list[str]]], questions: Iterable[str]
) -> Files:
    """Every file of the current cases in `root`/results, and none of others.

    glance: paths of what stands for all suites, and of what the front page leads to. references: by suite and library, the names of what
    is compared. questions: the pages that are answered. Raises Lost.
    """
    found = list(glance)
    found += [f"results/questions/{name}.{kind}" for name in questions for kind in ("html", "md")]
    for name in suites:
        try:
            suite, cases = read_suite(str(root / "results" / name / "parameters"))
        except (OSError, ValueError):
            raise Lost(_lost(f"results/{name}/parameters", "suite.json or a case.json")) from None
        for stage in cases[0]["arrays"]:
            folder = root / "results" / name / stage
            if any(case["arrays"][stage] for case in cases) and (lost := lacking(folder, cases)):
                raise Lost(_lost(f"results/{name}/{stage}", lost))
        found += [f"results/{path}" for path in _of_suite(suite, cases, references[name])]
        found += _studies(root, suite)
    for path in found:
        if not ((root / path).is_file() and _whole(root / path)):
            parts = path.split("/")
            job = 3 if len(parts) > 3 and parts[2] in STAGES else -1  # the folder that one job makes ends there
            raise Lost(_lost("/".join(parts[:job]), "/".join(parts[job:])))
    return {path: root / path for path in found}


def _whole(path: Path) -> bool:
    """Whether a file ends as files of its kind do, and is not cut short; how long arrays are is looked at elsewhere."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - DIRECTORY_END))
        last = file.read()
    if path.suffix == ".npy":
        return bool(last)
    return last.startswith(b"PK\5\6") if path.suffix == ".npz" else last.endswith(ENDS.get(path.suffix, b"\n"))


def _of_suite(suite: dict, cases: list[dict], references: dict[str, list[str]]) -> Iterator[str]:
    """The files of a suite, from results/."""
    name = suite["name"]
    yield f"{name}/parameters/suite.json"
    for case in cases:
        yield f"{name}/parameters/{case['name']}/case.json"
        for stage, arrays in case["arrays"].items():
            yield from (f"{name}/{stage}/{case['name']}/{file}" for file in [*(f"{array}.npy" for array in arrays), "stage.json"] if arrays)
        yield f"{name}/comparison/{case['name']}.json"
        yield from (f"{name}/pages/{case['name']}.{kind}" for kind in ("html", "md"))
    for case in suite["figures"]:
        yield from (f"{name}/figures/{case}.{kind}" for kind in ("svg", "png"))
    if suite["figures"]:
        yield from (f"{name}/overview.{kind}" for kind in ("svg", "png"))
    if suite["references"] not in ("none", []):
        yield from (f"{name}/truth/truth.{kind}" for kind in ("json", "npz"))
    for library, names in references.items():
        yield from (f"{name}/references/{library}/{reference}.{kind}" for reference in names for kind in ("json", "npz"))


def _studies(root: Path, suite: dict) -> Iterator[str]:
    """The files of the studies of a suite: a table and a figure of each, in two forms each. Raises Lost."""
    folder = f"results/studies/{suite['name']}/exact"
    names = {path.stem for path in (root / folder).glob("[!.]*")}
    if len(names) < len(suite["studies"]):
        raise Lost(_lost(folder, f"one of its {len(suite['studies'])} studies"))
    yield from (f"{folder}/{name}.{kind}" for name in sorted(names) for kind in ("csv", "json", "svg", "png"))


def _readme(manifest: dict) -> str:
    commit, repository = manifest["commit"], manifest["repository"] or "its repository, whose address is not known"
    source = f"commit `{commit}` of {repository}; `source/` holds it" if commit else "no commit is known; `source/` holds it as it was"
    if manifest["code_dirty"]:
        source = f"with changes since {source} as it was"
    own = (
        f"not as committed: {', '.join(f'`{name}`' for name in manifest['config_changed'])}"
        if manifest["config_changed"]
        else "as committed"
    )
    front = manifest["place"].removeprefix("results").strip("/")
    return README.format(**manifest, workflow=source, config=own if commit else "no commit is known", front=front and f"{front}/")


def _lost(folder: str, file: str) -> str:
    alone = folder in ("results", "results/some-suites", "results/onnx_node_tests")  # there each file is what one job makes
    what = "that file" if alone else "that folder"
    return f"{folder} has lost {file}, so nothing was archived; delete {what}, and `snakemake --cores 1 archive` makes it anew"
