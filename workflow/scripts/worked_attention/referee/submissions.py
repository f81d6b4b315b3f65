"""Reading what somebody sends to be judged: a folder of arrays, or a Python file. Nothing that is read is trusted.

A folder holds {suite}/{case}/{array}.npy or .json. A file is looked at before it is loaded: its size is bounded by the array it should
hold, pickles are never opened, and whatever is wrong with it becomes a few words. A Python file runs in a process of its own; see `caller`.
"""

import io
import json
import math
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from worked_attention.cases.literals import SPELLED
from worked_attention.cases.words import did_you_mean, short
from worked_attention.files.artifacts import write_json
from worked_attention.referee import caller
from worked_attention.stages import parameters
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE
from worked_attention.stages.precision import bfloat16

HEADER = 10_000  # bytes, the longest header of a .npy file that is looked at
SMALL = 1_000_000  # bytes, what any file may have
SECONDS = 300  # for all cases of a Python file together
Key = tuple[str, str]  # suite and case


class Unreadable(Exception):
    """A file that holds no array, and why, in a few words."""


@dataclass
class Sent:
    """What was sent of one case: arrays by name, what is wrong with files of it, and the word for it if there is nothing to judge."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    word: str = "unreadable"


@dataclass
class Submission:
    """All cases that were sent, and what is said of the rest."""

    name: str
    cases: dict[Key, Sent] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def safe_name(path: Path) -> str:
    """The name of a folder, or of a file without its ending, as a folder of results/judge can have it."""
    name = path.stem if path.is_file() else path.name
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._-") or "submission"


def read_submission(path: Path, suites: dict[str, dict], folder: Path) -> tuple[Submission, dict[Key, dict[str, np.ndarray]]]:
    """What lies at `path` for cases of `suites`, and the parameters of these cases.

    suites: loaded, by name. folder: where parameter files lie. Raises Unreadable if nothing at `path` is a submission.
    """
    path = Path(os.path.realpath(os.path.expanduser(path)))
    try:
        path.stat()
    except FileNotFoundError:
        raise Unreadable("there is no such file or folder") from None
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    submission = Submission(safe_name(path))
    if path.is_dir():
        _read_folder(path, suites, submission)
        made = {(suite, case): parameters.stage(suites[suite]["cases"][case], folder) for suite, case in submission.cases}
    elif path.suffix == ".py":
        made = _all_parameters(suites, folder, submission)
        _run_file(path, suites, made, submission)
    else:
        raise Unreadable("is neither a folder {suite}/{case}/{array}.npy nor a Python file")
    if not submission.cases:
        if path.name in suites:
            raise Unreadable("is the folder of a suite; give the folder above it")
        suite, case = next((suite, next(iter(suites[suite]["cases"]))) for suite in suites)
        expected = f"holds no case of this project; expected is for instance {suite}/{case}/output.npy"
        raise Unreadable("; ".join([expected, *submission.notes[:1]]))
    return submission, made


def _all_parameters(suites: dict, folder: Path, submission: Submission) -> dict[Key, dict[str, np.ndarray]]:
    """The parameters of every case; those that torch draws only if it is installed."""
    made = {}
    for suite, content in suites.items():
        for name, case in content["cases"].items():
            try:
                made[suite, name] = parameters.stage(case, folder)
            except ImportError as error:
                submission.notes.append(f"{suite}/{name}: left out, its parameters need {error.name}, which is not installed")
    return made


# A folder


def _read_folder(path: Path, suites: dict, submission: Submission) -> None:
    for suite in _listed(path):
        if suite not in suites:
            submission.notes.append(f"{short(suite)}: extra, no suite of this run has this name{did_you_mean(suite, suites)}")
            continue
        cases = suites[suite]["cases"]
        try:
            names = _listed(path / suite)
        except Unreadable as error:
            submission.notes.append(f"{suite}: {error}")
            continue
        for name in names:
            if name not in cases:
                submission.notes.append(f"{suite}/{short(name)}: extra, the suite has no such case{did_you_mean(name, cases)}")
            else:
                submission.cases[suite, name] = _read_case(path / suite / name, cases[name], f"{suite}/{name}", submission.notes)


def _listed(path: Path) -> list[str]:
    """Names in a folder, sorted, but for hidden ones. Raises Unreadable."""
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None


def _computed(case: dict) -> list[str]:
    return [name for name in CATALOGUE if name in case["shapes"] and name not in case["arrays"]["parameters"]]


def _extra(name: str, case: dict) -> str:
    """What is said of an array that the case does not compute."""
    if name in case["arrays"]["parameters"]:
        return "extra, it is a parameter of the case and ours is used"
    return f"extra, the case has no such array{did_you_mean(name, _computed(case))}"


def _read_case(path: Path, case: dict, where: str, notes: list[str]) -> Sent:
    try:
        files = _listed(path)
    except Unreadable as error:
        return Sent(problems=[f"its folder {error}"])
    sent = Sent()
    computed = _computed(case)
    seen = set()
    for file in sorted(files, key=lambda file: not file.endswith(".npy")):
        name, ending = os.path.splitext(file)
        if name in seen and ending == ".json":
            notes.append(f"{where}/{file}: extra, {name}.npy is taken")
        elif ending not in (".npy", ".json") or file == "stage.json":
            notes.append(f"{where}/{short(file)}: extra, an array is a .npy or .json file")
        elif name not in computed:
            notes.append(f"{where}/{short(file)}: {_extra(name, case)}")
        else:
            seen.add(name)
            try:
                sent.arrays[name] = read_file(path / file, tuple(case["shapes"][name]), name in BOOLEAN)
            except Unreadable as error:
                sent.problems.append(f"{file}: {error}")
    if not sent.arrays and not sent.problems:
        sent.problems.append("no array of the case is in its folder")
    return sent


def read_file(path: Path, shape: tuple[int, ...], boolean: bool = False) -> np.ndarray:
    """The array in a .npy or .json file that should have this shape (which is not checked): floats as they are, other numbers as float64.

    boolean: numbers 0 and 1 are taken as False and True. Raises Unreadable.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is not a file")
        limit = max(SMALL, (32 if path.suffix == ".npy" else 64) * prod(shape))
        if status.st_size > limit:
            raise Unreadable(f"is too large, {status.st_size:,} bytes for an array of shape {list(shape)}; it was not opened")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    array = _from_npy(data) if path.suffix == ".npy" else _from_json(data)
    if not boolean:
        return array.astype(np.float64) if array.dtype == bool else array
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise Unreadable("holds other numbers than 0 and 1, should be boolean")
    return array.astype(bool)


def _from_npy(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    if data[:6] != b"\x93NUMPY":
        raise Unreadable("is empty" if not data else "is not a .npy file (pickles, text and .npz are not opened)")
    try:
        version = np.lib.format.read_magic(file)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = header(file, max_header_size=HEADER)
    except Exception:  # a damaged header makes NumPy raise all sorts
        raise Unreadable("has a damaged header") from None
    if dtype.hasobject:
        raise Unreadable("holds pickled Python objects, which are never opened; save an array of floats")
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None and dtype.subdtype is None:
        dtype = bfloat16  # .npy has no name for it
    elif dtype.kind not in "fiub":
        raise Unreadable(f"holds {short(dtype.name)}, should hold real numbers")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell() or any(n < 0 for n in shape):
        raise Unreadable(f"is cut short or damaged: its header promises shape {short(str(list(shape)))}, which is not what follows")
    array = np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C")
    if dtype.kind in "iu" or dtype.itemsize > 8:
        return array.astype(np.float64)
    return array.astype(dtype.newbyteorder("=")) if dtype.kind == "f" else array


def _from_json(data: bytes) -> np.ndarray:
    def number(item: object) -> object:
        if isinstance(item, list):
            return [number(inner) for inner in item]
        if isinstance(item, int | float) or item in SPELLED:
            return float(item)
        raise Unreadable(f"holds {short(json.dumps(item))}, should hold nested lists of numbers")

    try:
        return np.array(number(json.loads(data, parse_int=float)), dtype=np.float64)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not JSON (line {error.lineno})") from None
    except UnicodeDecodeError:
        raise Unreadable("is not UTF-8") from None
    except (ValueError, TypeError):
        raise Unreadable("is a ragged list; lists side by side should have one length") from None


# A Python file


def _run_file(path: Path, suites: dict, made: dict[Key, dict[str, np.ndarray]], submission: Submission) -> None:
    """Call the file's functions for every case, in a process of its own, and read what they made."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        write_json(work / "cases.json", [{"case": suites[suite]["cases"][case]} for suite, case in made])
        np.savez(work / "parameters.npz", **dict(_flat(made)))
        command = [sys.executable, "-P", str(Path(caller.__file__)), str(path), str(work)]
        try:
            null = subprocess.DEVNULL  # a pipe would stay open as long as any process that the file starts
            code = subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=SECONDS, env=_environment()).returncode
            ending = f"ended with code {code}" if code else "ended by itself"
        except subprocess.TimeoutExpired:
            ending = f"took more than {SECONDS} seconds and was stopped"
        for key, word, text, names in _told(work / "told.jsonl"):
            if not key:
                raise Unreadable(text)
            suite, name = key.split("/")
            case = suites[suite]["cases"][name]
            submission.notes += [f"{key}/{short(extra)}: {_extra(extra, case)}" for extra in names]
            submission.cases[suite, name] = (
                Sent(problems=[text], word=word) if word else _read_case(work / "out" / key, case, key, submission.notes)
            )
    unanswered = next((key for key in made if key not in submission.cases), None)
    if unanswered:
        ending += f" before {'/'.join(unanswered)} was answered"
        if not submission.cases:
            raise Unreadable(ending)
        submission.notes.append(f"{path.name}: {ending}; cases that came before are judged")


def _environment() -> dict[str, str]:
    """The variables of this process, but without the folder of our package on PYTHONPATH, where a workflow puts it."""
    ours = str(Path(caller.__file__).parents[2])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != ours]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _told(path: Path) -> list[list]:
    """The lines that `caller` wrote, but for one that was cut when its process ended."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.is_file() else []


def _flat(made: dict[Key, dict[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    for (suite, case), arrays in made.items():
        for name, array in arrays.items():
            yield f"{suite}/{case}/{name}", array.astype(np.float32) if array.dtype == bfloat16 else array
