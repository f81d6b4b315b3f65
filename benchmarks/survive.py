"""What a run survives, and what becomes of damaged input: the same bytes as ever, or one clear line.

    python benchmarks/survive.py                                # each trial once; a minute
    python benchmarks/survive.py --minutes 120 --seed 7         # for hours
    python benchmarks/survive.py --only killed --rounds 20 --seed 7

Small suites are built once, undisturbed. Then, in turns and drawn from the seed:

killed       the process group is killed, interrupted, ended or hung up as soon as so many files are there; then `--unlock` and
             `--rerun-incomplete`, as the README says
full         results/ lies on a disk that is too small, in bytes or in files (a tmpfs; needs the right to mount); then it gets room
read_only    results/ lies on a disk that cannot be written (as above), and then the whole checkout
elsewhere    another locale, time zone, hash seed, number of cores and of threads, width of the terminal, mask of new files
suites       shipped suites with damaged text: loaded, or refused line by line
config       the config and the command line, likewise
submissions  arrays in .npy, .npz, .json and .safetensors, damaged, handed to the judge: a verdict, or one line
archives     an archive, damaged, handed to `verify`: an error that says what is wrong

Prints each finding with what repeats it, then a table; ends with an error if there was a finding.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import count
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from cost import fresh

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.cases.chosen import chosen  # noqa: E402
from worked_attention.cases.strict_yaml import Problems  # noqa: E402
from worked_attention.cases.suites import load_config, load_suite  # noqa: E402
from worked_attention.command import computed, main  # noqa: E402

SUITES = {
    "drawn": """
references: [torch.mha, torch.manual]
cases:
  whole:
    heads: 2
    backward: ones
    sizes: {Lq: 3, d_model: 4}
    parameters: {x: {grid: {}}, w_q: {normal: {seed: 1}}, w_k: {normal: {seed: 2}}, w_v: {normal: {seed: 3}}, w_o: {normal: {seed: 4}}}
  claimed:
    extends: whole
    scale: 0.25
    claims: {scaled: {at: [0, 0, 0], values: "0.5"}}
""",
    "plain": """
figures: none
references: none
cases:
  scores:
    parameters: {scaled: [[[0.5, 1.0], [2.0, 3.0]]], v: [[1.0], [2.0]]}
""",
}
ENDS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ROOM = "9M"  # more than all results of these suites take
DAMAGES = 40  # of files that are read without starting Snakemake, in one trial
NASTY = ["NaN", "-1", "1e400", "[]", "{}", "null", "~", "true", "''", "0", "-0.0", "9" * 400, "é−", "[[[1]]]"]
NASTY += ["*a", "&a", "!!python/x", "\t", "{a: ", "- "]


class Whole:
    """The project with these suites, built undisturbed in `folder` when it is first needed."""

    def __init__(self, folder: Path):
        self.folder, self.made = folder, 0

    @cached_property
    def project(self) -> Path:
        """Where it was built."""
        done = snakemake(made := project(self.folder / "whole"), "--cores", "2")
        if done.returncode:
            sys.exit(f"the undisturbed run failed:\n{done.stderr}")
        return made

    @cached_property
    def bytes(self) -> dict[str, bytes]:
        """What its results hold."""
        return contents(self.project)

    @cached_property
    def archive(self) -> bytes:
        """An archive of it."""
        done = snakemake(copy := shutil.copytree(self.project, self.folder / "archived"), "--cores", "1", "archive")
        if done.returncode:
            sys.exit(f"archive failed:\n{done.stderr}")
        return next((copy / "results" / "archive").glob("*.zip")).read_bytes()

    def another(self) -> Path:
        """A project with nothing built, in a new folder."""
        self.made += 1
        return project(self.folder / f"{self.made}")

    def difference(self, other: Path) -> Iterator[str]:
        """Says it if the results of another project are not those of this one, but for environment.json, which is about the machine."""
        ours, theirs = self.bytes, contents(other)
        if differ := sorted(name for name in (ours.keys() | theirs.keys()) - {"environment.json"} if ours.get(name) != theirs.get(name)):
            yield f"{len(differ)} files differ from the undisturbed run, the first is {differ[0]}"


def project(folder: Path) -> Path:
    """A copy of what a run needs at `folder`, with the small suites and nothing built."""
    fresh(ROOT, folder)
    shutil.rmtree(folder / "config" / "suites")
    for name, text in SUITES.items():
        (folder / "config" / "suites").mkdir(exist_ok=True)
        (folder / "config" / "suites" / f"{name}.yaml").write_text(text, "utf-8")
    (folder / "results").mkdir()
    return folder


def snakemake(folder: Path, *args: str, env: dict[str, str] | None = None, umask: int = -1) -> subprocess.CompletedProcess:
    """Run `snakemake ARGS` in `folder`."""
    command = [sys.executable, "-m", "snakemake", *args]
    said = {"capture_output": True, "encoding": "utf-8", "errors": "replace"}
    return subprocess.run(command, cwd=folder, env={**os.environ, **(env or {})}, umask=umask, **said)


def contents(project: Path) -> dict[str, bytes]:
    """Every file of the results by path, but for logs and Snakemake's own timestamps."""
    files = [path for path in (project / "results").rglob("*") if path.is_file() and path.name != ".snakemake_timestamp"]
    named = {path.relative_to(project / "results").as_posix(): path.read_bytes() for path in files}
    return {name: data for name, data in named.items() if not name.startswith("logs/")}


def recovered(whole: Whole, folder: Path) -> Iterator[str]:
    """What is wrong after the two commands that the README names for a run that was disturbed."""
    for args in (["--unlock"], ["--cores", "1", "--rerun-incomplete"]):
        done = snakemake(folder, *args)
        if done.returncode:
            yield f"{args[-1]} failed: {done.stderr[-500:]}"
            return
    yield from whole.difference(folder)


def unclear(done: subprocess.CompletedProcess, words: str) -> Iterator[str]:
    """Says it if a run that could not write did not say so in words, without a traceback."""
    if done.returncode == 0 or "Traceback" in done.stderr or not re.search(words, done.stderr):
        yield f"ended with {done.returncode} and no clear line: {done.stderr[-500:]}"


def killed(draw: random.Random, whole: Whole) -> Iterator[str]:
    folder, files, cores = whole.another(), draw.randrange(len(whole.bytes)), draw.choice("12")
    command = [sys.executable, "-m", "snakemake", "--cores", cores]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        while process.poll() is None and sum(len(names) for _, _, names in os.walk(folder / "results")) < files:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.05))
        if process.poll() is None:
            os.killpg(process.pid, draw.choice(ENDS))
    yield from recovered(whole, folder)


@contextmanager
def mounted(folder: Path, *what: str | Path) -> Iterator[None]:
    """Something mounted at `folder`. Raises PermissionError where that is refused."""
    if subprocess.run(["mount", *what, folder], capture_output=True).returncode:
        raise PermissionError("to mount a disk is refused here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def full(draw: random.Random, whole: Whole) -> Iterator[str]:
    folder = whole.another()
    size, inodes = draw.choice([(f"{draw.randrange(40, 1200)}k", 9999), (ROOM, draw.randrange(10, 300))])
    with mounted(folder / "results", "-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes}", "tmpfs"):
        done = snakemake(folder, "--cores", draw.choice("12"))
        if done.returncode:
            yield from unclear(done, "results/ cannot be written: No space left on device")
        subprocess.run(["mount", "-o", f"remount,size={ROOM},nr_inodes=9999", folder / "results"], check=True)
        yield from recovered(whole, folder)


def read_only(draw: random.Random, whole: Whole) -> Iterator[str]:
    folder = whole.another()
    for where in (folder / "results", folder):
        with mounted(where, "--bind", where):
            subprocess.run(["mount", "-o", "remount,bind,ro", where], check=True)
            yield from unclear(snakemake(folder, "--cores", draw.choice("12")), f"Error: ({folder}|results/) cannot be written")


def elsewhere(draw: random.Random, whole: Whole) -> Iterator[str]:
    locales = subprocess.run(["locale", "-a"], capture_output=True, encoding="utf-8", errors="replace").stdout.split()
    env = {
        "LC_ALL": draw.choice(locales or ["C"]),
        "PYTHONUTF8": draw.choice("01"),
        "PYTHONHASHSEED": str(draw.randrange(1000)),
        "TZ": draw.choice(["Asia/Kathmandu", "Pacific/Apia", "America/St_Johns", "UTC"]),
        "COLUMNS": draw.choice(["20", "300"]),
    }
    threads = draw.choice(["1", "2", "4"])
    env |= {name: threads for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    folder = whole.another()
    done = snakemake(folder, "--cores", draw.choice("12"), env=env, umask=draw.choice([0o022, 0o077, 0o002]))
    if done.returncode:
        yield f"{env}: failed: {done.stderr[-500:]}"
    else:
        yield from (f"{env}: {finding}" for finding in whole.difference(folder))


def damaged(draw: random.Random, data: bytes) -> bytes:
    """`data` with a few bytes changed, cut out, put in twice, or cut off."""
    for _ in range(draw.choice([1, 1, 1, 3, 9])):
        at, length = draw.randrange(len(data) + 1), draw.choice([1, 1, 4, 50])
        part = data[at : at + length]
        with_what = draw.choice([b"", part * 2, draw.randbytes(len(part)), draw.randbytes(length), part[::-1]])
        data = draw.choice([data[:at] + with_what + data[at + length :]] * 5 + [data[:at]])
    return data


def rewritten(draw: random.Random, text: str) -> str:
    """`text`, YAML, with a few lines moved, doubled or gone, values replaced, indentation changed; or damaged as bytes."""
    if draw.random() < 0.2:
        return damaged(draw, text.encode()).decode("utf-8", draw.choice(["replace", "ignore"]))
    lines = text.splitlines()
    for _ in range(draw.choice([1, 1, 2, 5])):
        at = draw.randrange(len(lines))
        line, other = lines[at], draw.choice(lines)
        value = re.sub(r"[^\s:,\[\]{}]+(?=[,\]}]|$)", lambda _: draw.choice(NASTY), line, count=draw.choice([1, 2]))
        key = re.sub(r"\w+(?=:)", lambda found: draw.choice([found[0] * 2, "extends", "sweep", "mask", "parameters"]), line, count=1)
        moved = draw.choice([[], [line, line], [other, line], [f"  {line}"], [line[1:]], [line.strip()]])
        lines[at : at + 1] = draw.choice([moved, moved, [value], [value], [key]])
        lines = lines or [""]
    return "\n".join(lines) + "\n"


def refused(load: Callable[[], object]) -> Iterator[str]:
    """Says it if `load` neither returns nor raises Problems, which are of one line each, or takes long."""
    began = time.monotonic()
    try:
        load()
    except Problems as problems:
        if not problems.problems:
            yield "refused without a word"
    except Exception as error:  # whatever it is, it is the finding
        yield f"{type(error).__name__}: {error}"
    if (took := time.monotonic() - began) > 30:
        yield f"took {took:.0f} seconds"


def suites(draw: random.Random, whole: Whole) -> Iterator[str]:
    limits = load_config(ROOT / "config" / "config.yaml", {})["limits"]
    folder = whole.folder / "suites"
    if not folder.exists():
        shutil.copytree(ROOT / "config" / "suites", folder)
    shipped = sorted((ROOT / "config" / "suites").glob("*.yaml"), key=lambda path: path.stat().st_size)
    for _ in range(DAMAGES):
        path = draw.choice(shipped[: len(shipped) // 2])  # the shorter ones, of which more can be tried
        copy = folder / path.name
        copy.write_text(text := rewritten(draw, path.read_text("utf-8")), "utf-8")
        yield from kept(refused(lambda copy=copy: load_suite(copy, limits)), text, whole)


def config(draw: random.Random, whole: Whole) -> Iterator[str]:
    path, shipped = whole.folder / "config.yaml", (ROOT / "config" / "config.yaml").read_text("utf-8")
    said = ["suites", "gates", "looks", "limits", "digits", "submission", "language", "archive", "nothing"]
    values = [*NASTY, None, 3, -1, {}, [], {"rule": 1}, {"": {}}, True, 10**50]
    for _ in range(DAMAGES):
        path.write_text(text := rewritten(draw, shipped), "utf-8")
        overrides = {draw.choice(said): draw.choice(values) for _ in range(draw.randrange(3))}
        yield from kept(refused(lambda overrides=overrides: load_config(path, overrides)), f"{text}\n# --config {overrides!r}", whole)


def kept(findings: Iterator[str], text: str, whole: Whole) -> Iterator[str]:
    """The findings, each with the place where the text that they are about is kept."""
    for finding in findings:
        path = Path(tempfile.mkdtemp(prefix="survive-")) / "text.yaml"
        path.write_text(text, "utf-8")
        yield f"{finding} (the text is {path})"


@cache
def right() -> dict[str, np.ndarray]:
    """All arrays of one shipped case."""
    ((_, arrays),) = computed(chosen(("handworked",), ("handworked/two_heads",)), "handworked")
    return arrays


def submissions(draw: random.Random, whole: Whole) -> Iterator[str]:
    from safetensors.numpy import save

    for _ in range(DAMAGES // 4):
        folder = whole.folder / "submission"
        shutil.rmtree(folder, ignore_errors=True)
        (case := folder / "handworked" / "two_heads").mkdir(parents=True)
        for name, array in draw.sample(sorted(right().items()), 3):
            match draw.choice(["npy", "npz", "json", "safetensors"]):
                case "npy":
                    np.save(path := case / f"{name}.npy", array)
                case "npz":
                    np.savez(path := case / f"{name}.npz", **{name: array})
                case "json":
                    (path := case / f"{name}.json").write_text(json.dumps(array.tolist()), "utf-8")
                case "safetensors":
                    (path := case / f"{name}.safetensors").write_bytes(save({name: np.ascontiguousarray(array)}))
            path.write_bytes(damaged(draw, path.read_bytes()))
        command = ["judge", str(folder), "--suite", "handworked", "--case", "handworked/two_heads"]
        done = CliRunner().invoke(main, command)
        if done.exit_code not in (0, 1, 2) or not isinstance(done.exception, SystemExit | None) or "Traceback" in done.output:
            keep = Path(shutil.copytree(folder, Path(tempfile.mkdtemp(prefix="survive-")) / "submission"))
            yield f"{done.exception!r} (the submission is {keep})"


def archives(draw: random.Random, whole: Whole) -> Iterator[str]:
    data, path = whole.archive, whole.folder / "damaged.zip"
    path.write_bytes(damaged(draw, data))
    if path.read_bytes() != data:
        done = snakemake(whole.project, "--cores", "1", "verify", "--config", f"archive={path}")
        words = [line for line in done.stderr.splitlines() if line and not line.startswith("Using ")]
        if done.returncode == 0 or "Traceback" in done.stderr or not words:
            keep = Path(shutil.copy(path, tempfile.mkdtemp(prefix="survive-")))
            yield f"ended with {done.returncode}: {done.stderr[-500:]} (the archive is {keep})"


TRIALS = {trial.__name__: trial for trial in (killed, full, read_only, elsewhere, suites, config, submissions, archives)}


def survive(folder: Path, names: list[str], seed: int, rounds: int, minutes: float) -> dict[str, dict]:
    """{trial: {tries, findings, left_out}} after so many rounds and all that begin within so many minutes; prints each finding at once."""
    whole, ends = Whole(folder), time.monotonic() + 60 * minutes
    told: dict[str, dict] = {name: {"tries": 0, "findings": 0, "left_out": ""} for name in names}
    for number in count():
        if number >= rounds and time.monotonic() > ends:
            return told
        for name in [name for name in names if not told[name]["left_out"]]:
            try:
                findings = list(TRIALS[name](random.Random(f"{seed + number}/{name}"), whole))
            except PermissionError as error:
                told[name]["left_out"] = str(error)
                continue
            told[name]["tries"] += 1
            told[name]["findings"] += len(findings)
            for finding in findings:
                print(f"{name} --seed {seed + number}: {finding}", flush=True)


def table(told: dict[str, dict]) -> str:
    """A line for each trial."""
    rows = [f"{name:<12} {row['tries']:>6} {row['findings']:>9}  {row['left_out']}".rstrip() for name, row in told.items()]
    return "\n".join([f"{'trial':<12} {'rounds':>6} {'findings':>9}", *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0, help="begin rounds for so long")
    parser.add_argument("--rounds", type=int, default=1, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=TRIALS, action="append", help="of these trials alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = survive(Path(folder), args.only or list(TRIALS), args.seed, args.rounds, args.minutes)
    print(table(told))
    sys.exit(any(row["findings"] for row in told.values()))
