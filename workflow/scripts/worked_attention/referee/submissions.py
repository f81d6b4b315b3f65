"""Reading what somebody sends to be judged: a folder of arrays, or a Python file. Nothing that is read is trusted.

A folder holds {suite}/{case}/{array}.npy or .json. A file is looked at before it is loaded: its size is bounded by the array it should
hold, pickles are never opened, and whatever is wrong with it becomes a few words. A Python file has a process of its own; see `running`.
"""

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from worked_attention.cases.words import did_you_mean, short
from worked_attention.referee import printed
from worked_attention.referee.caller import largest
from worked_attention.referee.declarations import declared
from worked_attention.referee.handed import handed
from worked_attention.referee.running import Ended, Running
from worked_attention.stages import parameters
from worked_attention.stages.catalogue import BOOLEAN, CATALOGUE
from worked_attention.stages.precision import bfloat16

HEADER = 10_000  # bytes, the longest header of a .npy file that is looked at
SECONDS = 300  # for all cases of a Python file together
NOTES = 100  # names that the project does not have; further ones are counted
DECLARATION = "conventions.json"  # in the folder of a submission: what it follows
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of a path, as it can stand in results/
Key = tuple[str, str]  # suite and case
Arrays = dict[str, np.ndarray]


class Unreadable(Exception):
    """A file that holds no array, or a path that holds no submission, and why, in a few words."""


@dataclass
class Sent:
    """What was sent of one case: arrays by name, what is wrong with files of it, and the word for it if there is nothing to judge."""

    arrays: Arrays = field(default_factory=dict)
    steps: Arrays = field(default_factory=dict)  # of arrays of printed numbers, see `judge_case`
    problems: list[str] = field(default_factory=list)
    word: str = "unreadable"


def place(path: Path, root: Path) -> str:
    """Where below results/judge the verdict on `path` belongs: its path from `root`, or its name and a hash where that is none.

    Both are real paths. No two submissions share a place.
    """
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    if parts and all(PART.fullmatch(part) for part in parts):
        return "/".join(parts)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", path.name).strip("._-") or "submission"
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


class Submission:
    """What lies at a path: `answers` goes through it case by case; then `notes` and `output` say what else there is to say."""

    def __init__(self, path: Path, suites: dict[str, dict], folders: dict[str, Path], others: Collection[str] = ()):
        """suites: loaded, by name, with the cases that are asked for. folders: where their parameter files lie, by suite. others:
        suite/case of what there is and is not asked for.

        Raises Unreadable if nothing at `path` can be a submission.
        """
        self.path, self.suites, self.folders = Path(os.path.realpath(os.path.expanduser(path))), suites, folders
        self.name = place(self.path, Path.cwd().resolve())
        self.others = others
        self.output = ""  # what a Python file printed
        self.conventions: dict[str, str] = {}  # what it declares to follow, known when the first case is answered
        self._notes: list[str] = []
        self._unlisted = 0
        try:
            self.path.stat()
        except FileNotFoundError:
            raise Unreadable("there is no such file or folder") from None
        except OSError as error:
            raise Unreadable(f"cannot be read ({error.strerror})") from None
        if not self.path.is_dir() and self.path.suffix != ".py":
            raise Unreadable("is neither a folder {suite}/{case}/{array}.npy nor a Python file")
        if self.path.suffix == ".py" and not hasattr(os, "killpg"):
            raise Unreadable("a Python file is judged on Linux and macOS; send a folder of arrays")

    @property
    def notes(self) -> list[str]:
        """What is no fault of a case: names that the project does not have, at most NOTES of them, and what was left out."""
        return self._notes + [f"... and {self._unlisted:,} more names that this project does not have"] * bool(self._unlisted)

    def answers(self) -> Iterator[tuple[Key, Arrays, Sent]]:
        """Each case that was sent, with its parameters. Raises Unreadable if there is none."""
        none = True
        for answer in self._of_folder() if self.path.is_dir() else self._of_file():
            none = False
            yield answer
        if none:
            if self.path.name in self.suites:
                raise Unreadable("is the folder of a suite; give the folder above it")
            suite, case = next((suite, next(iter(self.suites[suite]["cases"]))) for suite in self.suites)
            expected = f"holds no case of this project; expected is for instance {suite}/{case}/output.npy"
            raise Unreadable("; ".join([expected, *self.notes[:1]]))

    def _of_folder(self) -> Iterator[tuple[Key, Arrays, Sent]]:
        for suite in _listed(self.path):
            if suite == DECLARATION:
                self._declare(_text(self.path / suite), suite)
        for suite in _listed(self.path):
            if suite == DECLARATION:
                continue
            if suite not in self.suites:
                self._extra("", suite, "no suite of this run has this name", self.suites)
                continue
            cases = self.suites[suite]["cases"]
            try:
                names = _listed(self.path / suite)
            except Unreadable as error:
                self._notes.append(f"{suite}: {error}")
                continue
            for name in [name for name in names if f"{suite}/{name}" not in self.others]:
                if name not in cases:
                    self._extra(f"{suite}/", name, "the suite has no such case", cases)
                elif (given := self._parameters(suite, name)) is not None:
                    yield (suite, name), given, self._read_case(self.path / suite / name, cases[name])

    def _of_file(self) -> Iterator[tuple[Key, Arrays, Sent]]:
        running = Running(self.path, SECONDS)
        before = ""  # the case that was answered last
        try:
            with running:
                if text := running.load():
                    self._declare(text, "CONVENTIONS")
                for suite, name in [(suite, name) for suite, content in self.suites.items() for name in content["cases"]]:
                    if (given := self._parameters(suite, name)) is not None:
                        running.doing = f"{suite}/{name}"
                        yield (suite, name), given, self._ask(running, self.suites[suite]["cases"][name], given)
                        before = running.doing
        except Ended as ended:
            if not before:
                raise Unreadable(f"{ended} before {running.doing} was answered" if "/" in running.doing else str(ended)) from None
            yield tuple(running.doing.split("/")), given, Sent(problems=[str(ended)], word="failed")
            self._notes.append(f"{self.path.name}: {ended} before {running.doing} was answered; cases that came before are judged")
        finally:
            self.output = running.output()

    def _declare(self, text: str, where: str) -> None:
        """Take the JSON `text` of conventions that stands at `where`. Raises Unreadable if it is none."""
        try:
            self.conventions = declared(json.loads(text))
        except (ValueError, RecursionError) as error:
            said = "is not JSON" if isinstance(error, json.JSONDecodeError | RecursionError) else str(error)
            raise Unreadable(f"{where}: {said}") from None

    def _ask(self, running: Running, case: dict, given: Arrays) -> Sent:
        """What the file makes of a case. Raises Ended."""
        word, text, names, files = running.answer(case, handed(case, given))
        for name in names:
            self._extra(f"{case['suite']}/{case['name']}/", name, *_other(name, case))
        return received(word, text, files)

    def _parameters(self, suite: str, name: str) -> Arrays | None:
        """The parameters of a case; None, with a note, if torch draws them and is not installed."""
        try:
            return parameters.stage(self.suites[suite]["cases"][name], self.folders[suite])
        except ImportError as error:
            self._notes.append(f"{suite}/{name}: left out, its parameters need {error.name}, which is not installed")
            return None

    def _extra(self, where: str, name: str, what: str, known: Iterable[str] = ()) -> None:
        """Note a `name` in the folder `where` that is none of the `known`; from NOTES on they are counted, for there may be many."""
        if len(self._notes) < NOTES:
            self._notes.append(f"{where}{short(name)}: extra, {what}{did_you_mean(os.path.splitext(name)[0], known)}")
        else:
            self._unlisted += 1

    def _read_case(self, path: Path, case: dict) -> Sent:
        try:
            files = _listed(path)
        except Unreadable as error:
            return Sent(problems=[f"its folder {error}"])
        sent, where = Sent(), f"{case['suite']}/{case['name']}/"
        computed = _computed(case)
        seen = set()
        for file in sorted(files, key=lambda file: not file.endswith(".npy")):
            name, ending = os.path.splitext(file)
            if name in seen and ending == ".json":
                self._extra(where, file, f"{name}.npy is taken")
            elif ending not in (".npy", ".json") or file == "stage.json":
                self._extra(where, file, "an array is a .npy or .json file")
            elif name not in computed:
                self._extra(where, file, *_other(name, case))
            else:
                seen.add(name)
                try:
                    sent.arrays[name], steps = read_file(path / file, tuple(case["shapes"][name]), name in BOOLEAN)
                    sent.steps |= {} if steps is None else {name: steps}
                except Unreadable as error:
                    sent.problems.append(f"{file}: {error}")
        if not sent.arrays and not sent.problems:
            sent.problems.append("no array of the case is in its folder")
        return sent


def received(word: str | None, text: str, files: dict[str, bytes]) -> Sent:
    """What functions answered of one case: arrays as .npy `files` by name, or the `word` and `text` for why there are none."""
    if word:
        return Sent(problems=[text], word=word)
    sent = Sent()
    for name, data in files.items():
        try:
            array, steps = printed.apart(_from_npy(data))
            sent.arrays[name] = _meant(array, name in BOOLEAN)
            sent.steps |= {} if steps is None or name in BOOLEAN else {name: steps}
        except Unreadable as error:
            sent.problems.append(f"{name}: {error}")
    return sent


def _other(name: str, case: dict) -> tuple[str, list[str]]:
    """What is said of a name that the case does not compute, and the names that may be meant."""
    if name in case["arrays"]["parameters"]:
        return "it is a parameter of the case and ours is used", []
    return "the case has no such array", _computed(case)


def _computed(case: dict) -> list[str]:
    return [name for name in CATALOGUE if name in case["shapes"] and name not in case["arrays"]["parameters"]]


def _listed(path: Path) -> list[str]:
    """Names in a folder, sorted, but for hidden ones. Raises Unreadable."""
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None


def _text(path: Path) -> str:
    """What a small file says. Raises Unreadable."""
    try:
        if not path.is_file() or path.stat().st_size > HEADER:
            raise Unreadable(f"{path.name}: is no file of at most {HEADER:,} bytes")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise Unreadable(f"{path.name}: cannot be read") from None


def read_file(path: Path, shape: tuple[int, ...], boolean: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
    """The array in a .npy or .json file that should have this shape (which is not checked): floats as they are, other numbers as float64;
    and, if some numbers are printed ones, the unit of the last decimal of each element: 0 of one that is a number in full, NaN of none.

    boolean: numbers 0 and 1 are taken as False and True. Raises Unreadable.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is not a file")
        limit = largest(shape) * (1 if path.suffix == ".npy" else 2)
        if status.st_size > limit:
            raise Unreadable(f"is too large, {status.st_size:,} bytes for an array of shape {list(shape)}; it was not opened")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    array, steps = printed.apart(_from_npy(data) if path.suffix == ".npy" else _from_json(data, shape))
    return _meant(array, boolean), None if boolean else steps


def _meant(array: np.ndarray, boolean: bool) -> np.ndarray:
    """`array` as numbers, or, if they should be `boolean`, as False and True. Raises Unreadable."""
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
    elif dtype == printed.PAIR:
        pass  # as `caller` sends printed numbers
    elif dtype.kind not in "fiub":
        raise Unreadable(f"holds {short(dtype.name)}, should hold real numbers")
    if len(shape) > 8:  # NumPy takes 64 of them, a case 4
        raise Unreadable(f"has {len(shape)} axes, an array of a case at most 4")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell() or any(n < 0 for n in shape):
        raise Unreadable(f"is cut short or damaged: its header promises shape {short(str(list(shape)))}, which is not what follows")
    array = np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C")
    if dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize > 8):
        return array.astype(np.float64)
    return array.astype(dtype.newbyteorder("=")) if dtype.kind == "f" else array


def _from_json(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """What `printed.read` makes of the JSON. Raises Unreadable."""
    try:
        return printed.read(json.loads(data, parse_int=float), shape)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not JSON (line {error.lineno})") from None
    except UnicodeDecodeError:
        raise Unreadable("is not UTF-8") from None
    except ValueError as error:
        raise Unreadable(str(error)) from None
