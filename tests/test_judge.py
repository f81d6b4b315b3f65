"""The judge: what is right is never called wrong, what is wrong is placed, and nothing that is sent can hurt or confuse it."""

import contextlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, run, with_suites
from shipped import all_shipped

from worked_attention.cases.resolve import resolve
from worked_attention.cases.suites import UNLIMITED
from worked_attention.referee import running, submissions
from worked_attention.referee.conventions import under
from worked_attention.referee.diagnosis import Diagnoser
from worked_attention.referee.judge import judge_case, said
from worked_attention.referee.mistakes.library import LIBRARY
from worked_attention.referee.outcome import counts, objection
from worked_attention.referee.power import by_mistake
from worked_attention.referee.report import judge_all, table
from worked_attention.referee.submissions import Submission, Unreadable, read_file
from worked_attention.stages import backward, contexts, outputs, parameters, projections, scores, weights
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.whole import compute

FOLDER = ROOT / "config" / "suites"
SUITES = all_shipped()
CASES = [case for suite in SUITES.values() for case in suite["cases"].values() if not case["torch_draws"]]
ONE = SUITES["handworked"]["cases"]["two_heads"]
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def own(case: dict, dtype: str | None = None) -> tuple[dict, dict]:
    """(parameters, computed arrays) of a case, computed as it says or in another dtype throughout."""
    given = parameters.stage(case, FOLDER)
    made = given
    if dtype:
        case = case | {"dtype": dtype, "precision": {"accumulate": dtype, "softmax": dtype, "scores": dtype}}
        made = {name: array if array.dtype == bool else array.astype(dtype) for name, array in given.items()}
    for stage in (projections, scores, weights, contexts, outputs, backward):
        made = made | stage.stage(case, made)
    return given, {name: array for name, array in made.items() if name not in case["arrays"]["parameters"]}


def blocked_rows(case: dict) -> dict:
    """The arrays of a case in float64, and among its rows those that see no key."""
    given, sent = own(case, "float64")
    return given, sent, ~sent["keep"].any(axis=-1)


FILLED = [case for case in CASES if case["name"] in ("fill_finfo_min", "fill_finfo_min_float32", "fill_finfo_min_float16", "fill_1e9")]


@quiet
def test_products_in_float32_of_arrays_in_float64():
    """The arrays are rounded on their way into each product, and what comes out is kept in float64."""
    for case in [case for case in CASES if case["suite"] in ("handworked", "heads", "cache") and case["dtype"] == "float64"]:
        given, sent = own({**case, "precision": {"accumulate": "float32", "softmax": "float64", "scores": "float64"}})
        contract = judge_case(case, given, sent)["contract"]
        assert "float32" in contract and "16" not in contract, (case["name"], contract)


@quiet
@pytest.mark.parametrize("case", FILLED, ids=lambda case: case["name"])
@pytest.mark.parametrize("slip", ["zero", "first key"])
def test_a_row_that_sees_no_key_is_judged_where_the_fill_is_finite(case: dict, slip: str):
    """The fill is that of the arithmetic that is tried, so float32 does not overflow at the lowest number of float64."""
    given, sent, empty = blocked_rows(case)
    weights = np.where(empty[..., None], np.arange(sent["weights"].shape[-1]) == (0 if slip == "first key" else -1), sent["weights"])
    made = {"weights": weights, **contexts.stage(case, sent | given | {"weights": weights})}
    made |= outputs.stage(case, given | made)
    assert empty.any()
    for part in (("output",), ("weights", "output")):
        assert judge_case(case, given, {name: made[name] for name in part})["verdict"] == "wrong"


@quiet
@pytest.mark.parametrize("case", FILLED[:2] + FILLED[-1:], ids=lambda case: case["name"])
def test_what_is_only_saved_in_half_keeps_the_fill_of_its_arithmetic(case: dict):
    given, sent = own(case, "float64")
    assert judge_case(case, given, {"output": sent["output"].astype(np.float16)})["contract"] == "float32 accumulation (float16)"


# What is right is right

OPEN = ("add_1e9", "add_1e9_float32")  # float32 loses scores beside 1e9: nothing can be told


@quiet
@pytest.mark.parametrize("dtype", [None, "float64", "float32"])
@pytest.mark.parametrize("suite", SUITES)
def test_no_false_alarm(suite: str, dtype: str | None):
    for case in [case for case in CASES if case["suite"] == suite]:
        given, sent = own(case, dtype)
        names = list(sent)
        for part in filter(None, (names, names[::2], names[1::3], ["output"] * ("output" in sent))):
            found = judge_case(case, given, {name: sent[name] for name in part})
            if case["name"] in OPEN and dtype != "float64":
                assert found["verdict"] in ("right", "undecided"), (case["name"], part, found)
                continue
            if (case["name"], dtype) == ("scores_beyond_float32", "float32"):  # whose scores are infinite there, which is a convention
                found = judge_case(under(case, "scores", "float32"), given, {name: sent[name] for name in part})
            assert found["verdict"] == "right", (case["name"], part, found)
            if dtype == "float64":
                assert found["contract"] == "float64"


@quiet
def test_contracts():
    case = SUITES["heads"]["cases"]["cross"]
    given, sent = own(case)
    assert judge_case(case, given, sent)["contract"] == "float64"
    assert judge_case(case, given, own(case, "float32")[1])["contract"] == "float32"
    half = {name: array.astype(np.float16) for name, array in own(case, "float32")[1].items()}
    assert judge_case(case, given, half)["contract"].endswith("(float16)")
    rough = {name: array.astype(np.float16).astype(np.float64) for name, array in sent.items()}
    assert judge_case(case, given, rough)["verdict"] == "wrong"  # says float64 and is not


# No empty "right"


def made_case(raw: dict) -> tuple[dict, dict]:
    """(resolved case, its parameters) of a case as a suite would say it."""
    said = []
    case = resolve(raw, "made", "case", Path(), UNLIMITED | {"max_array_mb": 100}, lambda where, message: said.append((where, message)))
    assert case is not None, said
    return case, parameters.stage(case, Path())


def of_length(tokens: int, dtype: str = "float64", **more) -> tuple[dict, dict]:
    """A case of two heads that begins at x, with normal parameters; d_model is 16."""
    shapes = ("x", "w_q", "w_k", "w_v", "w_o")
    normal = {name: {"normal": {"seed": i, "std": 1.0 if name == "x" else 0.3}} for i, name in enumerate(shapes)}
    return made_case({"dtype": dtype, "heads": 2, "sizes": {"Lq": tokens, "d_model": 16}, "parameters": normal, **more})


@quiet
@pytest.mark.parametrize("tokens", [8, 200])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_does_not_accept_anything(tokens: int, dtype: str):
    """The certified bound of a whole chain in bfloat16 is 78 times the output at 8 tokens, and infinite at 200."""
    case, given = of_length(tokens)
    right = own(case, "float64")[1]["output"]
    spoiled = [0 * right, 1.5 * right, -right, np.roll(right, 1, axis=0), np.full(right.shape, right.mean()), np.full(right.shape, 7.0)]
    for output in [*spoiled, np.random.Generator(np.random.Philox(1)).standard_normal(right.shape)]:
        found = judge_case(case, given, {"output": output.astype(dtype)})
        assert found["verdict"] == "wrong" and found["evidence"] in ("typical", "certified"), found
    honest = judge_case(case, given, {"output": right.astype(dtype)})
    assert honest["verdict"] == "right" and honest["evidence"] == ("certified" if (tokens, dtype) == (8, "float16") else "typical")
    assert honest["contract"] == f"float32 accumulation ({dtype})"


@quiet
def test_each_array_is_held_to_the_dtype_that_it_shows():
    """A right qk in bfloat16 beside a float64 output that is 15 % off, or 1 %; an output made from that qk as it was sent is right."""
    case, given = of_length(8)
    sent = own(case, "float64")[1]
    qk = {"qk": sent["qk"].astype(bfloat16)}
    for factor in (1.15, 1.01):
        found = judge_case(case, given, qk | {"output": factor * sent["output"]})
        assert found["verdict"] == "wrong" and found["evidence"] == "certified" and found["stages"]["scores"] == "right", found
    contract = judge_case(case, given, qk | {"output": sent["output"]})["contract"]
    assert contract == "float32 accumulation (bfloat16) until scores, float64 from outputs"
    made = given | {"v_heads": sent["v_heads"], "masked": qk["qk"].astype(np.float64) * case["scale_factor"]}
    for stage in (weights, contexts, outputs):
        made |= stage.stage(case, made)
    assert judge_case(case, given, qk | {"output": made["output"]})["verdict"] == "right"


@quiet
def test_a_stage_that_holds_in_float32_only_is_told():
    case, given = of_length(8)
    sent = own(case, "float64")[1]
    sent["contexts"] = sent["contexts"].astype(np.float32).astype(np.float64)
    sent["concat"] = contexts.merge_heads(sent["contexts"])
    sent["output"] = outputs.stage(case, given | sent)["output"]
    found = judge_case(case, given, sent)
    assert found["contract"] == "float64 until weights, float32 in contexts, float64 from outputs"
    sent["output"] = sent["output"].astype(np.float32)
    assert judge_case(case, given, sent)["contract"] == "float64 until weights, float32 from contexts"
    off = sent | {"output": sent["output"] + np.float32(1e-3)}
    assert judge_case(case, given, off)["first_wrong_stage"] == "outputs"


@quiet
@pytest.mark.parametrize("asked", ["float64", "float32", "bfloat16"])
def test_a_contract_that_is_asked_for(asked: str):
    """Every dtype of the same right output, held to one: less is wrong."""
    case, given = of_length(8)
    output = own(case, "float64")[1]["output"]
    units = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
    for dtype, unit in units.items():
        found = judge_case(case, given, {"output": output.astype(dtype)}, contract=asked)
        assert found["verdict"] == ("right" if unit <= units[asked] else "wrong"), (dtype, found)


@quiet
def test_a_tie_is_decided_by_what_was_sent():
    """The bound of a hardmax that a rounding could turn is 1, and said nothing."""
    case = SUITES["softmax"]["cases"]["hardmax_tie"]
    given, sent = own(case)
    assert judge_case(case, given, sent)["verdict"] == "right"
    output = sent["output"]
    for spoiled in (0 * output, 1.5 * output, -output):
        assert judge_case(case, given, {"output": spoiled})["verdict"] in ("undecided", "wrong")


def test_nothing_sent_is_not_right():
    assert judge_case(ONE, parameters.stage(ONE, FOLDER), {})["verdict"] == "not sent"


# What is wrong is placed


def wrong(name: str, *sent: str) -> dict:
    """The verdict on `sent` arrays of the hand-worked case with one mistake."""
    made = by_mistake(ONE, compute(ONE), LIBRARY[name])
    return judge_case(ONE, parameters.stage(ONE, FOLDER), {array: made[array] for array in sent or made})


@pytest.mark.parametrize(
    ("mistake", "sent", "says"),
    [
        ("not_scaled", (), "scores"),
        ("not_scaled", ("q_heads", "k_heads", "masked"), "scores"),
        ("not_scaled", ("q", "k", "masked"), "between parameters and scores"),
        ("not_scaled", ("q_heads", "k_heads", "weights"), "between projections and weights"),
        ("not_scaled", ("weights",), "between parameters and weights"),
        ("not_scaled", ("qk", "masked"), "scores"),
        ("softmax_over_queries", ("masked", "v_heads", "contexts"), "between scores and contexts"),
        ("softmax_over_queries", ("masked", "contexts"), "projections or weights or contexts"),
        ("softmax_over_queries", ("masked", "weights", "output"), "weights"),
        ("merged_without_transpose", ("contexts", "concat"), "contexts"),
        ("transposed_weights_used", ("weights", "contexts"), "projections or contexts"),
        ("missing_b_o", ("concat", "output"), "outputs"),
        ("missing_b_o", ("output",), "between parameters and outputs"),
    ],
)
def test_range(mistake: str, sent: tuple, says: str):
    assert wrong(mistake, *sent)["first_wrong_stage"] == says


def test_said():
    assert said({"weights"}) == "weights"
    assert said({"weights", "contexts"}) == "between scores and contexts"
    assert said({"projections", "outputs"}) == "projections or outputs"


def test_worst():
    made = compute(ONE)
    sent = {"weights": made["weights"].copy()}
    sent["weights"][1, 2, 0] += 0.25
    worst = judge_case(ONE, parameters.stage(ONE, FOLDER), sent)["worst"]
    assert worst["array"] == "weights" and worst["index"] == [1, 2, 0]
    assert worst["got"] - worst["expected"] == pytest.approx(0.25)
    assert 0 < worst["bound"] < 1e-5
    sent["weights"][0, 0, 1] = np.nan
    worst = judge_case(ONE, parameters.stage(ONE, FOLDER), sent)["worst"]
    assert worst["index"] == [0, 0, 1] and worst["got"] == "NaN"
    assert "shape [3, 2, 3]" in judge_case(ONE, parameters.stage(ONE, FOLDER), {"weights": np.ones((3, 2, 3))})["worst"]["reason"]


def test_what_is_smaller_than_any_tolerance_is_caught():
    """A scale of 1/sqrt(d + 1e-9) in float64."""
    made = compute(ONE)
    found = judge_case(
        ONE, parameters.stage(ONE, FOLDER), {n: made[n] for n in ("q_heads", "k_heads", "qk")} | {"scaled": made["scaled"] * (1 + 1e-6)}
    )
    assert found["first_wrong_stage"] == "scores"


@pytest.mark.parametrize("mistake", ["mask_multiplied", "fill_1e4", "fill_1e9", "mask_added_1e9"])
@pytest.mark.parametrize("name", ["fill_finfo_min", "fill_finfo_min_float32", "fill_infinity"])
def test_nothing_passes_for_the_fill_of_a_blocked_score(mistake: str, name: str):
    """The most negative float64 is beyond float32, where a bound is infinite."""
    case = SUITES["masks"]["cases"][name]
    sent = by_mistake(case, compute(case), LIBRARY[mistake])
    assert judge_case(case, parameters.stage(case, FOLDER), sent)["first_wrong_stage"] == "scores"


def test_two_mistakes_that_were_found_before_are_tried_first():
    given = parameters.stage(ONE, FOLDER)
    sent = by_mistake(ONE, compute(ONE), LIBRARY["not_scaled"])["output"] - given["b_o"]
    diagnoser = Diagnoser(pairs=0, seen=[("not_scaled", "missing_b_o")])
    found = judge_case(ONE, given, {"output": sent}, diagnoser)["diagnosis"]
    assert {mistake["name"] for mistake in found["mistakes"]} == {"not_scaled", "missing_b_o"}


# Files


def npy(array: np.ndarray, **how) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


def header(text: str, data: bytes = b"") -> bytes:
    line = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + data


def of_rank(axes: int) -> bytes:
    """One number in so many axes, more than NumPy's own writer takes."""
    line = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({'1, ' * axes}), }}".encode().ljust(373) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + bytes(8)


class Trap:
    """A pickle that would leave a trace if it was opened."""

    def __reduce__(self):
        return os.system, ("touch trapped",)


GOOD = np.arange(18.0).reshape(2, 3, 3)
HOSTILE = {
    "objects.npy": (npy(np.array([Trap()] * 18, dtype=object), allow_pickle=True), "pickled Python objects, which are never opened"),
    "pickle.npy": (pickle.dumps(Trap()), "is not a .npy file"),
    "zip.npy": (b"PK\x03\x04" + bytes(100), "is not a .npy file"),
    "empty.npy": (b"", "is empty"),
    "cut.npy": (npy(GOOD)[:-8], "cut short or damaged"),
    "longer.npy": (npy(GOOD) + b"\0", "cut short or damaged"),
    "huge.npy": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000, 1000000), }"), "cut short or damaged"),
    "negative.npy": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -3), }", bytes(24)), "cut short or damaged"),
    "axes.npy": (of_rank(65), "65 axes"),
    "code.npy": (header("__import__('os').system('touch trapped')"), "damaged header"),
    "long_header.npy": (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "damaged header"),
    "version.npy": (b"\x93NUMPY\x09\x00" + bytes(50), "damaged header"),
    "text.npy": (npy(np.array(["a"] * 18)), "should hold real numbers"),
    "complex.npy": (npy(GOOD.astype(complex)), "should hold real numbers"),
    "fields.npy": (npy(np.zeros(18, dtype=[("a", "<f4")])), "should hold real numbers"),
    "dates.npy": (npy(np.zeros(18, dtype="datetime64[s]")), "should hold real numbers"),
    "large.npy": (npy(np.zeros(200_000)), "too large"),
    "large.json": (b"[" + b"1," * 1_000_000 + b"1]", "too large"),
    "deep.json": (b"[" * 400_000, "nested too deeply"),
    "ragged.json": (b"[[1, 2], [3]]", "ragged"),
    "words.json": (b'[["one"]]', 'holds "one"'),
    "mapping.json": (b'{"values": [1]}', "should hold nested lists of numbers"),
    "null.json": (b"[null]", "holds null"),
    "text.json": (b"1 2 3", "is not JSON (line 1)"),
    "bytes.json": (b"\xff\xfe[1]", "is not UTF-8"),
    "none.json": (b"", "is not JSON"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.chdir(tmp_path)
    data, says = HOSTILE[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Unreadable) as found:
        read_file(tmp_path / name, (2, 3, 3))
    assert says in str(found.value) and "\n" not in str(found.value) and len(str(found.value)) < 200
    assert not (tmp_path / "trapped").exists()


def test_what_is_no_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "device.npy").symlink_to("/dev/zero")
    (tmp_path / "broken.npy").symlink_to("nowhere")
    for name in ("pipe", "folder", "device", "broken"):
        with pytest.raises(Unreadable):
            read_file(tmp_path / f"{name}.npy", (2,))


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<f2", "<i4", "|u1", "|b1", "<f16"])
def test_dtypes(tmp_path: Path, dtype: str):
    if dtype == "<f16" and np.dtype(np.longdouble).itemsize != 16:
        pytest.skip("no such floats here")
    wanted = GOOD > 4 if dtype == "|b1" else GOOD
    np.save(tmp_path / "a.npy", np.asfortranarray(wanted.astype(dtype)))
    array, _ = read_file(tmp_path / "a.npy", GOOD.shape)
    assert np.array_equal(array, wanted) and array.dtype.kind == "f" and array.dtype.isnative


def test_bfloat16_and_json_and_booleans(tmp_path: Path):
    np.save(tmp_path / "a.npy", GOOD.astype(bfloat16))
    assert read_file(tmp_path / "a.npy", GOOD.shape)[0].dtype == bfloat16
    (tmp_path / "a.json").write_text('[[1, 0.1, "NaN"], ["Infinity", "-Infinity", -0.0]]')
    assert np.array_equal(read_file(tmp_path / "a.json", (2, 3))[0], [[1, 0.1, np.nan], [np.inf, -np.inf, 0]], equal_nan=True)
    (tmp_path / "b.json").write_text("[[true, 0], [1, false]]")
    assert np.array_equal(read_file(tmp_path / "b.json", (2, 2), boolean=True)[0], [[True, False], [True, False]])
    with pytest.raises(Unreadable, match="should be boolean"):
        read_file(tmp_path / "a.json", (2, 3), boolean=True)


# Submissions


def write(folder: Path, case: dict, arrays: dict) -> None:
    target = folder / case["suite"] / case["name"]
    target.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(target / f"{name}.npy", array)


def judged(path: Path, *suites: str) -> dict:
    chosen = {name: SUITES[name] for name in suites or ("handworked",)}
    found = judge_all(Submission(path, chosen, dict.fromkeys(chosen, FOLDER)), chosen)
    assert "Traceback" not in table(found)
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")
    return found


def test_folder_with_odd_things_in_it(tmp_path: Path):
    made = compute(ONE)
    write(tmp_path / "mine", ONE, {name: made[name] for name in ("weights", "output", "x")})
    place = tmp_path / "mine" / "handworked"
    (place / "two_heads" / "weigths.npy").write_bytes(b"")
    (place / "two_heads" / "notes.txt").write_bytes(b"")
    (place / "two_heads" / "output.json").write_text("[1]")
    (place / "one_head").mkdir()
    (place / "without_bias").mkdir()
    (place / "without_bias" / "output.npy").write_bytes(HOSTILE["objects.npy"][0])
    (place / "permuted_tokens").mkdir()
    np.save(place / "permuted_tokens" / "output.npy", np.full((3, 4), np.nan))
    np.save(place / "permuted_tokens" / "weights.npy", np.ones((2, 3)))
    (place / "two_head").mkdir()
    (tmp_path / "mine" / "headz").mkdir()
    found = judged(tmp_path / "mine", "handworked", "heads")
    words = {key: case["verdict"] for key, case in found["cases"].items()}
    assert words == {
        "handworked/one_head": "unreadable",
        "handworked/permuted_tokens": "wrong",
        "handworked/two_heads": "right",
        "handworked/without_bias": "unreadable",
    }
    assert found["cases"]["handworked/without_bias"]["problems"] == [
        "output.npy: holds pickled Python objects, which are never opened; save an array of floats"
    ]
    assert "has shape [2, 3], should have [2, 3, 3]" in found["cases"]["handworked/permuted_tokens"]["worst"]["reason"]
    notes = "\n".join(found["notes"])
    for says in ("weigths.npy: extra", "did you mean weights", "notes.txt: extra", "output.json: extra", "x.npy: extra, it is a parameter"):
        assert says in notes, says
    for says in ("two_head: extra", "headz: extra"):
        assert says in notes, says
    assert found["missing"] == {"handworked": ["without_output_projection", "batched"]}
    assert "1 right" in table(found)


def test_right_arrays_beside_an_unreadable_one_are_not_called_right(tmp_path: Path):
    write(tmp_path / "mine", ONE, {"output": compute(ONE)["output"]})
    (tmp_path / "mine" / "handworked" / "two_heads" / "weights.npy").write_bytes(b"")
    case = judged(tmp_path / "mine")["cases"]["handworked/two_heads"]
    assert case["verdict"] == "unreadable" and case["problems"] == ["weights.npy: is empty"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none", "no such file"),
        ("~nobody_of_this_name/mine", "no such file"),
        ("text.txt", "neither a folder"),
        ("text.txt/mine", r"cannot be read \(Not a directory\)"),
        ("empty", "holds no case"),
        ("misspelt", "holds no case .*; handworkd: extra, .* did you mean handworked?"),
        ("mine/handworked", "is the folder of a suite; give the folder above it"),
    ],
)
def test_no_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "misspelt" / "handworkd").mkdir(parents=True)
    write(tmp_path / "mine", ONE, {"output": compute(ONE)["output"]})
    with pytest.raises(Unreadable, match=says):
        judged(Path(name))


def test_folders_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for suite in ("handworked", "heads"):
        for case in list(SUITES[suite]["cases"].values())[:2]:
            write(tmp_path / "mine", case, {})
    shut, names_in = {"heads", "two_heads"}, os.listdir

    def listed(path: Path) -> list[str]:
        if path.name in shut:
            raise PermissionError(13, "Permission denied")
        return names_in(path)

    monkeypatch.setattr(os, "listdir", listed)
    found = judged(tmp_path / "mine", "handworked", "heads")
    assert found["cases"]["handworked/two_heads"]["problems"] == ["its folder cannot be read (Permission denied)"]
    assert found["cases"]["handworked/one_head"]["problems"] == ["no array of the case is in its folder"]
    assert found["notes"] == ["heads: cannot be read (Permission denied)"]
    shut.add("mine")
    with pytest.raises(Unreadable, match=r"cannot be read \(Permission denied\)"):
        judged(tmp_path / "mine")


def test_control_characters_are_escaped(tmp_path: Path):
    write(tmp_path / "mine", ONE, {"output": compute(ONE)["output"]})
    for name in ("a\nb\x1b[31m.npy", os.fsdecode(b"\xff.npy")):
        (tmp_path / "mine" / "handworked" / "two_heads" / name).write_bytes(b"")
    notes = judged(tmp_path / "mine")["notes"]
    assert [note.partition(": extra")[0] for note in notes] == [
        "handworked/two_heads/a\\nb\\x1b[31m.npy",
        "handworked/two_heads/\\udcff.npy",
    ]
    text = "def attention(case):\n    raise ValueError('\\x1b[31mred')\n"
    assert python(tmp_path, text)["handworked/two_heads"]["problems"] == ["raised ValueError: \\x1b[31mred (line 2 of mine.py)"]


def test_a_table_without_rows_has_no_header():
    cases = {f"heads/{i}": {"verdict": "right"} for i in range(41)}
    assert table({"cases": cases, "counts": {"right": 41}, "missing": {}, "notes": []}) == "\n41 cases: 41 right\n"


def test_where_a_verdict_lies():
    root, where = Path("/a/project"), submissions.place
    assert where(root / "mine.py", root) == "mine.py"
    assert where(root / "kernels" / "v1.2" / "mine.py", root) == "kernels/v1.2/mine.py"
    odd = [
        root / "my file;.py",
        root / "my_file_.py",
        Path("/a/other/mine.py"),
        Path("/a/mine.py"),
        root,
        root / "..x",
        root / "x",
        Path("/"),
    ]
    assert len({where(path, root) for path in odd}) == len(odd)
    assert re.fullmatch("my_file_.py-[0-9a-f]{8}", where(odd[0], root)) and where(Path("/"), root).startswith("submission-")


def python(tmp_path: Path, text: str) -> dict:
    (tmp_path / "mine.py").write_text(text, "utf-8")
    return judged(tmp_path / "mine.py")["cases"]


RIGHT = (ROOT / "examples" / "attention_right.py").read_text("utf-8")
SMALL = """
references: [torch.sdpa]
cases: {only: {sizes: {Lq: 3, d_model: 2}, parameters: {x: {grid: {}}, w_q: {grid: {c: 1}}, w_k: {grid: {c: 2}}, w_v: {grid: {c: 3}}}}}
"""
RAISES = "def attention(case, arrays):\n    raise E\n"


@pytest.mark.parametrize(
    ("text", "word", "says"),
    [
        (RIGHT, "right", ""),
        (RIGHT + "\nwhole = attention\ndef attention(case):\n    return whole(case, case['parameters'])['output']\n", "right", ""),
        ("def attention(case, arrays):\n    return arrays['nothing']\n", "failed", "raised KeyError: 'nothing' (line 2 of mine.py)"),
        ("def attention(case, arrays):\n    raise SystemExit(3)\n", "failed", "raised SystemExit: 3"),
        ("def attention(case, arrays):\n    raise KeyboardInterrupt\n", "failed", "raised KeyboardInterrupt (line 2 of mine.py)"),
        ("def attention(case, arrays):\n    raise NotImplementedError('no time')\n", "unsupported", "no time"),
        ("class E(ValueError):\n    def __str__(self):\n        raise E\n" + RAISES, "failed", "raised E: its text cannot be had (line 5"),
        ("class E(NotImplementedError):\n    def __str__(self):\n        raise E\n" + RAISES, "unsupported", "its text cannot be had"),
        ("def attention(case, arrays):\n    return None\n", "unsupported", "returned nothing"),
        ("def attention(case, arrays):\n    return [[1], [2, 3]]\n", "failed", "raised ValueError"),
        ("def attention(case, arrays):\n    return {'output': object()}\n", "failed", "Python objects"),
        (
            "def attention(case, arrays):\n    return {'../../output': arrays['x']}\n",
            "unreadable",
            "returned no array of the case; it has q, k, v",
        ),
        ("def attention(case, arrays):\n    return {}\n", "unreadable", "returned no array of the case; it has q, k, v"),
        ("def attention(case, arrays):\n    return 'text'\n", "unreadable", "should hold real numbers"),
        (
            "import numpy as np\ndef weights(case, arrays):\n    e = np.exp(arrays['masked'])\n    return e / e.sum(-1)[..., None]\n",
            "right",
            "",
        ),
        (
            "import numpy as np\ndef weights(case, arrays):\n    e = np.exp(arrays['masked'])\n    return e / e.sum(-2)[..., None, :]\n",
            "wrong",
            "",
        ),
        ("def scores(case, arrays):\n    return {'qk': arrays['q_heads'] @ arrays['k_heads'].swapaxes(-1, -2)}\n", "right", ""),
        ("def scores(case, arrays):\n    return arrays['q_heads']\n", "wrong", ""),
        ("def projections(case, arrays):\n    return arrays['x']\n", "failed", "should return a dict"),
        ("def outputs(case):\n    return 0 * case['parameters']['x']\n", "wrong", ""),
    ],
)
def test_python_file(tmp_path: Path, text: str, word: str, says: str):
    case = python(tmp_path, text)["handworked/two_heads"]
    assert case["verdict"] == word, case
    assert says in "".join(case["problems"])


def test_one_stage_of_a_file_is_blamed_alone(tmp_path: Path):
    text = "def scores(case, arrays):\n    qk = arrays['q_heads'] @ arrays['k_heads'].swapaxes(-1, -2)\n"
    text += "    return {'qk': qk, 'scaled': qk, 'masked': qk}\n"
    case = python(tmp_path, text + "def outputs(case, arrays):\n    return arrays['concat'] @ arrays['w_o'].T\n")["handworked/two_heads"]
    assert case["stages"]["scores"] == "wrong"
    assert case["diagnosis"]["sentence"].startswith("what you sent equals: no scale")


def test_arrays_of_a_python_file_with_other_names_are_noted(tmp_path: Path):
    text = RIGHT + "\nwhole = attention\ndef attention(case, arrays):\n    o = whole(case, arrays)['output']\n"
    text += "    return {'output': o, 'Output': o, 'x': o, '../k': o, 3: o, '.q' + 300 * 'q': o}\n"
    (tmp_path / "mine.py").write_text(text, "utf-8")
    found = judged(tmp_path / "mine.py")
    assert found["cases"]["handworked/two_heads"]["verdict"] == "right"
    output, x, path, number, long = [note for note in found["notes"] if note.startswith("handworked/two_heads/")]
    assert output == "handworked/two_heads/Output: extra, the case has no such array; did you mean output?"
    assert x == "handworked/two_heads/x: extra, it is a parameter of the case and ours is used"
    assert path.startswith("handworked/two_heads/../k: extra, the case has no such array")
    assert number.startswith("handworked/two_heads/3: extra") and long.startswith("handworked/two_heads/.qqq") and len(long) < 300


IN_PLACE = """import numpy as np
def scores(case, arrays):
    kept = arrays['q_heads'] @ np.swapaxes(arrays['k_heads'], -1, -2)
    made = {'qk': kept.copy()}
    kept *= case['scale_factor']
    case['scale_factor'] = 0
    return made | {'scaled': kept, 'masked': kept}
def weights(case, arrays):
    s = arrays['masked']
    s -= s.max(-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(-1, keepdims=True)
    for name, array in [*arrays.items(), *case['parameters'].items()]:
        if array is not s:
            array[...] = 0
    return {'weights': s, 'qk': 0 * s} | case['parameters']
def outputs(case, arrays):
    o = arrays['concat']
    o = o @ arrays['w_o'].T if 'w_o' in arrays else o
    return o + case['parameters'].get('b_o', 0)
"""


def test_functions_may_work_in_place(tmp_path: Path):
    assert {case["verdict"] for case in python(tmp_path, IN_PLACE).values()} == {"right"}


def test_bfloat16_tensors(tmp_path: Path):
    pytest.importorskip("torch")
    text = "import torch\ndef scores(case, arrays):\n    q, k = torch.tensor(arrays['q_heads']), torch.tensor(arrays['k_heads'])\n"
    text += "    return {'qk': (q @ k.mT).bfloat16()}\n"
    text += "def weights(case, arrays):\n    return torch.tensor(arrays['masked']).softmax(-1).bfloat16()\n"
    text += (
        "def contexts(case, arrays):\n    return {'contexts': torch.tensor(arrays['weights']).double() @ torch.tensor(arrays['v_heads'])}\n"
    )
    case = python(tmp_path, text)["handworked/two_heads"]
    assert case["verdict"] == "right"
    assert case["contract"] == "float32 accumulation (bfloat16) until weights, float64 from contexts"  # each as it shows itself


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def attention(case, arrays)\n    pass\n", "raised SyntaxError: expected ':' (line 1 of mine.py)"),
        ("raise KeyboardInterrupt\n", "raised KeyboardInterrupt (line 1 of mine.py)"),
        ("import os\ndef attention(case):\n    os._exit(0)\n", "ended by itself before handworked/two_heads was answered"),
        ("import nothing_of_this_name\n", "raised ModuleNotFoundError: No module named 'nothing_of_this_name' (line 1 of mine.py)"),
        ("x = 1\n", "defines no function attention"),
        ("import os\nos._exit(7)\n", "ended with code 7"),
    ],
)
def test_python_file_that_is_of_no_use(tmp_path: Path, text: str, says: str):
    with pytest.raises(Unreadable) as found:
        python(tmp_path, text)
    assert says in str(found.value)


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("os._exit(9)", "ended with code 9"),
        ("os._exit(0)", "ended by itself"),
        ("os.kill(os.getpid(), 11)", "was ended by signal SIGSEGV"),
        ("time.sleep(60)", "took more than 8 seconds and was stopped"),
        ("os.closerange(3, 200); time.sleep(60)", "closed the channel on which it answers"),
        ("[os.write(fd, b'junk') for fd in pipes()]; time.sleep(60)", "took more than 8 seconds and was stopped"),
        ("[os.write(fd, bytes(64)) for fd in pipes()]", "wrote to where only answers belong"),
        ("[os.write(fd, forged) for fd in pipes()]", "wrote to where only answers belong"),
    ],
)
def test_an_end_leaves_what_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, says: str):
    """And the case at which it ended is a fault. What is written to every file that is open is no answer."""
    monkeypatch.setattr(submissions, "SECONDS", 8)
    text = RIGHT + "\nimport json, os, stat, time\nwhole, names = attention, []\ndef attention(case):\n    names.append(case['name'])\n"
    text += f"    if len(names) == 3:\n        {end}\n    return whole(case, case['parameters']) if len(names) == 1 else names[5]\n"
    text += (
        "def pipes():\n    return [fd for fd in range(3, 64) if os.path.exists(f'/dev/fd/{fd}') and stat.S_ISSOCK(os.fstat(fd).st_mode)]\n"
    )
    text += "forged = json.dumps({'word': 'unsupported', 'text': '', 'names': [], 'arrays': []}).encode()\n"
    text += "forged = bytes(16) + len(forged).to_bytes(8) + bytes(8) + forged\n"
    (tmp_path / "mine.py").write_text(text, "utf-8")
    found = judged(tmp_path / "mine.py")
    assert {key: case["verdict"] for key, case in found["cases"].items()} == {
        "handworked/two_heads": "right",
        "handworked/one_head": "failed",
        "handworked/without_bias": "failed",
    }
    assert found["cases"]["handworked/one_head"]["problems"][0].startswith("raised IndexError: list index out of range (line ")
    assert found["cases"]["handworked/without_bias"]["problems"][0].startswith(says)
    (note,) = found["notes"]
    assert note.startswith(f"mine.py: {says}") and note.endswith(
        " before handworked/without_bias was answered; cases that came before are judged"
    )


def test_a_second_answer_is_not_taken_for_that_to_the_next_case(tmp_path: Path):
    """Sent with the token of the first case, which only code that looks for it finds."""
    text = RIGHT + "\nimport gc, socket, sys\nfrom worked_attention.referee.caller import frame\nwhole = attention\n"
    text += "def attention(case, arrays):\n    up = sys._getframe()\n"
    text += "    while 'token' not in up.f_locals:\n        up = up.f_back\n"
    text += "    made = {'output': whole(case, arrays)['output']}\n"
    text += "    for channel in [thing for thing in gc.get_objects() if type(thing) is socket.socket and thing.fileno() > 0]:\n"
    text += "        channel.sendall(frame(up.f_locals['token'], {'word': None, 'text': '', 'names': []}, made))\n    return made\n"
    cases = python(tmp_path, text)
    assert {key: case["verdict"] for key, case in cases.items()} == {"handworked/two_heads": "right", "handworked/one_head": "failed"}
    assert cases["handworked/one_head"]["problems"] == ["wrote to where only answers belong, so that nothing more can be believed"]


SLEEPER = "import os, signal, subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'])\n"
SLEEPER += "open(__file__ + '.pid', 'w').write(str(child.pid))\n"


def gone(path: Path) -> bool:
    """Whether the process whose number stands in the file ends within some seconds."""
    for _ in range(100):
        try:
            os.kill(int(path.read_text()), 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{path.read_text()}/stat").exists() and Path(f"/proc/{path.read_text()}/stat").read_text().split()[2] == "Z":
            return True  # dead, and nobody has asked for it yet
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("then", ["return None", "time.sleep(60)", "os._exit(0)"])
def test_a_process_that_is_left_over_ends_with_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str):
    monkeypatch.setattr(submissions, "SECONDS", 5)
    (tmp_path / "mine.py").write_text(SLEEPER + f"def attention(case):\n    {then}\n", "utf-8")
    began = time.monotonic()
    with contextlib.suppress(Unreadable):
        judged(tmp_path / "mine.py")
    assert time.monotonic() - began < 20
    assert gone(tmp_path / "mine.py.pid")


def test_what_a_submission_started_ends_when_the_judge_is_killed(tmp_path: Path):
    (tmp_path / "mine.py").write_text(SLEEPER + "def attention(case):\n    time.sleep(60)\n", "utf-8")
    code = f"""if True:
        import sys
        sys.path[:0] = [{str(ROOT / "workflow" / "scripts")!r}]
        from pathlib import Path
        from worked_attention.cases.suites import load_suite
        from worked_attention.referee.submissions import Submission
        suites = {{"handworked": load_suite(Path({str(FOLDER / "handworked.yaml")!r}), {{"max_array_mb": 256}})}}
        next(Submission(Path({str(tmp_path / "mine.py")!r}), suites, {{"handworked": Path()}}).answers())
    """
    with subprocess.Popen([sys.executable, "-c", code]) as judge:
        while not (tmp_path / "mine.py.pid").exists() or not (tmp_path / "mine.py.pid").read_text():
            assert judge.poll() is None
            time.sleep(0.05)
        judge.kill()
    assert gone(tmp_path / "mine.py.pid")


def test_what_is_printed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running, "PRINTED", 100_000)
    text = "import os, sys\nprint('loaded \x1b[31m')\ndef attention(case):\n    if case['name'] == 'one_head':\n"
    text += "        print('ä' * 10, file=sys.stderr)\n        os.system('echo from below')\n"
    text += "    if case['name'] == 'batched':\n        print('x' * 200_000)\n"
    (tmp_path / "mine.py").write_text(text, "utf-8")
    submission = Submission(tmp_path / "mine.py", {"handworked": SUITES["handworked"]}, {"handworked": FOLDER})
    assert {sent.word for _, _, sent in submission.answers()} == {"unsupported"}
    parts = dict(part.split("\n", 1) for part in submission.output.split("== ")[1:])
    assert parts.pop("loading it") == "loaded \\x1b[31m\n"
    assert parts.pop("handworked/one_head") == "ä" * 10 + "\nfrom below\n"
    assert 90_000 < len(parts.pop("handworked/batched")) <= 100_001
    (left,) = parts
    assert re.fullmatch(r"100,\d\d\d more bytes were left out", left)


def test_what_is_printed_before_an_end_is_kept(tmp_path: Path):
    (tmp_path / "mine.py").write_text("print('so far')\nimport nothing_of_this_name\n", "utf-8")
    submission = Submission(tmp_path / "mine.py", {"handworked": SUITES["handworked"]}, {"handworked": FOLDER})
    with pytest.raises(Unreadable, match="No module named 'nothing_of_this_name'"):
        list(submission.answers())
    assert submission.output == "== loading it\nso far\n"


def test_many_unknown_files_are_counted(tmp_path: Path):
    write(tmp_path / "mine", ONE, {"output": compute(ONE)["output"]})
    for i in range(20_000):
        (tmp_path / "mine" / "handworked" / "two_heads" / f"layer{i}.npy").touch()
    began = time.process_time()
    found = judged(tmp_path / "mine")
    assert time.process_time() - began < 5
    assert found["cases"]["handworked/two_heads"]["verdict"] == "right"
    assert len(found["notes"]) == submissions.NOTES + 1
    assert found["notes"][-1] == f"... and {20_000 - submissions.NOTES:,} more names that this project does not have"


def test_equal_failures_share_a_row(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def attention(case):\n    import nothing_of_this_name\n", "utf-8")
    found = judged(tmp_path / "mine.py", "handworked", "heads", "masks")
    assert len(found["cases"]) > 40
    row, *rest = [line for line in table(found).splitlines() if "nothing_of_this_name" in line]
    assert not rest and row.startswith(f"handworked/two_heads and {len(found['cases']) - 1} more  failed")


def test_stopping_at_the_first_fault(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def attention(case):\n    open(__file__ + '.calls', 'a').write('x')\n    return [0.0]\n", "utf-8")
    chosen = {"handworked": SUITES["handworked"]}
    found = judge_all(Submission(tmp_path / "mine.py", chosen, {"handworked": FOLDER}), chosen, stop=("wrong",))
    assert found["counts"] == {"wrong": 1} and (tmp_path / "mine.py.calls").read_text() == "x"


@pytest.mark.parametrize(
    ("words", "allowed", "says"),
    [
        (["right", "right"], (), None),
        (["right", "wrong"], ("convention", "unsupported"), "1 wrong"),
        (["right", "unsupported"], (), "1 unsupported"),
        (["right", "unsupported"], ("unsupported",), None),
        (["right", "convention", "convention"], ("unsupported",), "2 convention"),
        (["convention"], ("convention",), None),
        (["right", "undecided"], ("convention", "unsupported"), "1 undecided"),
        (["right", "unreadable", "failed"], ("convention", "unsupported"), "1 failed, 1 unreadable"),
        (["unsupported"], ("unsupported",), "nothing was judged"),
        ([], (), "nothing was judged"),
    ],
)
def test_what_verdicts_come_to(words: list[str], allowed: tuple, says: str | None):
    assert objection(counts(words), allowed) == says


def test_a_word_that_is_no_verdict_is_refused():
    with pytest.raises(ValueError, match="no verdict is called rihgt"):
        counts(["right", "rihgt"])


def test_a_file_named_like_our_own_modules(tmp_path: Path):
    for name in ("attention.py", "numpy.py", "referee.py"):
        (tmp_path / name).write_text(RIGHT)
    assert judged(tmp_path / "attention.py")["cases"]["handworked/two_heads"]["verdict"] == "right"


TAKEN = ("attention", "cases", "plots", "weights", "parameters", "judge", "scores", "files", "imports", "stages")


def test_a_submission_imports_what_lies_beside_it(tmp_path: Path):
    """And not what we call by the same name; none of our scripts is on its path either."""
    for name in TAKEN:
        (tmp_path / f"{name}.py").write_text(f"mine = {name!r}\n", "utf-8")
    text = "import importlib\n" + "".join(f"import {name}\n" for name in TAKEN)
    text += f"assert [module.mine for module in ({', '.join(TAKEN)})] == {list(TAKEN)}\n"
    text += "for name in ('comparison', 'truth', 'summary', 'conformance_suite'):\n"
    text += "    assert importlib.util.find_spec(name) is None, name\n"
    assert python(tmp_path, text.replace("import importlib", "import importlib.util") + RIGHT)["handworked/two_heads"]["verdict"] == "right"


def test_a_workflow_runs_and_judges_where_packages_of_its_names_are_installed(project: Path, tmp_path: Path):
    """Each of them raises when it is imported; also an installed worked_attention, which is not the one of this checkout."""
    scripts = [path.stem for path in (ROOT / "workflow" / "scripts").glob("*.py")]
    for name in {*scripts, *TAKEN, "referee", "references", "drawing", "schemas", "worked_attention"}:
        (tmp_path / "installed" / name).mkdir(parents=True)
        (tmp_path / "installed" / name / "__init__.py").write_text("raise ImportError('this is somebody else')\n")
    (tmp_path / "mine.py").write_text(RIGHT, "utf-8")
    suites = with_suites(project) / "config" / "suites"
    (suites / "small.yaml").write_text(SMALL, "utf-8")
    done = run(project, "all", "judge", "--config", f"submission={tmp_path / 'mine.py'}", env={"PYTHONPATH": str(tmp_path / "installed")})
    assert done.returncode == 0, done.stderr
    assert (project / "results" / "verdict.txt").is_file()
    assert read(project, tmp_path / "mine.py")["small/only"]["verdict"] == "right"


# Printed numbers


def printed(array: np.ndarray, digits: int) -> list:
    """Nested lists of text with so many decimals."""
    return [printed(row, digits) for row in array] if array.ndim else f"{array:.{digits}f}"


def answers(folder: Path, **arrays: object) -> dict:
    """The verdict on JSON files of the hand-worked case."""
    target = folder / "mine" / "handworked" / "two_heads"
    target.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        (target / f"{name}.json").write_text(json.dumps(array), "utf-8")
    return judged(folder / "mine")["cases"]["handworked/two_heads"]


def test_numbers_rounded_to_their_decimals_are_right(tmp_path: Path):
    """A hand calculation at four decimals: from full precision, and from the printed weights; in full they would be wrong."""
    made = compute(ONE)
    weights_, concat = printed(made["weights"], 4), made["concat"]
    found = answers(tmp_path / "full", weights=weights_, output=printed(made["output"], 4))
    assert (found["verdict"], found["contract"]) == ("right", "numbers rounded to 4 decimals")
    by_hand = np.array(weights_, dtype=float) @ made["v_heads"]
    output = contexts.merge_heads(by_hand) @ parameters.stage(ONE, FOLDER)["w_o"].T + parameters.stage(ONE, FOLDER)["b_o"]
    assert np.abs(by_hand - made["contexts"]).max() > 5e-6 and concat.shape == (3, 4)
    assert answers(tmp_path / "hand", weights=weights_, output=printed(output, 4))["verdict"] == "right"
    assert answers(tmp_path / "digits", weights={"digits": 4, "values": np.round(made["weights"], 4).tolist()})["verdict"] == "right"
    assert answers(tmp_path / "floats", weights=np.round(made["weights"], 4).tolist())["verdict"] == "wrong"


def test_a_digit_that_is_wrong_is_wrong(tmp_path: Path):
    weights_ = printed(compute(ONE)["weights"], 4)
    weights_[1][2][0] = f"{float(weights_[1][2][0]) + 0.0002:.4f}"
    found = answers(tmp_path, weights=weights_)
    assert found["first_wrong_stage"] == "between parameters and weights" and found["worst"]["index"] == [1, 2, 0]
    assert found["worst"]["bound"] == pytest.approx(5e-5, rel=1e-3)


HAND = {  # the first query as the article prints it
    "weights": [[["0.2831", "0.4172", "0.2997"], None, None], None],
    "contexts": [[["0.3182", "0.2256"], None, None], [["0.1852", "0.0810"], None, None]],
    "output": {"digits": 4, "values": [[0.2705, 0.0593, 0.2071, -0.0055], None, None]},
}


def by_hand(folder: Path, answer: object) -> dict:
    """The verdict on a Python file that returns this for the hand-worked case."""
    folder.mkdir()
    (folder / "hand.py").write_text(f"def attention(case):\n    return {answer!r} if case['name'] == 'two_heads' else None\n", "utf-8")
    return judged(folder / "hand.py")["cases"]["handworked/two_heads"]


def test_a_python_file_may_answer_with_printed_numbers(tmp_path: Path):
    found = by_hand(tmp_path / "right", HAND)
    assert (found["verdict"], found["contract"]) == ("right", "numbers rounded to 4 decimals"), found
    assert by_hand(tmp_path / "alone", HAND["output"])["verdict"] == "right"
    slip = {**HAND, "contexts": [[["0.3182", "0.2257"], None, None], None]}
    found = by_hand(tmp_path / "slip", slip)
    assert (found["verdict"], found["worst"]["array"], found["worst"]["index"]) == ("wrong", "contexts", [0, 0, 1])
    assert by_hand(tmp_path / "floats", {"weights": [[0.2831, 0.4172, 0.2997]] * 3})["verdict"] == "wrong"
    for answer, words in (({"output": None}, "holds null only"), ({"output": [["a"]]}, 'holds "a"'), ({"output": [["1"], "1"]}, "ragged")):
        found = by_hand(tmp_path / words[-5:].strip('"'), answer)
        assert found["verdict"] == "failed" and words in found["problems"][0], found


def test_decimals_can_be_told_of_all_numbers(tmp_path: Path):
    """--config digits=4: arrays in a file, and a wrong digit; NaN is an answer, and text keeps its own decimals."""
    target = tmp_path / "mine" / "handworked" / "two_heads"
    target.mkdir(parents=True)
    chosen = {"handworked": SUITES["handworked"]}

    def found(digits: int | None, dtype: str = "float64") -> dict:
        np.save(target / "weights.npy", weights_.astype(dtype))
        return judge_all(Submission(tmp_path / "mine", chosen, {"handworked": FOLDER}), chosen, digits=digits)["cases"][
            "handworked/two_heads"
        ]

    printed_heads = json.loads((ROOT / "tests" / "data" / "handworked.json").read_text("utf-8"))["per_head"]
    weights_ = np.round([head["weights"] for head in printed_heads], 4)
    assert (found(4)["verdict"], found(4)["contract"]) == ("right", "numbers rounded to 4 decimals")
    assert found(4, "float32")["verdict"] == "right"
    assert found(None)["verdict"] == "wrong" and found(5)["verdict"] == "wrong"
    (target / "output.json").write_text(json.dumps(printed(compute(ONE)["output"], 2)), "utf-8")
    assert found(4)["contract"] == "numbers rounded to 4 decimals until weights, numbers rounded to 2 decimals from outputs"
    weights_[1, 2, 0] += 0.0001
    assert found(4)["worst"]["index"] == [1, 2, 0]
    weights_[1, 2, 0] = np.nan
    assert found(4)["verdict"] == "wrong"


def test_what_is_left_open_is_not_judged(tmp_path: Path):
    made = compute(ONE)
    row = printed(made["weights"], 4)
    row[0], row[1][1], row[1][2][0] = None, None, None
    found = answers(tmp_path / "right", weights=row, output=made["output"].tolist())
    assert found["verdict"] == "right" and found["contract"] == "numbers rounded to 4 decimals until weights, float64 from outputs"
    row[1][0][2] = "0.9999"
    found = answers(tmp_path / "wrong", weights=row)
    assert found["verdict"] == "wrong" and found["worst"]["index"] == [1, 0, 2] and found["worst"]["got"] == 0.9999
    for spoiled in (["0.0000"] * 3, ["0.3333"] * 3):
        row[1][0] = spoiled
        assert answers(tmp_path / "spoiled", weights=row)["verdict"] == "wrong"
    assert answers(tmp_path / "none", weights=None)["problems"] == ["weights.json: holds null only"]


# The command


def judge(project: Path, path: str, *config: str) -> subprocess.CompletedProcess:
    return run(project, "judge", "--config", "suites=[handworked]", f"submission={path}", *config, cores=1)


def read(project: Path, path: Path | str) -> dict:
    place = submissions.place((project / path).resolve(), project.resolve())
    return json.loads((project / "results" / "judge" / place / "verdict.json").read_bytes())["cases"]


def test_judge_examples_in_python(project: Path):
    shutil.copytree(ROOT / "examples", project / "examples")
    done = judge(project, "examples/attention_wrong.py")
    assert done.returncode == 1
    assert "Error: submission examples/attention_wrong.py: 5 wrong; " in done.stderr and "Traceback" not in done.stderr
    assert "first wrong: scores" in done.stdout
    assert "what you sent equals: divided by sqrt(d_model), or the scale applied twice, or " in done.stdout
    case = read(project, "examples/attention_wrong.py")["handworked/two_heads"]
    assert (case["verdict"], case["first_wrong_stage"], case["contract"]) == ("wrong", "scores", None)
    assert case["diagnosis"]["mistakes"][0]["name"] == "divided_by_sqrt_d_model"
    page = (project / "results" / "judge" / "examples" / "attention_wrong.py" / "verdict.html").read_text("utf-8")
    assert "What you sent equals: divided by sqrt(d_model)" in page and "http" not in page and "<script" not in page
    assert judge(project, "examples/attention_wrong.py", "keep_going=true").returncode == 0
    done = judge(project, "examples/attention_right.py")
    assert done.returncode == 0, done.stderr
    assert {case["verdict"] for case in read(project, "examples/attention_right.py").values()} == {"right"}


def test_two_files_of_one_name_have_a_verdict_each(project: Path):
    for folder, text in (("a", RIGHT), ("b", "print('from b')\ndef attention(case):\n    raise NotImplementedError\n")):
        (project / folder).mkdir()
        (project / folder / "mine.py").write_text(text, "utf-8")
    assert judge(project, "a/mine.py").returncode == 0
    done = judge(project, "b/mine.py")
    assert done.returncode == 1 and "Error: submission b/mine.py: nothing was judged" in done.stderr
    assert {case["verdict"] for case in read(project, "a/mine.py").values()} == {"right"}
    assert {case["verdict"] for case in read(project, "b/mine.py").values()} == {"unsupported"}
    assert "What it printed: results/judge/b/mine.py/output.txt" in done.stdout
    assert (project / "results" / "judge" / "b" / "mine.py" / "output.txt").read_text("utf-8") == "== loading it\nfrom b\n"


def test_one_failing_import_is_one_line(project: Path):
    (project / "mine.py").write_text("print('so far')\nimport nothing_of_this_name\n", "utf-8")
    done = judge(project, "mine.py")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: submission")]
    assert "No module named 'nothing_of_this_name' (line 2 of mine.py); What it printed: results/judge/mine.py/output.txt" in line


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.parametrize(("flags", "word", "stage"), [([], "right", None), (["-DMISTAKE"], "wrong", "contexts")])
def test_judge_example_in_c(project: Path, tmp_path: Path, flags: list[str], word: str, stage: str | None):
    program = tmp_path / "program"
    source = ROOT / "examples" / "attention.c"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-O2", *flags, "-o", program, source, "-lm"], check=True)
    subprocess.run([program, tmp_path / "from_c"], check=True)
    assert judge(project, str(tmp_path / "from_c")).returncode == (word == "wrong")
    case = read(project, tmp_path / "from_c")["handworked/two_heads"]
    assert (case["verdict"], case["first_wrong_stage"]) == (word, stage)
    assert case["contract"] == ("float32" if word == "right" else None)
    if stage:
        assert case["diagnosis"]["mistakes"][0]["name"] == "merged_without_transpose"


def test_judge_without_a_submission(project: Path):
    for path, says in ((None, "which submission?"), ("", "which submission?"), ("nowhere", "no such file or folder")):
        done = run(project, "judge", "--config", "suites=[handworked]", cores=1) if path is None else judge(project, path)
        assert done.returncode != 0
        assert says in done.stderr and "Traceback" not in done.stderr
