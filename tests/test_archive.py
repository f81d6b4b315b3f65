"""Archives: the same state gives the same bytes, the digest covers inputs and numbers, and nothing that is changed passes unseen."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, run

from worked_attention.archives.contents import LONGEST, Lost, results, title
from worked_attention.archives.sources import address, changed, committed, workflow_files
from worked_attention.archives.zips import Checked, as_json, check_archive, digest, write_archive, write_zip
from worked_attention.files.formats import write_array
from worked_attention.files.sums import sums

WEIGHTS = "results/small/weights/only/weights.npy"
TEXTS = {
    "config.json": b'{"suites": ["small"]}\n',
    "looks.json": b'{"digits": 3}\n',
    "config/config.yaml": b"suites: all\n",
    "config/suites/small.yaml": b"cases: {only: {parameters: {x: [[1]]}}}\n",
    "config/suites/x.npy": b"a parameter file",
    "results/environment.json": b'{"python": "3"}\n',
    "results/small/figures/only.svg": b"<svg/>",
    "results/small/parameters/only/case.json": b'{"name": "only"}\n',
    "results/small/parameters/only/x.npy": b"\x00\x01",
    "results/small/references/torch/sdpa.npz": b"PK",
    "results/small/weights/only/stage.json": b"{}\n",
    WEIGHTS: b"\x93NUMPY" + bytes(range(256)),
}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    """An archive of `files`, as ours are, but for what its manifest says."""
    return write_archive(folder, files, lambda found: ({"name": f"small-{found[:12]}", "digest": found}, {"README.md": b"read me\n"}))


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


def whole_again(path: Path, files: dict[str, bytes]) -> Path:
    """An archive of other `files` with sums, digest and name of its own, as somebody who means it so would write."""
    files = {name: data for name, data in files.items() if name not in ("SHA256SUMS", "manifest.json")}
    manifest = json.loads(read(path)["manifest.json"])
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest |= {"digest": digest(hashes), "name": f"mine-none-{digest(hashes)[:12]}"}
    files["manifest.json"] = as_json(manifest)
    files["SHA256SUMS"] = sums(hashes | {"manifest.json": hashlib.sha256(files["manifest.json"]).hexdigest()}).encode()
    return rewritten(path, files, f"{manifest['name']}.zip")


def findings(path: Path) -> list[str]:
    lines = check_archive(path).findings
    assert all("\n" not in line and line for line in lines)
    return lines


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return written(tmp_path / "out", TEXTS)


# The same state gives the same bytes


def test_what_is_written(whole: Path) -> None:
    files = read(whole)
    assert set(files) == {*TEXTS, "README.md", "manifest.json", "SHA256SUMS"}
    assert {name: files[name] for name in TEXTS} == TEXTS
    manifest = json.loads(files["manifest.json"])
    assert manifest["format"] == 2 and whole.name == f"{manifest['name']}.zip"
    lines = dict(line.split("  ")[::-1] for line in files["SHA256SUMS"].decode().splitlines())
    assert lines == {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != "SHA256SUMS"}
    assert check_archive(whole) == Checked([], lines, manifest)
    assert os.listdir(whole.parent) == [whole.name]


def test_same_state_same_bytes(whole: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in reversed(TEXTS):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(TEXTS[name])
        os.utime(tree / name, (1e9, 1e9))
        (tree / name).chmod(0o700)
    mask = os.umask(0o077)
    try:
        again = written(tmp_path / "again", {name: tree / name for name in reversed(TEXTS)})
    finally:
        os.umask(mask)
    assert again.name == whole.name
    assert again.read_bytes() == whole.read_bytes()


NOT_COUNTED = [
    *("looks.json", "results/environment.json", "results/small/figures/only.svg", "results/small/weights/only/stage.json"),
    *("results/small/references/torch/sdpa.npz", "results/small/parameters/only/case.json", "config/config.yaml"),
]


@pytest.mark.parametrize("name", NOT_COUNTED)
def test_digest_leaves_out(whole: Path, tmp_path: Path, name: str) -> None:
    other = written(tmp_path / "second", TEXTS | {name: b"other"})
    assert other.name == whole.name
    assert other.read_bytes() != whole.read_bytes()


@pytest.mark.parametrize("name", [WEIGHTS, "config.json", "config/suites/small.yaml", "config/suites/x.npy", "results/small/new.npy"])
def test_digest_covers(whole: Path, tmp_path: Path, name: str) -> None:
    assert written(tmp_path / "second", TEXTS | {name: b"other"}).name != whole.name


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "C:out", "a\\..\\out", "a\nb", "a//b"])
def test_a_name_that_no_archive_takes(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="has a name that no archive takes; rename the file"):
        written(tmp_path, {name: b""})
    assert not list(tmp_path.iterdir())


def test_names_of_suites_stay_short() -> None:
    many = [f"suite_{i}" for i in range(20)]
    assert title(many, every=True) == "all"
    assert title(["masks", "softmax"], every=False) == "masks-softmax"
    assert title(many, every=False) == "20-suites"
    assert all(len(title(many[:n], every=False)) <= LONGEST for n in range(1, 20))


# What is changed is named


def test_flipped_missing_added_are_each_named(whole: Path) -> None:
    files = read(whole)
    files[WEIGHTS] = files[WEIGHTS][:-1] + b"\x00"
    files["looks.json"] += b" "
    del files["results/environment.json"]
    files["results/small/extra.npy"] = b"extra"
    assert findings(rewritten(whole, files)) == [
        "looks.json: flipped, its sha256 is not that of SHA256SUMS",
        f"{WEIGHTS}: flipped, its sha256 is not that of SHA256SUMS",
        "results/environment.json: missing from the archive",
        "results/small/extra.npy: added, SHA256SUMS does not know it",
    ]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", [WEIGHTS, "manifest.json", "SHA256SUMS"])
def test_duplicate(whole: Path, name: str) -> None:
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr(name, read(whole)[name])
    assert f"{name}: duplicated, 2 times in the archive" in findings(whole)


def test_every_flipped_byte_is_reported(tmp_path: Path) -> None:
    whole = written(tmp_path, {"results/a.npy": b"abc"})
    data = whole.read_bytes()
    assert findings(whole) == []
    for i in range(len(data)):
        flip = (1 << i % 8, 0xFF)[i % 2]
        whole.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
        assert findings(whole), f"byte {i} of {len(data)}, flipped by {flip}"


def test_every_cut_and_every_addition_is_reported(tmp_path: Path) -> None:
    whole = written(tmp_path, {"results/a.npy": b"abc"})
    data = whole.read_bytes()
    for other in [*(data[:i] for i in range(0, len(data), 11)), data[1:], data + b"\0", b"\0" + data, data + data]:
        whole.write_bytes(other)
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


def test_a_full_disk_is_no_damage(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("worked_attention.archives.zips.shutil.copyfileobj", full)
    (finding,) = check_archive(whole).findings
    assert finding.startswith(f"{whole.name}: cannot be checked, for there is no room for a copy in ")


def test_renamed(whole: Path) -> None:
    other = whole.rename(whole.with_name("mine.zip"))
    assert findings(other) == [f"mine.zip: renamed, by its manifest it is {whole.name}"]


def manifest(**changes) -> bytes:
    return json.dumps({"format": 2, "name": "x", "digest": digest({}), **changes}).encode()


def of(text: bytes) -> bytes:
    """SHA256SUMS of a manifest alone."""
    return sums({"manifest.json": hashlib.sha256(text).hexdigest()}).encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "manifest.json: missing"),
        (b"not JSON", "manifest.json: damaged"),
        (b"\xff\xfe", "manifest.json: damaged"),
        (b"[" * 100_000, "manifest.json: damaged"),
        (b"[]", "should hold format, name and digest"),
        (b'{"format": 2}', "should hold format, name and digest"),
        (manifest(format=1), "has format 1; this program reads format 2"),
        (manifest(name=["x"]), "should hold name and digest as text"),
        (manifest(digest="0" * 64), "flipped, its digest does not follow"),
        (manifest(name="y\n"), r"x.zip: renamed, by its manifest it is 'y\n'.zip"),
        (manifest(), "flipped outside its files"),  # for ours are written otherwise
    ],
)
def test_manifest_is_wrong(tmp_path: Path, text: bytes | None, says: str) -> None:
    files = {"SHA256SUMS": b""} if text is None else {"manifest.json": text, "SHA256SUMS": of(text)}
    path = rewritten(tmp_path / "x.zip", files)
    if says == "flipped outside its files":
        assert findings(path) == []  # but for its spelling nothing is wrong with it, and that is under the sum
    else:
        assert any(says in line for line in findings(path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "SHA256SUMS: missing, so nothing can be checked"),
        (b"abc  a\n", "SHA256SUMS: damaged (line 1 should be a sha256"),
        (2 * (b"0" * 64 + b"  a\n"), "SHA256SUMS: damaged (line 2 should be a sha256, two spaces and a name, each name once)"),
        (b"\xff", "SHA256SUMS: damaged ("),
        (b"0" * 64 + b"  a\n", "a: missing"),
        (b"", "manifest.json: SHA256SUMS does not know it"),
        (
            of(manifest()).replace(b"\n", b"\r\n"),
            "x.zip: flipped outside its files, in the zip's own fields or in the spelling of SHA256SUMS",
        ),
    ],
)
def test_sums_are_wrong(tmp_path: Path, text: bytes | None, says: str) -> None:
    path = rewritten(tmp_path / "x.zip", {"manifest.json": manifest()} | ({} if text is None else {"SHA256SUMS": text}))
    assert any(line.startswith(says) for line in findings(path)), findings(path)


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "C:out", "a\\..\\out", "a/", "a\nb"])
def test_unsafe_names(tmp_path: Path, name: str) -> None:
    (line,) = findings(rewritten(tmp_path / "x.zip", {name: b"out"}))
    assert "unsafe name, it points out of the archive or is not plain text" in line


def test_links(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        link = zipfile.ZipInfo("config/suites/x.yaml")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    assert findings(tmp_path / "x.zip") == ["config/suites/x.yaml: is no plain file"]


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", bytes(5_000_000))
    assert findings(path) == ["bomb.zip: its files claim more than it holds, or are compressed; no archive of ours is"]


# Where the workflow comes from


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_commit_date_address_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-03-01T01:30:00+0200")

    def git(*words: str) -> str:
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, encoding="utf-8").stdout.strip()

    assert committed(tmp_path) == (None, None) and address(tmp_path) is None
    git("init")
    assert committed(tmp_path) == (None, None) and address(tmp_path) is None
    for name in ("Snakefile", "config/suites/a.yaml", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, "utf-8")
    git("add", "Snakefile", "config")
    git("commit", "-m", "first")
    assert committed(tmp_path) == (git("rev-parse", "HEAD"), "2026-02-28T23:30:00+00:00")
    assert changed(tmp_path, "config") == []
    (tmp_path / "Snakefile").write_text("other", "utf-8")
    (tmp_path / "config/suites/a.yaml").write_text("other", "utf-8")
    (tmp_path / "config/suites/b c.yaml").touch()
    assert changed(tmp_path, "config") == ["config/suites/a.yaml", "config/suites/b c.yaml"]
    assert workflow_files(tmp_path, as_committed=True) == {"Snakefile": b"Snakefile", "config/suites/a.yaml": b"config/suites/a.yaml"}
    lying = workflow_files(tmp_path, as_committed=False)
    assert set(lying) == {"Snakefile", "config/suites/a.yaml", "config/suites/b c.yaml"}  # and no notes
    assert lying["Snakefile"].read_text("utf-8") == "other"
    git("remote", "add", "origin", str(tmp_path))
    for told, said in {
        str(tmp_path): None,
        "../elsewhere": None,
        f"file://{tmp_path}": None,
        "https://example.org/a/b.git": "https://example.org/a/b.git",
        "https://name:secret@example.org/a/b": "https://example.org/a/b",
        "ssh://git@example.org:2222/a/b": "ssh://example.org:2222/a/b",
        "git@example.org:a/b.git": "ssh://example.org/a/b.git",
        "C:/me/b": None,
    }.items():
        git("remote", "set-url", "origin", told)
        assert address(tmp_path) == said, told


# What a run archives: of the two suites of the articles


@pytest.fixture(scope="module")
def archived(built: Path, once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The archive of the articles' suites, as the target writes it, in a copy of their project."""

    def make(folder: Path) -> None:
        project = Path(shutil.copytree(built, folder / "project"))
        (project / "results/handworked/weights/removed").mkdir()
        np.save(project / "results/handworked/weights/removed/weights.npy", np.eye(2))  # of a case that there is no more
        made = run(project, "archive", cores=1)
        assert made.returncode == 0, made.stderr
        (folder / "said.txt").write_text(made.stdout, "utf-8")

    folder = once("archived", make)
    path = folder / "project" / (folder / "said.txt").read_text("utf-8").splitlines()[-1]
    assert path.is_file()
    return path


def test_a_whole_archive(archived: Path, built: Path) -> None:
    checked = check_archive(archived)
    assert checked.findings == []
    assert archived.name == f"all-none-{checked.manifest['digest'][:12]}.zip"  # a copy without git
    files = read(archived)
    assert {name for name in files if "/" not in name} == {
        *("README.md", "SHA256SUMS", "config.json", "looks.json", "manifest.json", "ro-crate-metadata.json")
    }
    there = {f"results/{p.relative_to(built / 'results').as_posix()}" for p in (built / "results").rglob("*") if p.is_file()}
    left_out = {name for name in there if name.endswith((".snakemake_timestamp", ".log", "libraries.json"))} | {"results/README.md"}
    assert {name for name in files if name.startswith("results/")} == there - left_out
    assert {"config/questions.yaml", "config/counted.yaml", "config/suites/tutorial.yaml", "envs/requirements.txt"} <= set(files)
    for name in ("Snakefile", "workflow/rules/archive.smk", "workflow/scripts/worked_attention/archives/zips.py"):
        assert files[f"source/{name}"] == (ROOT / name).read_bytes()
    assert json.loads(files["config.json"]).keys() == {"suites", "gates", "limits"}
    for text in (str(built), str(ROOT), str(Path.home())):
        assert text == "/" or not any(text.encode() in data for name, data in files.items() if not name.startswith("source/"))


def test_sums_hold_without_us(archived: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archived) as archive:
        archive.extractall(tmp_path)
    if not shutil.which("sha256sum"):
        pytest.skip("no sha256sum")
    good = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True)
    assert good.returncode == 0, good.stderr
    (tmp_path / "results/summary.json").write_text("{}", "utf-8")
    bad = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True)
    assert bad.returncode and "results/summary.json: FAILED" in bad.stdout


def collected(project: Path) -> dict:
    glance = [f"results/{name}" for name in ("summary.json", "cases.csv")]
    references = {"handworked": {"torch": ["mha"]}, "tutorial": {}}
    return results(project, ["handworked", "tutorial"], glance, references, ["padding"] if (project / "results/questions").exists() else [])


LOSSES = {
    "results/handworked/weights/two_heads/weights.npy": "results/handworked/weights has lost two_heads/weights.npy",
    "results/tutorial/weights/figure_1_2/stage.json": "results/tutorial/weights has lost figure_1_2/stage.json",
    "results/handworked/comparison/two_heads.json": "results/handworked/comparison has lost two_heads.json",
    "results/handworked/pages/two_heads.md": "results/handworked/pages has lost two_heads.md",
    "results/handworked/figures/two_heads.png": "results/handworked/figures has lost two_heads.png",
    "results/handworked/overview.svg": "results/handworked has lost overview.svg",
    "results/handworked/truth/truth.npz": "results/handworked/truth has lost truth.npz",
    "results/handworked/references/torch/mha.npz": "results/handworked/references/torch has lost mha.npz",
    "results/handworked/parameters/suite.json": "results/handworked/parameters has lost suite.json( or a case.json)?",
    "results/summary.json": "results has lost summary.json",
}


def test_what_is_lost_is_named(built: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(built / "results", project / "results")
    shutil.rmtree(project / "results/questions", ignore_errors=True)
    assert len(collected(project)) > 300
    for name, said in LOSSES.items():
        data = (project / name).read_bytes()
        for left in (None, b"", data[: len(data) // 2], data[:-1]):
            (project / name).unlink() if left is None else (project / name).write_bytes(left)
            with pytest.raises(Lost, match=f"^{said}, so nothing was archived; delete that (file|folder), and"):
                collected(project)
        (project / name).write_bytes(data)
    collected(project)
    with pytest.raises(Lost, match="results/questions has lost no_such.html, so nothing was archived; delete that folder, and"):
        results(project, [], [], {}, ["no_such"])


def test_two_runs_give_the_same_archive_and_a_loss_is_an_error(archived: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(archived.parents[2], tmp_path / "elsewhere"))
    lost = project / "results/handworked/pages/two_heads.html"
    page = lost.read_bytes()
    lost.unlink()
    bad = run(project, "archive", cores=1)
    assert bad.returncode == 1 and "Traceback" not in bad.stderr
    assert bad.stderr.splitlines()[-1].startswith("Error: results/handworked/pages has lost two_heads.html, so nothing was archived;")
    lost.write_bytes(page)
    (project / "results/archive" / archived.name).unlink()
    write_array(project / "results/handworked/scores/removed/qk.npy", np.eye(2))
    good = run(project, "archive", cores=1)
    assert good.returncode == 0, good.stderr
    assert (project / "results/archive" / archived.name).read_bytes() == archived.read_bytes()
    shutil.rmtree(project / "results/handworked/comparison")
    anew = run(project, "archive", cores=1)
    assert anew.returncode == 0, anew.stderr
    assert (project / "results/archive" / archived.name).read_bytes() == archived.read_bytes()


# RO-Crate


def test_the_crate_keeps_to_its_profile(archived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = pytest.importorskip("rocrate_validator.services", reason="needs roc-validator")
    from rocrate_validator.utils.http import HttpRequester

    context = json.loads((ROOT / "tests/data/ro_crate_1_1_context.json").read_text("utf-8"))  # the terms of it that we use

    class Answer:
        status_code, headers, from_cache = 200, {"Content-Type": "application/ld+json"}, True

        def json(self) -> dict:
            return context

    def get(self, url: str, **_) -> Answer:
        assert url == context["@id"]  # nothing else is asked of the network
        return Answer()

    monkeypatch.setattr(HttpRequester, "get", get, raising=False)
    with zipfile.ZipFile(archived) as archive:
        archive.extractall(tmp_path)

    def issues() -> list[str]:
        settings = {"rocrate_uri": str(tmp_path), "profile_identifier": "workflow-run-crate-0.5"}
        return [issue.message for issue in services.validate(services.ValidationSettings(**settings)).get_issues()]

    assert issues() == []
    described = tmp_path / "ro-crate-metadata.json"
    whole = described.read_text("utf-8")
    described.write_text(whole.replace('"CreateAction"', '"CreativeWork"').replace('"instrument"', '"about"'), "utf-8")
    assert any("MUST reference the root data entity's mainEntity as its instrument" in issue for issue in issues())
