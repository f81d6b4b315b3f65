"""Archives: the same state gives the same bytes, the digest covers inputs and numbers, and nothing that is changed passes unseen."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, run, with_suites

from worked_attention.files.archives import build_manifest, check_archive, members, write_archive, write_zip

PATHS = ["config/config.yaml", "config/suites/small.yaml", "config/suites/x.npy", "results/small", "results/environment.json"]
CONFIG = {"suites": ["small"], "gates": {"float64": 1e-12}}
WEIGHTS = "results/small/weights/only/weights.npy"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project as a run leaves it."""
    return plant(tmp_path / "tree", list(texts()))


def texts() -> dict[str, bytes]:
    return {
        "config/config.yaml": b"suites: all\n",
        "config/suites/small.yaml": b"cases: {only: {parameters: {x: [[1]]}}}\n",
        "config/suites/x.npy": b"a parameter file",
        "results/environment.json": b'{"python": "3"}\n',
        "results/small/figures/only.svg": b"<svg/>",
        "results/small/parameters/only/case.json": b'{"name": "only"}\n',
        "results/small/parameters/only/x.npy": b"\x00\x01",
        "results/small/weights/only/stage.json": b"{}\n",
        WEIGHTS: b"\x93NUMPY" + bytes(range(256)),
        "results/small/weights/.snakemake_timestamp": b"",
        "results/small/weights/only/weights.npy.part": b"half",
    }


def plant(root: Path, order: list[str]) -> Path:
    for name in order:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(texts()[name])
    return root


def collect(tree: Path, config: dict = CONFIG, looks: dict | None = None) -> dict:
    return members(tree, PATHS, {"config.json": config, "looks.json": looks or {"digits": 3}})


def digest_of(tree: Path, **settings) -> str:
    return build_manifest(collect(tree, **settings))["digest"]


def read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, files: dict[str, bytes], name: str | None = None) -> Path:
    """A zip of `files` by our writer, beside `path`, under the same name in another folder."""
    target = path.parent / "changed" / (name or path.name)
    target.parent.mkdir(exist_ok=True)
    with open(target, "wb") as file:
        write_zip(file, files)
    return target


def findings(path: Path) -> list[str]:
    lines, _ = check_archive(path)
    assert all("\n" not in line and line for line in lines)
    return lines


# The same state gives the same bytes


def test_what_is_archived(tree: Path, tmp_path: Path) -> None:
    path = write_archive(tmp_path / "out", collect(tree))
    kept = [name for name in texts() if not name.endswith((".part", ".snakemake_timestamp"))]
    assert list(read(path)) == sorted([*kept, "config.json", "looks.json", "manifest.json"])
    assert {name: read(path)[name] for name in kept} == {name: texts()[name] for name in kept}
    manifest = json.loads(read(path)["manifest.json"])
    assert path.name == f"{manifest['digest']}.zip"
    assert list(manifest["files"]) == sorted([*kept, "config.json", "looks.json"])
    assert manifest["files"][WEIGHTS]["bytes"] == 262
    assert check_archive(path) == ([], manifest)
    assert os.listdir(path.parent) == [path.name]


def test_same_state_same_bytes(tree: Path, tmp_path: Path) -> None:
    first = write_archive(tmp_path / "first", collect(tree))
    other = plant(tmp_path / "other", list(reversed(texts())))
    for file in other.rglob("*"):
        os.utime(file, (1e9, 1e9))
        file.chmod(0o700)
    mask = os.umask(0o077)
    try:
        again = write_archive(tmp_path / "again", dict(reversed(collect(other).items())))
    finally:
        os.umask(mask)
    assert again.name == first.name
    assert again.read_bytes() == first.read_bytes()


@pytest.mark.parametrize("name", ["results/environment.json", "results/small/figures/only.svg", "results/small/weights/only/stage.json"])
def test_digest_leaves_out(tree: Path, tmp_path: Path, name: str) -> None:
    before = digest_of(tree)
    first = write_archive(tmp_path / "first", collect(tree))
    (tree / name).write_bytes(b"other")
    assert digest_of(tree) == before
    assert write_archive(tmp_path / "second", collect(tree)).read_bytes() != first.read_bytes()


@pytest.mark.parametrize(
    "name", [WEIGHTS, "config/suites/small.yaml", "config/suites/x.npy", "results/small/parameters/only/case.json", "results/small/new.npy"]
)
def test_digest_covers(tree: Path, name: str) -> None:
    before = digest_of(tree)
    (tree / name).write_bytes(b"other")
    assert digest_of(tree) != before


def test_digest_and_config(tree: Path) -> None:
    before = digest_of(tree)
    assert digest_of(tree, looks={"digits": 4}) == before
    assert digest_of(tree, config={**CONFIG, "gates": {"float64": 1e-9}}) != before


# What is changed is named


@pytest.fixture
def whole(tree: Path, tmp_path: Path) -> Path:
    return write_archive(tmp_path / "out", collect(tree))


def test_flipped_missing_added_are_each_named(whole: Path) -> None:
    files = read(whole)
    files[WEIGHTS] = files[WEIGHTS][:-1] + b"\x00"
    files["looks.json"] += b" "
    del files["results/environment.json"]
    files["results/small/extra.npy"] = b"extra"
    assert findings(rewritten(whole, files)) == [
        "looks.json: flipped, it has 18 bytes where the manifest says 17",
        f"{WEIGHTS}: flipped, its sha256 is not the manifest's",
        "results/environment.json: missing from the archive",
        "results/small/extra.npy: added, the manifest does not know it",
    ]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", [WEIGHTS, "manifest.json"])
def test_duplicate(whole: Path, name: str) -> None:
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr(name, read(whole)[name])
    assert f"{name}: duplicated, 2 times in the archive" in findings(whole)


def test_every_flipped_byte_is_reported(tmp_path: Path) -> None:
    whole = write_archive(tmp_path, {"results/a.npy": b"abc", "b": b""})
    data = whole.read_bytes()
    assert findings(whole) == []
    for i in range(len(data)):
        for flip in (1 << i % 8, 0xFF):
            whole.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            assert findings(whole), f"byte {i} of {len(data)}, flipped by {flip}"


def test_every_cut_and_every_addition_is_reported(tmp_path: Path) -> None:
    whole = write_archive(tmp_path, {"results/a.npy": b"abc", "b": b""})
    data = whole.read_bytes()
    for changed in [*(data[:i] for i in range(0, len(data), 7)), data[1:], data + b"\0", b"\0" + data, data + data]:
        whole.write_bytes(changed)
        assert findings(whole)


def test_flip_in_a_file_names_the_file(whole: Path) -> None:
    data = whole.read_bytes()
    at = data.index(bytes(range(256))) + 100
    whole.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    assert findings(whole) == [f"{WEIGHTS}: flipped, its checksum or its header is wrong"]


def test_other_times_and_another_packer(whole: Path) -> None:
    files = read(whole)
    with zipfile.ZipFile(whole, "w") as archive:
        for name in sorted(files):
            archive.writestr(name, files[name])
    assert [line.partition(": ")[2][:26] for line in findings(whole)] == ["flipped outside its files,"]
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(name, files[name])
    assert "compressed" in findings(whole)[0]


# What is no archive of ours


def test_no_archive(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no zip", "utf-8")
    (tmp_path / "empty.zip").write_bytes(b"")
    assert findings(tmp_path / "none.zip")[0].endswith("none.zip: no such file")
    assert findings(tmp_path)[0].endswith("is a folder, not an archive")
    for name in ("text.zip", "empty.zip"):
        assert findings(tmp_path / name)[0].startswith(f"{name}: damaged, or not a zip")


def test_renamed(whole: Path) -> None:
    other = whole.rename(whole.with_name("mine.zip"))
    assert findings(other) == [f"mine.zip: renamed, by its manifest it is {whole.name}"]


def manifest(**changes) -> bytes:
    good = {"format": 1, "digest": "0" * 64, "files": {}}
    return json.dumps({**good, **changes}).encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "manifest.json: missing"),
        (b"not JSON", "manifest.json: damaged"),
        (b"\xff\xfe", "manifest.json: damaged"),
        (b"[" * 100_000, "manifest.json: damaged"),
        (b"[]", "should hold format, digest and files"),
        (b'{"files": {}}', "should hold format, digest and files"),
        (manifest(note="more"), "should hold format, digest and files"),
        (manifest(format=2), "has format 2; this program reads format 1"),
        (manifest(files=[]), "should hold a mapping"),
        (manifest(files={"a": 1}), "says no sha256 and size of a"),
        (manifest(files={"a\n": {"sha256": "", "bytes": "1"}}), r"says no sha256 and size of 'a\n'"),
        (manifest(files={"a": {"sha256": "0", "bytes": 1}}), "a: missing"),
        (manifest(), "flipped, its digest does not follow"),
    ],
)
def test_manifest_is_wrong(tmp_path: Path, text: bytes | None, says: str) -> None:
    path = rewritten(tmp_path / "x.zip", {"manifest.json": text} if text is not None else {"a": b""})
    assert any(says in line for line in findings(path))


def test_manifest_spelt_otherwise(whole: Path) -> None:
    files = read(whole)
    files["manifest.json"] = json.dumps(json.loads(files["manifest.json"])).encode()
    assert "spelling" in findings(rewritten(whole, files))[0]


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "C:out", "a\\..\\out"])
def test_unsafe_names(tmp_path: Path, name: str) -> None:
    path = write_archive(tmp_path, {name: b"out"})
    assert findings(path) == [f"{name}: unsafe name, it points out of the archive"]


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", bytes(50_000_000))
    assert findings(path) == ["bomb.zip: its files claim more than it holds, or are compressed; no archive of ours is"]


# The rules


def test_archive_and_verify(project: Path) -> None:
    with_suites(project)
    np.save(project / "config" / "suites" / "x.npy", np.eye(3))
    suite = "figures: none\nreferences: [torch.sdpa, torch.manual]\ncases: {only: {parameters: {x: {file: x.npy}}}}\n"
    (project / "config" / "suites" / "small.yaml").write_text(suite, "utf-8")

    made = run(project, "archive")
    assert made.returncode == 0, made.stderr
    path = made.stdout.splitlines()[-1]
    data = (project / path).read_bytes()
    assert {"config/suites/x.npy", "results/environment.json", "results/small/references/torch/sdpa.npz"} <= set(read(project / path))
    assert str(project).encode() not in data and str(ROOT).encode() not in data

    again = run(project, "archive", cores=1)
    assert again.stdout == f"{path}\n"
    assert (project / path).read_bytes() == data

    good = run(project, "verify", "--config", f"archive={path}")
    assert good.returncode == 0, good.stderr
    assert good.stdout == f"whole: {len(read(project / path)) - 1} files, digest {Path(path).stem}\n"

    (project / path).write_bytes(data.replace(b"NUMPY", b"NUMPX", 1))
    bad = run(project, "verify", "--config", f"archive={path}")
    assert bad.returncode == 1
    assert "config/suites/x.npy: flipped" in bad.stderr
    for archive in ("", "nowhere.zip"):
        wrong = run(project, "verify", *(["--config", f"archive={archive}"] if archive else []))
        assert wrong.returncode == 1
        assert ("nowhere.zip: no such file" if archive else "which archive?") in wrong.stderr
        assert "Traceback" not in wrong.stderr + bad.stderr
