"""A zip whose every byte follows from the names and contents of its files, and the check of such a zip.

Members are stored without compression, for compressors differ from machine to machine, in the order of their names, all with one date and
the same permissions. SHA256SUMS has the sha256 of every other one. manifest.json tells {format, name, digest, ...}, where

    digest = sha256 of a line "sha256  name" for each input and number, in the order of the names

Inputs and numbers are the suites with their parameter files, config.json, and every .npy. Figures, looks, comparisons, what other libraries
made, the sources and the environment have a line in SHA256SUMS and no part in the digest.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from filecmp import cmp
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from worked_attention.files.sums import SUMS, read_sums, sums

FORMAT = 2  # of manifest.json
MANIFEST = "manifest.json"
COUNTED = re.compile(r"config\.json|config/suites/.*|results/.*\.npy")
CHUNK = 1 << 20
DAMAGE = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, OverflowError, struct.error)  # all that reading a bad zip raises
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

Files = dict[str, Path | bytes]  # members by name: where each is to be read, or what it holds


@dataclass(frozen=True)
class Checked:
    """What the check of an archive found: a line for each thing that is wrong, the sha256 of each file by its own word, its manifest, and
    which of the lines says that it has another name than it was given.
    """

    findings: list[str]
    hashes: dict[str, str] = field(default_factory=dict)
    manifest: dict = field(default_factory=dict)
    renamed: str = ""

    @property
    def damage(self) -> list[str]:
        """What is wrong but for the name, which two archives of one digest must change to lie in one folder."""
        return [line for line in self.findings if line != self.renamed]


def digest(hashes: dict[str, str]) -> str:
    """The sha256 over inputs and numbers, from each file's sha256 by name."""
    return hashlib.sha256(sums({name: value for name, value in hashes.items() if COUNTED.fullmatch(name)}).encode()).hexdigest()


def write_archive(folder: Path, files: Files, told: Callable[[str], tuple[dict, Files]]) -> Path:
    """Write `files`, what is `told` of them and SHA256SUMS to folder/{name}.zip, which appears whole or not at all. Returns its path.

    told: gives, from the digest, what manifest.json says, with the `name`, and further files. Raises ValueError where a file has a name
    that no archive takes.
    """
    hashes = {name: _hash(source) for name, source in files.items()}
    manifest, more = told(digest(hashes))
    more = {**more, MANIFEST: as_json({"format": FORMAT, **manifest})}
    hashes |= {name: _hash(source) for name, source in more.items()}
    if unsafe := next((name for name in hashes if unsafe_name(name)), None):
        raise ValueError(f"{_shown(unsafe)} has a name that no archive takes; rename the file")
    path = folder / f"{manifest['name']}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "wb") as file:
        write_zip(file, {**files, **more, SUMS: sums(hashes).encode()})
    os.replace(temporary, path)
    return path


def write_zip(target: BinaryIO, files: Files) -> None:
    """Write `files` to the open file `target` as a zip whose bytes depend on names and contents alone."""
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            with _open(files[name]) as source:
                _write_member(archive, name, source, source.seek(0, os.SEEK_END))


def as_json(value: object) -> bytes:
    """`value` as strict JSON with sorted keys."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def check_archive(path: Path) -> Checked:
    """Re-hash the archive at `path`, which anybody may have written."""
    if not path.is_file():
        return Checked([f"{_shown(str(path))}: {'is a folder, not an archive' if path.is_dir() else 'no such file'}"])
    try:
        with zipfile.ZipFile(path) as archive:
            if refused := refusals(archive, path):
                return Checked(refused)
            return _check(archive, path)
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return Checked([f"{_shown(path.name)}: cannot be checked, for there is no room for a copy in {tempfile.gettempdir()}"])
        return Checked([damaged(path, error)])


def damaged(path: Path, error: Exception) -> str:
    """The line on a file that cannot be read as a zip."""
    return f"{_shown(path.name)}: damaged, or not a zip ({_shown(str(error))})"


def refusals(archive: zipfile.ZipFile, path: Path) -> list[str]:
    """Why nothing of `archive` should be read or unpacked, a line each: it claims more than it holds, or its members are not plain files
    below it, each once."""
    infos = archive.infolist()
    if sum(info.file_size for info in infos) > path.stat().st_size or any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        return [f"{_shown(path.name)}: its files claim more than it holds, or are compressed; no archive of ours is"]
    counts = Counter(info.filename for info in infos)
    found = [f"{_shown(name)}: duplicated, {n} times in the archive" for name, n in counts.items() if n > 1]
    found += [f"{_shown(name)}: unsafe name, it points out of the archive or is not plain text" for name in counts if unsafe_name(name)]
    return found + [
        f"{_shown(info.filename)}: is no plain file" for info in infos if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG)
    ]


def unsafe_name(name: str) -> bool:
    """Whether a file of this name could land anywhere else than below the folder that it is unpacked to, or cannot stand in SHA256SUMS."""
    return not name.isprintable() or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in name.split("/"))


def _check(archive: zipfile.ZipFile, path: Path) -> Checked:
    names = set(archive.namelist())
    if SUMS not in names:
        return Checked([f"{SUMS}: missing, so nothing can be checked"])
    try:
        text = archive.read(SUMS)
        hashes = read_sums(text)
    except DAMAGE as error:
        return Checked([f"{SUMS}: damaged ({_shown(str(error))})"])
    wrong = {name: _difference(archive, name, hashes[name]) for name in archive.namelist() if name in hashes}
    findings = [f"{name}: flipped, {difference}" for name, difference in wrong.items() if difference]
    findings += [f"{_shown(name)}: missing from the archive" for name in hashes if name not in names]
    findings += [f"{name}: added, {SUMS} does not know it" for name in sorted(names - set(hashes) - {SUMS, MANIFEST})]
    manifest, problem = _manifest(archive) if MANIFEST in names else ({}, None)
    if manifest and manifest["digest"] != digest(hashes):
        problem = "flipped, its digest does not follow from its files"
    if MANIFEST not in hashes and not problem:
        problem = f"{SUMS} does not know it" if MANIFEST in names else "missing from the archive"
    findings += [f"{MANIFEST}: {problem}"] * bool(problem)
    if not findings and not (text == sums(hashes).encode() and _rewrites(archive, path)):
        findings.append(f"{_shown(path.name)}: flipped outside its files, in the zip's own fields or in the spelling of {SUMS}")
    renamed = ""
    if manifest and path.name != f"{manifest['name']}.zip":
        renamed = f"{_shown(path.name)}: renamed, by its manifest it is {_shown(manifest['name'])}.zip"
        findings.append(renamed)
    return Checked(findings, hashes, manifest, renamed)


def _difference(archive: zipfile.ZipFile, name: str, expected: str) -> str | None:
    """How a member differs from what SHA256SUMS says of it; None if it does not."""
    try:
        with archive.open(name) as file:
            return None if hashlib.file_digest(file, "sha256").hexdigest() == expected else f"its sha256 is not that of {SUMS}"
    except DAMAGE:
        return "its checksum or its header is wrong"


def _manifest(archive: zipfile.ZipFile) -> tuple[dict, str | None]:
    """manifest.json, and what keeps it from being one of ours; {} if something does."""
    try:
        manifest = json.loads(archive.read(MANIFEST))
    except (*DAMAGE, RecursionError) as error:
        return {}, f"damaged ({_shown(str(error))})"
    if not isinstance(manifest, dict) or not {"format", "name", "digest"} <= set(manifest):
        return {}, "should hold format, name and digest"
    if manifest["format"] != FORMAT:
        return {}, f"has format {_shown(str(manifest['format']))}; this program reads format {FORMAT}"
    if not isinstance(manifest["name"], str) or not isinstance(manifest["digest"], str):
        return {}, "should hold name and digest as text"
    return manifest, None


def _rewrites(archive: zipfile.ZipFile, path: Path) -> bool:
    """Whether our writer, given the members of `archive`, makes the very bytes of `path`. Catches what no hash covers."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.zip"
        with zipfile.ZipFile(copy, "w") as again:
            for name in sorted(archive.namelist()):
                with archive.open(name) as source:
                    _write_member(again, name, source, archive.getinfo(name).file_size)
        return cmp(path, copy, shallow=False)


def _write_member(archive: zipfile.ZipFile, name: str, source: BinaryIO, size: int) -> None:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system, info.external_attr, info.file_size = 3, (stat.S_IFREG | 0o644) << 16, size
    source.seek(0)
    with archive.open(info, "w") as target:
        shutil.copyfileobj(source, target, CHUNK)


def _open(source: Path | bytes) -> BinaryIO:
    return BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _hash(source: Path | bytes) -> str:
    with _open(source) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shown(text: str) -> str:
    """`text` on one line, whatever it holds."""
    return text if text.isprintable() else ascii(text)
