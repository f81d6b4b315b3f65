"""Golden vectors: the files hold the very numbers, ONNX reproduces its tests, readers in C, JavaScript and Rust recompute all."""

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from conftest import ROOT, contents, run
from safetensors import safe_open
from safetensors.numpy import save

from worked_attention import __version__
from worked_attention.cases.suites import load_suite
from worked_attention.command import main
from worked_attention.files.formats import read_json
from worked_attention.files.golden import NOT_INSTALLED, export_suite, inexpressible
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute

SUITES = sorted(path.stem for path in (ROOT / "config" / "suites").glob("*.yaml"))
FILES = {"manifest.json", "README.md", "golden.safetensors", "SHA256SUMS"}
READERS = ROOT / "examples" / "readers"


def load(path: Path) -> dict:
    return load_suite(path, {"max_array_mb": 256})


def export(root: Path, path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Export the suite at `path` to `root` as the rule does. Returns the arrays of every case."""
    suite = load(path)
    with np.errstate(all="ignore"):
        arrays = {name: compute(case, path.parent) for name, case in suite["cases"].items()}
    export_suite(root, suite, ((case, arrays[name]) for name, case in suite["cases"].items()))
    return arrays


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict]]:
    """{suite: (folder, arrays by case)} of every suite."""
    root = tmp_path_factory.mktemp("export")
    return {suite: (root / suite, export(root / suite, ROOT / "config" / "suites" / f"{suite}.yaml")) for suite in SUITES}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled C reader."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("reader") / "read_golden"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run([compiler, *flags, "-o", program, READERS / "read_golden.c", "-lm"], check=True)
    return program


@pytest.fixture(scope="module")
def node() -> list[str]:
    """The command that runs the JavaScript reader."""
    if not shutil.which("node"):
        pytest.skip("there is no Node")
    return ["node", str(READERS / "read_golden.mjs")]


@pytest.fixture(scope="module")
def rust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled reader in Rust."""
    if not shutil.which("rustc"):
        pytest.skip("there is no Rust compiler")
    program = tmp_path_factory.mktemp("rust") / "read_golden"
    flags = ["--edition", "2021", "-O", "-D", "warnings"]
    subprocess.run(["rustc", *flags, "-o", program, READERS / "read_golden.rs"], check=True)
    return program


def call(*command: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, encoding="utf-8", errors="replace", timeout=60)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    with safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict


# The plain form


@pytest.mark.parametrize("suite", SUITES)
def test_plain_files_hold_the_very_numbers(exported: dict, suite: str):
    root, arrays = exported[suite]
    manifest = read_json(root / "manifest.json")
    assert list(manifest["cases"]) == list(arrays)
    for name, entry in manifest["cases"].items():
        assert set(entry["arrays"]) == set(arrays[name])
        assert {"format": 1, "suite": suite, "case": name, **entry} == {
            **read_json(root / "plain" / name / "case.json"),
            "onnx": entry["onnx"],
        }
        for array, said in entry["arrays"].items():
            data = (root / said["file"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == said["sha256"]
            ours, read = arrays[name][array], np.load(root / said["file"], allow_pickle=False)
            assert said["shape"] == list(read.shape) and said["dtype"] == ours.dtype.name and len(said["axes"]) == read.ndim
            assert (read.view(bfloat16) if said["dtype"] == "bfloat16" else read).tobytes() == ours.tobytes()


def test_nothing_else_is_written(exported: dict):
    for root, _ in exported.values():
        entries = read_json(root / "manifest.json")["cases"].values()
        named = {said["file"] for entry in entries for said in entry["arrays"].values()}
        named |= {f"plain/{case}/case.json" for case in read_json(root / "manifest.json")["cases"]} | FILES
        assert {path for path in contents(root) if not path.startswith("onnx/")} == named
        folders = {entry["onnx"]["folder"] for entry in entries if "folder" in entry["onnx"]}
        assert {path.relative_to(root).as_posix() for path in root.glob("onnx/*")} == folders


def test_one_file_holds_the_same_numbers(exported: dict):
    for root, arrays in exported.values():
        said = read_json(root / "manifest.json")["tensors"]
        data = (root / said["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == said["sha256"]
        tensors = read_tensors(root / said["file"])
        assert set(tensors) == {f"{case}/{name}" for case, made in arrays.items() for name in made} and len(tensors) == said["tensors"]
        for case, made in arrays.items():
            for name, array in made.items():
                assert tensors[f"{case}/{name}"].dtype == array.dtype and tensors[f"{case}/{name}"].tobytes() == array.tobytes()


def test_sums_are_those_of_sha256sum(exported: dict):
    root, _ = exported["handworked"]
    done = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    named = {line.split("  ")[1] for line in (root / "SHA256SUMS").read_text("utf-8").splitlines()}
    assert named == set(contents(root)) - {"SHA256SUMS"}


def test_a_released_set_is_compared(copy: Path):
    def check() -> Result:
        return CliRunner().invoke(main, ["export", str(copy.parent), "--suite", "handworked", "--check"])

    done = check()
    assert done.exit_code == 0 and done.stdout == f"{copy}: no differences in 6 cases\n"
    tensors = read_tensors(copy / "golden.safetensors")
    changed = dict(tensors, **{"two_heads/output": tensors["two_heads/output"] + [0, 0, 0, 1e-3]})
    del changed["one_head/q"]
    (copy / "golden.safetensors").write_bytes(save(changed | {"three_heads/x": np.ones(2)}))
    done = check()
    assert done.exit_code == 1 and done.stdout.splitlines()[:-1] == [
        "handworked/two_heads/output: 3 of 12 numbers differ, by 0.001 at most",
        "handworked/one_head/q: is missing in the released set",
        "handworked/three_heads/x: is in the released set alone",
    ]
    (copy / "golden.safetensors").write_bytes(save(dict(tensors, **{"two_heads/output": tensors["two_heads/output"] * [np.nan, 1, 1, 1]})))
    assert check().stdout.splitlines()[0] == "handworked/two_heads/output: 3 of 12 numbers differ, by inf at most"
    (copy / "golden.safetensors").write_bytes(b"nothing")
    done = check()
    assert done.exit_code == 2 and "is no exported suite (golden.safetensors is damaged" in done.stderr


# The ONNX form


@pytest.mark.parametrize("suite", SUITES)
def test_onnx_reproduces_its_tests(exported: dict, suite: str):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    root, _ = exported[suite]
    for name, entry in read_json(root / "manifest.json")["cases"].items():
        if "reason" in entry["onnx"]:
            continue
        folder = root / entry["onnx"]["folder"]
        model = onnx.load(folder / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        inputs, expected = (
            [
                onnx.numpy_helper.to_array(onnx.load_tensor(folder / "test_data_set_0" / f"{kind}_{i}.pb"))
                for i in range(len(entry["onnx"][kind + "s"]))
            ]
            for kind in ("input", "output")
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = ReferenceEvaluator(model).run(None, dict(zip(entry["onnx"]["inputs"], inputs, strict=True)))
        for ours, theirs in zip(expected, outputs, strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            largest = max(1.0, np.abs(ours[np.isfinite(ours)]).max(initial=0))
            np.testing.assert_allclose(theirs, ours, rtol=0, atol=entry["tolerance"] * largest, err_msg=f"{suite}/{name}")


def test_most_cases_have_an_onnx_test(exported: dict):
    pytest.importorskip("onnx")
    entries = [entry["onnx"] for root, _ in exported.values() for entry in read_json(root / "manifest.json")["cases"].values()]
    assert sum("folder" in entry for entry in entries) > 0.7 * len(entries)


SMALL = "heads: 2, sizes: {Lq: 2, Lk: 3, d_k: 3}, parameters: {q: {grid: {}}, k: {grid: {}}, v: {grid: {}}%s}"
REASONS = {
    "scaled scores": "parameters: {scaled: [[[1, 2]]], v: [[1], [2]]}",
    "rounded in bfloat16": f"dtype: bfloat16, {SMALL % ''}",
    "precision inside": f"dtype: float32, precision: {{softmax: float64}}, {SMALL % ''}",
    "no sinks": SMALL % ", sinks: [0, 1]",
    "softmax: plus_one": f"softmax: plus_one, {SMALL % ''}",
    "greater than 0": f"scale: -1, {SMALL % ''}",
    "changes 0.3": f"scale: 0.3, {SMALL % ''}",
    "changes 2.0": f"scale: 2, {SMALL % ''}",
    "changes 0.7": f"softcap: 0.7, {SMALL % ''}",
    "into finfo_min": f"mask: {{causal: top_left, fill: finfo_min}}, {SMALL % ''}",
    "not finite": 'mask: {causal: top_left}, parameters: {q: [[1], [1]], k: [[1], ["NaN"]], v: [[1], [1]]}',
    "empty_row is nan": f"mask: {{key_keep: [0, 0, 0], empty_row: nan}}, {SMALL % ''}",
}
FINE = {
    "a scale whose root is exact": f"scale: 4, {SMALL % ''}",
    "any scale in float32": f"dtype: float32, scale: 0.3, {SMALL % ''}",
    "a softcap that is exact": f"softcap: 0.5, {SMALL % ''}",
    "a fill that nothing uses": f"mask: {{key_keep: [1, 1, 1], fill: -1000, empty_row: nan}}, {SMALL % ''}",
}


def one(folder: Path, case: str) -> tuple[dict, dict[str, np.ndarray]]:
    """A resolved case and its arrays."""
    (folder / "one.yaml").write_text(f"cases: {{one: {{{case}}}}}", "utf-8")
    resolved = load(folder / "one.yaml")["cases"]["one"]
    with np.errstate(all="ignore"):
        return resolved, compute(resolved)


@pytest.mark.parametrize(("word", "case"), REASONS.items())
def test_what_onnx_cannot_say_has_a_reason(tmp_path: Path, word: str, case: str):
    assert word in inexpressible(*one(tmp_path, case))


@pytest.mark.parametrize("case", FINE.values(), ids=FINE)
def test_what_onnx_can_say_has_none(tmp_path: Path, case: str):
    assert inexpressible(*one(tmp_path, case)) is None


def test_without_onnx_the_plain_form_is_the_same(exported: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    export(tmp_path, ROOT / "config" / "suites" / "handworked.yaml")
    manifest = read_json(tmp_path / "manifest.json")
    assert manifest["onnx"] is None
    assert {entry["onnx"].get("reason") for entry in manifest["cases"].values()} == {NOT_INSTALLED}
    assert contents(tmp_path / "plain") == contents(exported["handworked"][0] / "plain")
    assert not (tmp_path / "onnx").exists()


# The rule


def test_rule_writes_the_same_bytes_everywhere(exported: dict, project: Path):
    suites = "suites=[handworked, gradients]"  # without and with the stage backward
    done = run(project, "export", "--config", suites, env={"LC_ALL": "C", "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"})
    assert done.returncode == 0, done.stderr
    for suite in ("handworked", "gradients"):
        assert contents(project / "results" / "export" / suite) == contents(exported[suite][0])
    again = run(project, "export", "--config", suites)
    assert "Nothing to be done" in again.stdout + again.stderr


# The readers


@pytest.mark.parametrize("suite", SUITES)
def test_c_reader_agrees(exported: dict, reader: Path, suite: str):
    root, arrays = exported[suite]
    for case in arrays:
        done = call(reader, root / "plain" / case)
        assert done.returncode == 0, f"{suite}/{case}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("suite", SUITES)
def test_javascript_reader_agrees(exported: dict, node: list[str], suite: str):
    root, arrays = exported[suite]
    done = call(*node, root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(arrays)


def test_javascript_reads_the_one_file(exported: dict, node: list[str], tmp_path: Path):
    """Numbers of every dtype that a suite has, as doubles."""
    root, arrays = exported["precision"]
    program = f"""
import {{ readFileSync }} from "node:fs";
import {{ parseSafetensors }} from {json.dumps((READERS / "read_golden.mjs").as_posix())};
const tensors = parseSafetensors(readFileSync({json.dumps((root / "golden.safetensors").as_posix())}), "golden.safetensors");
console.log(JSON.stringify([...tensors].map(([name, {{ shape, values }}]) => [name, shape, [...values].map(String)])));
"""
    (tmp_path / "read.mjs").write_text(program, "utf-8")
    done = call(node[0], tmp_path / "read.mjs")
    assert done.returncode == 0, done.stderr
    read = {name: (shape, np.array(values, np.float64)) for name, shape, values in json.loads(done.stdout.replace("Infinity", "inf"))}
    for case, made in arrays.items():
        for name, array in made.items():
            shape, values = read[f"{case}/{name}"]
            assert shape == list(array.shape) and np.array_equal(values, array.astype(np.float64).ravel(), equal_nan=True)


@pytest.fixture
def copy(exported: dict, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported["handworked"][0], tmp_path / "handworked"))


def change(root: Path, array: str, data: bytes) -> None:
    """Replace an array of the case two_heads, in the manifest too."""
    manifest = read_json(root / "manifest.json")
    said = manifest["cases"]["two_heads"]["arrays"][array]
    (root / said["file"]).write_bytes(data)
    said["sha256"] = hashlib.sha256(data).hexdigest()
    (root / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def original(root: Path, array: str) -> bytes:
    return (root / "plain" / "two_heads" / f"{array}.npy").read_bytes()


@pytest.mark.parametrize("array", ["weights", "masked", "contexts", "v_heads"])
def test_readers_notice_a_wrong_number(copy: Path, reader: Path, node: list[str], array: str):
    data = bytearray(original(copy, array))
    data[-2] ^= 0x10  # the last number, twice or half as large
    change(copy, array, bytes(data))
    assert call(reader, copy / "plain" / "two_heads").returncode == 1
    done = call(*node, copy)
    assert done.returncode == 1 and re.search(r"^two_heads: .* WRONG$", done.stdout, re.MULTILINE)
    assert call(*node, copy, 10).returncode == 0 and call(reader, copy / "plain" / "two_heads", 10).returncode == 0


def shaped(data: bytes, text: bytes) -> bytes:
    """`data` with another shape in a header of the same length."""
    header = data[:128].replace(b"(2, 3, 3), }", text + b", }")
    return header[:127].rstrip(b" \n").ljust(127) + b"\n" + data[128:]


DAMAGES = {
    "empty": lambda data: b"",
    "in the magic": lambda data: data[:5],
    "in the header": lambda data: data[:40],
    "in the numbers": lambda data: data[:-1],
    "a number too many": lambda data: data + bytes(8),
    "another format": lambda data: b"PK\x03\x04" + data,
    "version 3": lambda data: data[:6] + b"\x03\x00" + data[8:],
    "huge shape": lambda data: shaped(data, b"(9999999999, 9999999999, 9999999999)"),
    "shape that overflows": lambda data: shaped(data, b"(4294967296, 4294967296, 18)"),
    "too many axes": lambda data: shaped(data, b"(2, 3, 3, 1, 1, 1, 1, 1, 1)"),
    "other shape": lambda data: shaped(data, b"(2, 3, 4)"),
    "negative shape": lambda data: data.replace(b"(2, 3, 3)", b"(-2,3, 3)"),
    "no shape": lambda data: data.replace(b"'shape'", b"'shqpe'"),
    "Fortran order": lambda data: data.replace(b"False", b"True "),
    "Python objects": lambda data: data.replace(b"<f8", b"|O8"),
    "big endian": lambda data: data.replace(b"<f8", b">f8"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_readers_say_in_one_line_what_is_damaged(copy: Path, reader: Path, node: list[str], damage):
    data = damage(original(copy, "masked"))
    assert data != original(copy, "masked")
    change(copy, "masked", data)
    for done in (call(reader, copy / "plain" / "two_heads"), call(*node, copy)):
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1 and "masked.npy: " in done.stderr


def test_readers_say_what_is_missing(copy: Path, reader: Path, node: list[str]):
    (copy / "plain" / "two_heads" / "masked.npy").unlink()
    for done in (call(reader, copy / "plain" / "two_heads"), call(*node, copy)):
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "masked.npy: " in done.stderr
    for done in (call(reader, copy / "nowhere"), call(*node, copy / "nowhere"), call(reader), call(*node)):
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 2}', '{"format": 1, "cases": {"a": {"arrays": {"b": {"file": "/etc/passwd"}}}}}']
)
def test_javascript_reader_refuses_a_bad_manifest(copy: Path, node: list[str], text: str):
    (copy / "manifest.json").write_text(text, "utf-8")
    done = call(*node, copy)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "manifest.json: " in done.stderr


# The readers of the one file


@pytest.mark.parametrize("suite", SUITES)
def test_the_one_file_is_read_and_agrees(exported: dict, node: list[str], rust: Path, suite: str):
    root, arrays = exported[suite]
    for done in (call(*node, root / "golden.safetensors"), call(rust, root)):
        assert done.returncode == 0, done.stdout + done.stderr
        assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(arrays)


@pytest.mark.parametrize("suite", ["handworked", "precision"])  # bfloat16 and float16 are in the second
def test_c_reads_the_one_file(exported: dict, reader: Path, suite: str):
    root, arrays = exported[suite]
    for case in arrays:
        done = call(reader, root / "golden.safetensors" / case)
        assert done.returncode == 0 and done.stdout == call(reader, root / "plain" / case).stdout, f"{suite}/{case}: {done.stderr}"


def change_one(root: Path, data: bytes) -> None:
    """Replace the one file, in the manifest too."""
    manifest = read_json(root / "manifest.json")
    manifest["tensors"]["sha256"] = hashlib.sha256(data).hexdigest()
    (root / "golden.safetensors").write_bytes(data)
    (root / "manifest.json").write_text(json.dumps(manifest), "utf-8")


@pytest.mark.parametrize("array", ["weights", "masked", "contexts", "v_heads"])
def test_a_wrong_number_in_the_one_file_is_noticed(copy: Path, reader: Path, node: list[str], rust: Path, array: str):
    tensors = read_tensors(copy / "golden.safetensors")
    tensors[f"two_heads/{array}"][-1, -1, -1] *= 1.001
    change_one(copy, save(tensors))
    one = copy / "golden.safetensors"
    assert call(reader, one / "two_heads").returncode == 1 and call(reader, one / "one_head").returncode == 0
    for done in (call(*node, one), call(rust, copy)):
        assert done.returncode == 1 and re.findall(r"^(\w+): .* WRONG$", done.stdout, re.MULTILINE) == ["two_heads"]
    assert call(*node, one, 10).returncode == call(rust, copy, 10).returncode == call(reader, one / "two_heads", 10).returncode == 0


def said_of(data: bytes, old: bytes, new: bytes) -> bytes:
    """`data` whose header says something else of the scores of two_heads, in as many bytes."""
    length = int.from_bytes(data[:8], "little")
    header = re.sub(rb'("two_heads/masked":\{[^}]*)' + old, rb"\g<1>" + new, data[8 : 8 + length]).ljust(length)
    assert len(header) == length
    return data[:8] + header + data[8 + length :]


DAMAGES_OF_ONE = {
    "empty": lambda data: b"",
    "in the length": lambda data: data[:5],
    "in the header": lambda data: data[:40],
    "in the numbers": lambda data: data[: 12 + int.from_bytes(data[:8], "little")],
    "length beyond the file": lambda data: b"\xff" * 8 + data[8:],
    "header of other bytes": lambda data: data[:8] + bytes(len(data) - 8),
    "another type": lambda data: said_of(data, b"F64", b"I64"),
    "other shape": lambda data: said_of(data, rb"\[2,3,3\]", b"[2,3,4]"),
    "huge shape": lambda data: said_of(data, rb"\[2,3,3\]", b"[9e9,3]"),
    "negative shape": lambda data: said_of(data, rb"\[2,3,3\]", b"[-2,-9]"),
    "another place": lambda data: said_of(data, rb'"data_offsets":\[\d', b'"data_offsets":[-'),
    "beyond the end": lambda data: said_of(data, rb'"data_offsets":\[\d', b'"data_offsets":[9'),
    "no place": lambda data: said_of(data, b"data_offsets", b"data_ofsfets"),
    "another name": lambda data: said_of(data, b"", b"").replace(b"two_heads/masked", b"two_heads/maksed"),
}


@pytest.mark.parametrize("damage", DAMAGES_OF_ONE.values(), ids=DAMAGES_OF_ONE)
def test_readers_say_in_one_line_that_the_one_file_is_damaged(copy: Path, reader: Path, node: list[str], rust: Path, damage):
    whole = (copy / "golden.safetensors").read_bytes()
    assert damage(whole) != whole
    change_one(copy, damage(whole))
    for done in (call(reader, copy / "golden.safetensors" / "two_heads"), call(*node, copy / "golden.safetensors"), call(rust, copy)):
        assert done.returncode == 2, done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1 and re.search(r"golden\.safetensors|masked", done.stderr), done.stderr


def test_a_set_that_is_not_whole_is_noticed(copy: Path, node: list[str]):
    """By the manifest's sha256, and by SHA256SUMS; who reads without a hash has the second."""
    data = bytearray((copy / "golden.safetensors").read_bytes())
    data[-2] ^= 0x10
    (copy / "golden.safetensors").write_bytes(data)
    done = call(*node, copy / "golden.safetensors")
    assert done.returncode == 2 and done.stderr == "golden.safetensors: its sha256 is not the manifest's\n"
    done = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "golden.safetensors: FAILED\n"


def test_a_set_says_who_made_it(exported: dict):
    root, _ = exported["handworked"]
    assert read_json(root / "manifest.json")["made_by"] == f"worked-attention {__version__}"
    with safe_open(root / "golden.safetensors", "np") as file:
        assert file.metadata() == {"made_by": f"worked-attention {__version__}"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "cases": {"a": {}}}', "[" * 100_000])
def test_rust_reader_refuses_a_bad_manifest(copy: Path, rust: Path, text: str):
    (copy / "manifest.json").write_text(text, "utf-8")
    done = call(rust, copy)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_c_reader_survives_random_damage(copy: Path, reader: Path):
    random.seed(1)
    folder = copy / "plain" / "two_heads"
    for _ in range(50):
        damaged = bytearray((copy / "golden.safetensors").read_bytes())
        for _ in range(random.choice([1, 2, 5])):
            damaged[random.randrange(4000)] = random.randrange(256)
        (folder / "golden.safetensors").write_bytes(damaged)
        (folder / "plain" / "two_heads").mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "case.json", folder / "plain" / "two_heads")
        done = call(reader, folder / "golden.safetensors" / "two_heads")
        assert done.returncode in (0, 1, 2) and len(done.stderr.splitlines()) <= 1
    for _ in range(50):
        name = random.choice(["masked", "weights", "contexts", "v_heads"])
        data = original(copy, name)
        damaged = bytearray(data)
        for _ in range(random.choice([1, 2, 5])):
            damaged[random.randrange(128)] = random.randrange(256)
        (folder / f"{name}.npy").write_bytes(damaged)
        done = call(reader, folder)
        assert done.returncode in (0, 1, 2) and len(done.stderr.splitlines()) <= 1
        (folder / f"{name}.npy").write_bytes(data)
