"""Archives against each other and against what their suites give here: what is the same, what rounding explains, what is not."""

import json
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, run
from shipped import LIMITS, shipped
from test_archive import archived, read, rewritten, whole_again, written  # noqa: F401  `archived` is a fixture

from worked_attention.archives.agreement import FAULTS, WORDS, agreement, around, staged
from worked_attention.archives.causes import CAUSES, differences
from worked_attention.archives.page import page
from worked_attention.archives.reading import Refused, opened
from worked_attention.archives.report import NOT_AGAIN, compared, faults, reproduced, stem, table
from worked_attention.archives.zips import check_archive
from worked_attention.cases.suites import load_suite
from worked_attention.files.formats import read_json
from worked_attention.pages.verdicts import REPEATED
from worked_attention.stages.whole import compute

CASE, WEIGHTS = "handworked/two_heads", "results/handworked/weights/two_heads/weights.npy"
TEMPLATE = str(ROOT / "workflow/report/agreement.html.jinja2")


def npy(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def changed(data: bytes, change: Callable[[np.ndarray], np.ndarray]) -> bytes:
    """The .npy file of the array in `data`, changed."""
    return npy(change(np.load(BytesIO(data))))


def last_bit(array: np.ndarray) -> np.ndarray:
    return np.nextafter(array, 1)


def off(array: np.ndarray) -> np.ndarray:
    return array + 1e-12


def without_others(path: Path) -> dict[str, bytes]:
    """The files of an archive, of the suite handworked alone."""
    return {name: data for name, data in read(path).items() if "tutorial" not in name}


@pytest.fixture(scope="module")
def files(archived: Path) -> dict[str, bytes]:  # noqa: F811
    return without_others(archived)


@pytest.fixture
def made(archived: Path, tmp_path: Path) -> Callable[[dict[str, bytes]], Path]:  # noqa: F811
    """made(files): an archive of them, whole as far as its own sums say."""
    start = Path(shutil.copy2(archived, tmp_path / archived.name))
    return lambda files: whole_again(start, files)


def report_on(path: Path) -> dict:
    with opened(path, LIMITS) as archive:
        return reproduced(archive, archive.environment)


def apart(report: dict) -> dict[str, str]:
    """The verdicts that are not `identical`, by case and array."""
    return {
        f"{key} {name}": found["verdict"]
        for key, arrays in report["cases"].items()
        for name, found in arrays.items()
        if found["verdict"] != "identical"
    }


# One array


def test_words_are_closed_tables() -> None:
    assert set(REPEATED) == set(WORDS) > set(FAULTS) == {"beyond", "missing", "unreadable"}


@pytest.mark.parametrize(
    ("suite", "name", "array", "change", "word"),
    [
        ("handworked", "two_heads", "weights", last_bit, "within"),
        ("handworked", "two_heads", "weights", off, "beyond"),
        ("handworked", "two_heads", "weights", lambda a: a.astype(np.float32), "beyond"),
        ("handworked", "two_heads", "weights", lambda a: a[..., :2], "beyond"),
        ("handworked", "two_heads", "weights", lambda a: a * np.nan, "beyond"),
        ("handworked", "two_heads", "x", last_bit, "beyond"),  # an input has no bound
        ("masks", "causal_top_left", "keep", lambda a: ~a, "beyond"),
        ("masks", "causal_top_left", "masked", lambda a: np.where(np.isinf(a), -1e9, a), "beyond"),  # blocked by another number
        ("precision", "bfloat16", "output", lambda a: a * a.dtype.type(2), "beyond"),
    ],
)
def test_verdicts_on_an_array(suite: str, name: str, array: str, change: Callable, word: str) -> None:
    case = shipped(suite)["cases"][name]
    ours = compute(case, ROOT / "config/suites")
    theirs = ours | {array: change(ours[array])}
    sides = {"theirs": (staged(case, theirs, theirs), {}), "here": (staged(case, ours, ours), {})}
    found = agreement(case, sides, lambda: ours)
    assert list(found) == [f"{stage}/{array}" for stage, names in case["arrays"].items() for array in names]
    assert {key.split("/")[1]: told["verdict"] for key, told in found.items() if told["verdict"] != "identical"} == {array: word}


def test_twice_the_bound_is_the_end_of_within() -> None:
    from worked_attention.referee.compare import own_gates

    case = shipped("handworked")["cases"]["two_heads"]
    ours = compute(case, ROOT / "config/suites")
    bound = own_gates(case, ours)["output"].bound
    for factor, word in ((1.99, "within"), (2.1, "beyond")):
        theirs = ours | {"output": ours["output"] + factor * bound}
        sides = {"theirs": (staged(case, theirs, theirs), {}), "here": (staged(case, ours, ours), {})}
        assert agreement(case, sides, lambda: ours)["outputs/output"]["verdict"] == word


def test_what_has_no_bound_is_undecided_and_never_within() -> None:
    case = shipped("handworked")["cases"]["two_heads"]
    ours = compute(case, ROOT / "config/suites")
    bare = staged(case, ours, ours)
    assert around(case, bare).keys() == ours.keys()
    del bare["parameters/w_q"]
    sides = {"A": (bare, {}), "B": (bare | {"outputs/output": off(bare["outputs/output"])}, {})}
    found = agreement(case, sides, lambda: around(case, bare))
    assert {key: told["verdict"] for key, told in found.items() if told["verdict"] != "identical"} == {
        "parameters/w_q": "missing",
        "outputs/output": "undecided",
    }


# A whole archive


def test_an_archive_is_reproduced(archived: Path) -> None:  # noqa: F811
    report = report_on(archived)
    assert report["counts"] == {"identical": sum(map(len, report["cases"].values()))} | dict.fromkeys(WORDS[1:], 0)
    assert len(report["cases"]) == 11 and report["counts"]["identical"] > 150
    assert faults(report) is None and report["environments"] == []
    assert report["notes"] == [NOT_AGAIN] and "comparisons" in NOT_AGAIN


LARGE = b"""cases:
  shared:
    sizes: {d_k: 4, d_v: 4}
    mask: {causal: top_left}
    parameters: {x: {normal: {seed: 1}}, w_q: {normal: {seed: 2}}, w_k: {normal: {seed: 3}}, w_v: {normal: {seed: 4}}}
"""


def test_of_large_cases_a_sample_of_rows_is_held(tmp_path: Path) -> None:
    suite = LARGE.replace(b"d_k: 4", b"Lq: 200, Lk: 200, d_model: 8, d_k: 4")
    (tmp_path / "large.yaml").write_bytes(suite)
    case = load_suite(tmp_path / "large.yaml", LIMITS)["cases"]["shared"]
    arrays = staged(case, *2 * [compute(case, tmp_path)])

    def archive(change: Callable[[np.ndarray], np.ndarray], at: int) -> Path:
        """An archive whose weights are changed in one row."""
        weights = arrays["weights/weights"].copy()
        weights[..., at, :] = change(weights[..., at, :])
        made = {f"results/large/{key.split('/')[0]}/shared/{key.split('/')[1]}.npy": npy(array) for key, array in arrays.items()}
        made |= {"results/large/weights/shared/weights.npy": npy(weights), "config/suites/large.yaml": suite}
        return written(tmp_path / f"{at}", made)

    tiny = LIMITS | {"max_whole_mb": 1e-3}
    with opened(archive(lambda a: a, 0), tiny) as one:
        tracemalloc.start()
        one.arrays(one.suites["large"]["cases"]["shared"])
        buffers = 400_000  # of the archive, the file and what is between them; Python 3.14 has larger ones
        assert tracemalloc.get_traced_memory()[1] < arrays["weights/weights"].nbytes + buffers, "no array of a large case is read whole"
        tracemalloc.stop()
    for at, word in ((199, {"beyond"}), (111, set())):  # the last row is in the sample
        with opened(archive(off, at), tiny) as one, opened(archive(lambda a: a, 0), tiny) as two:
            sampled, both = reproduced(one, {}), compared(two, one)
        for report in (sampled, both):
            assert set(apart(report).values()) - {"within"} == word
            assert len(report["cases"]["large/shared"]) >= len(arrays)
            assert any(note.startswith("large/shared: ") and "of its 200 rows" in note for note in report["notes"])


def test_what_is_changed_removed_and_added_is_told(files: dict, made: Callable) -> None:
    heads, scores = ("results/handworked/projections/two_heads/q_heads.npy", "results/handworked/scores/one_head/qk.npy")
    other = files | {
        WEIGHTS: changed(files[WEIGHTS], off),
        heads: changed(files[heads], last_bit),
        "results/handworked/weights/two_heads/added.npy": files[WEIGHTS],
        "results/handworked/outputs/nobody/output.npy": files[WEIGHTS],
        "results/handworked/weights/two_heads/below/weights.npy": files[WEIGHTS],
        "results/more.npy": files[WEIGHTS],
    }
    del other[scores]
    report = report_on(made(other))
    assert apart(report) == {
        "handworked/two_heads projections/q_heads": "within",
        "handworked/two_heads weights/weights": "beyond",
        "handworked/two_heads weights/added": "missing",
        "handworked/one_head scores/qk": "missing",
        "handworked/nobody -": "missing",
        "handworked/weights/two_heads/below/weights.npy -": "missing",
        "more.npy -": "missing",
    }
    assert faults(report) == "1 beyond, 5 missing"
    text = table(report)
    assert "handworked/two_heads weights/weights: beyond: differs by 1e-12 (" in text
    assert "handworked/one_head scores/qk: missing: not in mine-none-" in text
    html = page(TEMPLATE, report)
    assert "beyond its bound" in html and "handworked/one_head" in html and "not in mine-none-" in html
    assert json.dumps(report, allow_nan=False)


def test_an_archive_that_is_not_whole_says_so(archived: Path, files: dict) -> None:  # noqa: F811
    spoiled = rewritten(archived, files | {"looks.json": b"{}", WEIGHTS: changed(files[WEIGHTS], last_bit)})
    report = report_on(spoiled)
    assert apart(report) == {"handworked/two_heads weights/weights": "within"}
    damage = report["archives"][archived.name]["damage"]
    assert f"{WEIGHTS}: flipped, its sha256 is not that of SHA256SUMS" in damage and "looks.json: flipped" in " ".join(damage)
    assert faults(report) == f"{archived.name} is not whole"
    assert "looks.json: flipped" in page(TEMPLATE, report)


def test_two_archives(archived: Path, files: dict, made: Callable) -> None:  # noqa: F811
    other = made(files | {WEIGHTS: changed(files[WEIGHTS], last_bit), "looks.json": b"{}"})
    with opened(archived, LIMITS) as one, opened(other, LIMITS) as two:
        forth, back = compared(one, two), compared(two, one)
    for report in (forth, back):
        assert report["counts"]["within"] == 1 and report["cases"][CASE]["weights/weights"]["verdict"] == "within"
        assert report["counts"]["missing"] > 40 and "missing" in faults(report)  # tutorial is in one alone
        assert {"looks.json", "manifest.json"} <= set(report["files"])
    with opened(archived, LIMITS) as one, opened(archived, LIMITS) as again:
        same = compared(one, again)
    assert faults(same) is None and same["files"] == [] and set(apart(same)) == set()


def test_a_case_that_says_other_things_in_the_two_is_told(archived: Path, files: dict, made: Callable) -> None:  # noqa: F811
    suite = "config/suites/handworked.yaml"
    other = made(files | {suite: files[suite] + b"\n  another:\n    title: Another\n    extends: two_heads\n    scale: none\n"})
    edited = made(files | {suite: files[suite].replace(b"title:", b"title: My", 1)})
    with opened(other, LIMITS) as one, opened(edited, LIMITS) as two:
        report = compared(one, two)
    assert all(found["verdict"] == "missing" for found in report["cases"]["handworked/another"].values())
    assert any(note.endswith("the two suites say other things of it") for note in report["notes"])


# What strangers may write


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (npy(np.array([{}], dtype=object)), "holds Python objects"),
        (npy(np.asfortranarray(np.eye(3)[:2])), "is in Fortran's order"),
        (npy(np.eye(2)).replace(b"(2, 2)", b"(9, 9)"), "cannot reshape array of size 4"),
        (npy(np.eye(2)).replace(b"(2, 2)", b"(2" + b"0" * 3 + b")"), None),
        (npy(np.eye(2)).replace(b"(2, 2), ", b"(-2, 2),"), "has the shape [-2, 2]"),
        (b"", None),
        (b"\x93NUMPY\x01\x00\xff\xff{", None),
        (npy(np.eye(2)).replace(b"'<f8'", b"'<Z8'"), None),
        (b"PK\x03\x04", None),
    ],
)
def test_an_array_that_cannot_be_read(files: dict, made: Callable, data: bytes, says: str | None) -> None:
    report = report_on(made(files | {WEIGHTS: data}))
    assert apart(report) == {"handworked/two_heads weights/weights": "unreadable"}
    reason = report["cases"][CASE]["weights/weights"]["reason"]
    assert "\n" not in reason and (says is None or says in reason)
    assert faults(report) == "1 unreadable"


def refusal(path: Path) -> str:
    with pytest.raises(Refused) as refused:
        report_on(path)
    text = str(refused.value)
    assert all(line.isprintable() and line for line in text.split("\n"))
    return text


def zipped(path: Path, files: dict[str, bytes], **how) -> Path:
    with zipfile.ZipFile(path, "w", **how) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_archives_that_are_refused(files: dict, made: Callable, tmp_path: Path) -> None:
    suite = "config/suites/handworked.yaml"
    assert "no such file" in refusal(tmp_path / "none.zip")
    (tmp_path / "text.zip").write_text("no zip", "utf-8")
    assert "text.zip: damaged, or not a zip" in refusal(tmp_path / "text.zip")
    assert "claim more than it holds" in refusal(zipped(tmp_path / "bomb.zip", {WEIGHTS: bytes(10**7)}, compression=zipfile.ZIP_DEFLATED))
    for name in ("../evil.yaml", "/tmp/evil.yaml", "config/suites/../../../evil.yaml"):
        assert f"{name}: unsafe name" in refusal(zipped(tmp_path / "evil.zip", {name: b""}))
        assert not list(tmp_path.rglob("evil.yaml"))
    assert "has no suites in config/suites/" in refusal(made({"results/x.json": b""}))
    both = refusal(zipped(tmp_path / "both.zip", {"config/suites": b"", "config/suites/x.yaml": b""}))
    assert "both.zip: config/suites/x.yaml cannot be unpacked" in both
    for said, line in {
        b"cases: [": "config/suites/handworked.yaml:2: not YAML",
        b"\xff": "byte 0xff is not UTF-8",
        b"cases: {a: {parameters: {x: {normal: {seed: 1}}}, softcup: 1}}": "case a: softcup: unknown key",
        b"cases: {a: {parameters: {x: {file: /etc/passwd}}}}": "'/etc/passwd' lies outside the suites' folder",
        b"cases: {a: {parameters: {x: {file: ../../../etc/passwd}}}}": "lies outside the suites' folder",
        b"cases: {a: {parameters: {x: {file: none.npy}}}}": "is not there",
    }.items():
        told = refusal(made(files | {suite: said}))
        assert line in told, told
        assert told.startswith("mine-none-") and told.splitlines()[-1].endswith("compute with the workflow in its source/")
    huge = b"cases: {a: {dims: {L: 100000, d_model: 100000}, parameters: {x: {grid: {}}}}}"
    assert "mine-none-" in refusal(made(files | {suite: huge}))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"[" * 100_000, b"\xff", b'{"thread_pools": 3, "numpy": [], "git": "x", "packages": {"a": {"b": 1}}}']
)
def test_an_environment_that_says_nothing(archived: Path, files: dict, made: Callable, data: bytes) -> None:  # noqa: F811
    with opened(made(files | {"results/environment.json": data}), LIMITS) as archive, opened(archived, LIMITS) as other:
        report = reproduced(archive, other.environment)
    assert faults(report) is None
    assert report["environments"][0]["what"] == "BLAS kernels"
    assert page(TEMPLATE, report) and table(report)


def test_a_renamed_archive_is_no_damaged_one(archived: Path, tmp_path: Path) -> None:  # noqa: F811
    """Two archives of one digest have one name, and cannot lie beside each other by it; what is flipped is found all the same."""
    mine, flipped = tmp_path / "mine.zip", tmp_path / "flipped.zip"
    shutil.copy(archived, mine)
    data = bytearray(archived.read_bytes())
    data[data.index(b"NUMPY") + 200] ^= 1
    flipped.write_bytes(data)
    with opened(mine, LIMITS) as one, opened(archived, LIMITS) as other, opened(flipped, LIMITS) as wrong:
        report, bad = compared(one, other), compared(wrong, other)
    assert faults(report) is None and report["archives"]["mine.zip"]["damage"] == []
    assert report["notes"] == [f"mine.zip: renamed, by its manifest it is {archived.name}"]
    assert report["notes"][0] in table(report) and "It is not whole" not in page(TEMPLATE, report)
    assert "flipped.zip is not whole" in faults(bad)


def test_names_of_folders_are_tame() -> None:
    assert stem(Path("a/b c;d\n.zip")) == "b_c_d_"
    assert stem(Path("all-2026-12-01-0123456789ab.zip")) == "all-2026-12-01-0123456789ab"


# Causes


ENVIRONMENT = {
    "format": 1,
    "python": {"version": "3.12.1", "implementation": "CPython"},
    "packages": {"numpy": "2.4.6", "jinja2": "3.1.6"},
    "system": {"libc": "glibc 2.36", "machine": "x86_64"},
    "cpu": {"model": "A", "flags": ["avx", "sse"]},
    "numpy": {"simd": {"baseline": ["X86_V2"], "found": ["X86_V3", "X86_V4"]}},
    "thread_pools": [{"user_api": "blas", "architecture": "SkylakeX", "version": "0.3.31", "num_threads": 1}, {"user_api": "openmp"}],
    "variables": {"OPENBLAS_CORETYPE": None, "MKL_CBWR": None},
    "git": {"commit": "a" * 40, "code_dirty": False},
}


def test_the_likeliest_cause_comes_first() -> None:
    assert differences(ENVIRONMENT, ENVIRONMENT, beyond=False) == []
    other = json.loads(json.dumps(ENVIRONMENT))
    other["packages"] |= {"jinja2": "3.1.7", "numpy": "2.5.0", "black": "26.1"}
    other["cpu"]["flags"].append("f" * 400)
    other["git"]["code_dirty"] = True
    other["numpy"]["simd"]["found"] = ["X86_V3"]
    other["variables"]["OPENBLAS_CORETYPE"] = "Haswell"
    other["thread_pools"][0]["architecture"] = "Haswell"
    told = differences(ENVIRONMENT, other, beyond=False)
    assert told == [
        ("BLAS kernels", "SkylakeX", "Haswell"),
        ("SIMD extensions that NumPy uses", "found X86_V3, X86_V4", "found X86_V3"),
        ("NumPy", "2.4.6", "2.5.0"),
        ("variables that change last bits", "OPENBLAS_CORETYPE -", "OPENBLAS_CORETYPE Haswell"),
        ("the workflow's code", "aaaaaaaaaaaa", "aaaaaaaaaaaa with changes"),
        ("other packages", "jinja2 3.1.6", "black 26.1; jinja2 3.1.7"),
        ("cpu.flags", "-", "f" * 299 + "…"),
    ]
    assert differences(ENVIRONMENT, other, beyond=True)[0][0] == "the workflow's code"  # for rounding makes no such difference
    assert list(CAUSES)[0] == "BLAS kernels"


# The targets


def test_reproduce(archived: Path, files: dict, made: Callable, tmp_path: Path) -> None:  # noqa: F811
    project = archived.parents[2]
    spoiled = made(files | {WEIGHTS: changed(files[WEIGHTS], off)})
    done = run(project, "reproduce", "--config", f"archive={spoiled}", env={"OPENBLAS_CORETYPE": "Prescott"}, cores=1)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "handworked/two_heads weights/weights: beyond: differs by 1e-12 (" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(f"Error: {spoiled.name} is not reproduced: 1 beyond")
    folder = project / "results/reproduce" / spoiled.stem
    report = read_json(folder / "reproduction.json")
    assert report["format"] == 1 and report["counts"]["beyond"] == 1 and report["sides"] == [spoiled.name, "here"]
    assert (folder / "reproduction.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert any("OPENBLAS_CORETYPE" in cause["said"]["here"] for cause in report["environments"])


def test_verify_and_compare(archived: Path) -> None:  # noqa: F811
    project, name = archived.parents[2], archived.stem
    done = run(project, "verify", "compare", "--config", f"archive={archived}", f"archives=[{archived},{archived}]", cores=1)
    assert done.returncode == 0, done.stderr
    told = check_archive(archived)
    assert f"whole: {len(told.hashes)} files, digest {told.manifest['digest']}" in done.stdout.splitlines()
    report = read_json(project / "results/compare" / f"{name}--{name}" / "comparison.json")
    assert f"{report['counts']['identical']} arrays of 11 cases: {report['counts']['identical']} identical" in done.stdout.splitlines()
    assert report["command"] == "compare" and report["environments"] == []
