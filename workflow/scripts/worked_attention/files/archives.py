"""An archive of one state of the project: a zip of files with a manifest, whose every byte follows from the files.

Members are stored without compression, for compressors differ from machine to machine, in the order of their names, all
with one date and the same permissions. manifest.json tells format, digest, and for each file its sha256 and size:

    digest = sha256 of a line "sha256  path" for each input and number, in the order of the paths

Inputs and numbers are the suites, the parameter files, config.json, every .npy and .npz, and every case.json. Figures, looks, comparisons
and the environment are in the manifest but not in the digest.
"""

import hashlib
import json
import os
import re
import shutil
import struct
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from filecmp import cmp
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

FORMAT = 1
MANIFEST = "manifest.json"
COUNTED = re.compile(r"config\.json|config/suites/.*|results/.*\.np[yz]|results/.*/case\.json", re.DOTALL)
CHUNK = 1 << 20
DAMAGE = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, OverflowError, struct.error)  # all that reading a bad zip raises


def members(root: Path, paths: Iterable[str], texts: dict[str, object]) -> dict[str, Path | bytes]:
    """What to archive, by name: the files that `paths` name or hold, all below `root`, and `texts` as JSON files.

    Snakemake's timestamps and files still being written are left out.
    """
    found: dict[str, Path | bytes] = {name: _json(value) for name, value in texts.items()}
    for path in paths:
        top = root / path
        inside = [file for file in top.rglob("*") if file.is_file() and file.name != ".snakemake_timestamp" and file.suffix != ".part"]
        for file in [top] if top.is_file() else inside:
            found[file.relative_to(root).as_posix()] = file
    return found


def build_manifest(files: dict[str, Path | bytes]) -> dict:
    """{format, digest, files: {path: {sha256, bytes}}} of the `files` that `members` found."""
    entries = {}
    for name in sorted(files):
        with _open(files[name]) as file:
            entries[name] = _fingerprint(file)
    return {"format": FORMAT, "digest": digest({name: entry["sha256"] for name, entry in entries.items()}), "files": entries}


def digest(hashes: dict[str, str]) -> str:
    """The sha256 over inputs and numbers, from each file's sha256 by path."""
    lines = [f"{hashes[name]}  {name}\n" for name in sorted(hashes) if COUNTED.fullmatch(name)]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def write_archive(folder: Path, files: dict[str, Path | bytes]) -> Path:
    """Write the `files` that `members` found to folder/DIGEST.zip, which appears whole or not at all. Returns its path."""
    manifest = build_manifest(files)
    path = folder / f"{manifest['digest']}.zip"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "wb") as file:
        write_zip(file, {**files, MANIFEST: _json(manifest)})
    os.replace(temporary, path)
    return path


def write_zip(target: BinaryIO, files: dict[str, Path | bytes]) -> None:
    """Write `files` to the open file `target` as a zip whose bytes depend on names and contents alone."""
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            with _open(files[name]) as source:
                _write_member(archive, name, source, source.seek(0, os.SEEK_END))


def check_archive(path: Path) -> tuple[list[str], dict]:
    """Re-hash the archive at `path`: (what is wrong with it, one line each; its manifest, or {} if that cannot be read)."""
    if not path.is_file():
        return [f"{_shown(str(path))}: {'is a folder, not an archive' if path.is_dir() else 'no such file'}"], {}
    try:
        with zipfile.ZipFile(path) as archive:
            return _check(archive, path)
    except DAMAGE as error:
        return [f"{_shown(path.name)}: damaged, or not a zip ({_shown(str(error))})"], {}


def _check(archive: zipfile.ZipFile, path: Path) -> tuple[list[str], dict]:
    infos = archive.infolist()
    if sum(info.file_size for info in infos) > path.stat().st_size or any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        return [f"{_shown(path.name)}: its files claim more than it holds, or are compressed; no archive of ours is"], {}
    counts = Counter(info.filename for info in infos)
    if MANIFEST not in counts:
        return [f"{MANIFEST}: missing, so nothing can be checked"], {}
    findings = [f"{_shown(name)}: duplicated, {n} times in the archive" for name, n in counts.items() if n > 1]
    findings += [f"{_shown(name)}: unsafe name, it points out of the archive" for name in counts if _unsafe(name)]
    try:
        text = archive.read(MANIFEST)
        manifest = json.loads(text)
    except DAMAGE as error:
        return [*findings, f"{MANIFEST}: damaged ({_shown(str(error))})"], {}
    if problem := _malformed(manifest):
        return [*findings, f"{MANIFEST}: {problem}"], {}
    files = manifest["files"]
    wrong = {info.filename: _difference(archive, info, files[info.filename]) for info in infos if info.filename in files}
    findings += [f"{_shown(name)}: flipped, {difference}" for name, difference in wrong.items() if difference]
    findings += [f"{_shown(name)}: missing from the archive" for name in files if name not in counts]
    findings += [f"{_shown(name)}: added, the manifest does not know it" for name in counts if name not in files and name != MANIFEST]
    stated = manifest["digest"]
    if stated != digest({name: entry["sha256"] for name, entry in files.items()}):
        findings.append(f"{MANIFEST}: flipped, its digest does not follow from its files")
    if path.stem != stated:
        findings.append(f"{_shown(path.name)}: renamed, by its manifest it is {stated}.zip")
    if not findings and not (text == _json(manifest) and _rewrites(archive, path)):
        findings.append(f"{_shown(path.name)}: flipped outside its files, in the zip's own fields or in the manifest's spelling")
    return findings, manifest


def _difference(archive: zipfile.ZipFile, info: zipfile.ZipInfo, expected: dict) -> str | None:
    """How a member differs from what the manifest says of it; None if it does not."""
    if info.file_size != expected["bytes"]:
        return f"it has {info.file_size} bytes where the manifest says {expected['bytes']}"
    try:
        with archive.open(info) as file:
            found = _fingerprint(file)
    except DAMAGE:
        return "its checksum or its header is wrong"
    return None if found == expected else "its sha256 is not the manifest's"


def _malformed(manifest: object) -> str | None:
    """What keeps `manifest` from being one of ours; None if nothing does."""
    if not isinstance(manifest, dict) or set(manifest) != {"format", "digest", "files"}:
        return "should hold format, digest and files"
    if manifest["format"] != FORMAT:
        return f"has format {_shown(str(manifest['format']))}; this program reads format {FORMAT}"
    if not isinstance(manifest["files"], dict) or not isinstance(manifest["digest"], str):
        return "should hold a mapping of files and a digest as text"
    for name, entry in manifest["files"].items():
        if not isinstance(entry, dict) or not isinstance(entry.get("sha256"), str) or type(entry.get("bytes")) is not int:
            return f"says no sha256 and size of {_shown(name)}"
    return None


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
    info.create_system, info.external_attr, info.file_size = 3, 0o100644 << 16, size
    source.seek(0)
    with archive.open(info, "w") as target:
        shutil.copyfileobj(source, target, CHUNK)


def _open(source: Path | bytes) -> BinaryIO:
    return BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _fingerprint(file: BinaryIO) -> dict:
    """{sha256, bytes} of an open file."""
    sha256, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        sha256.update(chunk)
        size += len(chunk)
    return {"sha256": sha256.hexdigest(), "bytes": size}


def _json(value: object) -> bytes:
    """`value` as strict JSON with sorted keys."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "surrogatepass")


def _unsafe(name: str) -> bool:
    return not name or name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/")


def _shown(text: str) -> str:
    """`text` on one line, whatever it holds."""
    return text if text.isprintable() else ascii(text)
