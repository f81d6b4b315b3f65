"""Reading what an archive holds. Anybody may have written it: nothing is unpacked that could land elsewhere, nothing believed unread."""

import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import numpy as np

from worked_attention.archives.zips import DAMAGE, check_archive, damaged, refusals
from worked_attention.cases.escapes import printable
from worked_attention.cases.strict_yaml import Problems
from worked_attention.cases.suites import load_suite
from worked_attention.files.formats import from_npy, read_rows_of
from worked_attention.stages.catalogue import CATALOGUE, STAGES
from worked_attention.stages.rows import along, looked_at, stored

SUITES = "config/suites/"
LARGEST_JSON = 10_000_000  # bytes of a JSON file that is read; environment.json has about 10,000
ENVIRONMENTS = ("results/environment.json", "results/some-suites/environment.json")


class Refused(Exception):
    """An archive that cannot be used: a line for each reason."""


def taken(case: dict, name: str, array: np.ndarray) -> np.ndarray:
    """Array `name` of a whole case, or of one that is too large for all the rows of its sample."""
    axis = along(name) if case["sample"] and name in CATALOGUE else None
    return array if axis is None or array.shape[axis] == 1 else np.take(array, case["sample"], axis=axis)


def stored_at(case: dict, stage: str, name: str) -> str:
    """The "stage/name" under which a case has array `name` of what is looked at."""
    return f"{stage}/{stored(case, name) if case['sample'] else name}"


class Archive:
    """An open archive. name: of its file. checked: what `verify` finds. suites: resolved by today's workflow, by name. folder: where its
    config/ lies unpacked. environment: what it says of the machine, {} if nothing can be read."""

    def __init__(self, path: Path, opened: zipfile.ZipFile, folder: Path, limits: dict):
        """From an archive of which nothing has to be refused; limits: those of the config here. Raises Refused."""
        self.name, self.checked, self.folder = path.name, check_archive(path), folder
        self._zip = opened
        self._members: dict[str, dict[str, str]] = {}
        for member in opened.namelist():
            match member.split("/"):
                case ["results", suite, stage, case, file] if stage in STAGES and file.endswith(".npy"):
                    self._members.setdefault(f"{suite}/{case}", {})[f"{stage}/{file[:-4]}"] = member
                case ["results", *inner] if member.endswith(".npy"):
                    self._members["/".join(inner)] = {}  # where no case has arrays
                case ["config", *_]:
                    self._unpack(member)
        self.suites = self._load(limits)
        self.environment = next((self._json(name) for name in ENVIRONMENTS if name in opened.namelist()), {})

    def arrays(self, case: dict) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """The arrays of a resolved case, as far as it is looked at, by "stage/name", and of those that cannot be read, why."""
        there = self._members.get(f"{case['suite']}/{case['name']}", {})
        names = {f"{stage}/{name}": stored_at(case, stage, name) for stage, names in looked_at(case)["arrays"].items() for name in names}
        names |= {key: key for key in there if key not in names.values()}
        arrays, unreadable = {}, {}
        for key, member in names.items():
            if member not in there:
                continue
            try:
                arrays[key] = self._array(case, key.split("/")[1], there[member])
            except Exception as error:  # a damaged header makes NumPy raise all sorts
                unreadable[key] = printable(str(error).splitlines()[0] if str(error) else type(error).__name__)
        return arrays, unreadable

    def _array(self, case: dict, name: str, member: str) -> np.ndarray:
        """One array of a case; of a large one the rows of its sample, taken from a file, for memory should not hold all of them."""
        if not case["sample"] or name not in CATALOGUE:
            return from_npy(self._zip.read(member))
        with self._zip.open(member) as packed, NamedTemporaryFile(dir=self.folder) as file:
            shutil.copyfileobj(packed, file)
            file.flush()
            return read_rows_of(Path(file.name), name, case["dims"]["Lq"], case["sample"])

    @property
    def cases(self) -> set[str]:
        """Each "suite/case" that it has arrays of, and the path of each array that lies elsewhere in results/."""
        return set(self._members)

    def _unpack(self, member: str) -> None:
        target = self.folder / member
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self._zip.read(member))
        except DAMAGE as error:
            raise Refused(f"{self.name}: {member} cannot be unpacked ({printable(str(error))})".replace(f"{self.folder}/", "")) from None

    def _load(self, limits: dict) -> dict[str, dict]:
        names = sorted(path.stem for path in (self.folder / SUITES).glob("*.yaml"))
        if not names:
            raise Refused(f"{self.name}: has no suites in {SUITES}, so there is nothing to compute")
        suites, problems = {}, []
        for name in names:
            try:
                suites[name] = load_suite(self.folder / SUITES / f"{name}.yaml", limits)
            except Problems as error:
                problems += [f"{self.name}: {problem}".replace(f"{self.folder.as_posix()}/", "") for problem in error.problems]
        if problems:
            raise Refused("\n".join([*problems, f"{self.name}: if these suites are meant so, compute with the workflow in its source/"]))
        return suites

    def _json(self, name: str) -> dict:
        """What a JSON file says; {} if it is damaged, or nothing of ours."""
        try:
            said = json.loads(self._zip.read(name)) if self._zip.getinfo(name).file_size <= LARGEST_JSON else {}
        except (*DAMAGE, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}


@contextmanager
def opened(path: Path, limits: dict) -> Iterator[Archive]:
    """The archive at `path`. limits: those of the config here, which its cases have to keep to. Raises Refused."""
    if not path.is_file():
        raise Refused("\n".join(check_archive(path).findings))
    try:
        file = zipfile.ZipFile(path)
    except DAMAGE as error:
        raise Refused(damaged(path, error)) from None
    with file, TemporaryDirectory() as folder:
        if refused := refusals(file, path):
            raise Refused("\n".join(refused))
        yield Archive(path, file, Path(folder), limits)
