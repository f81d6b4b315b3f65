"""Cases of which a sample of queries is looked at: what is cut out of them, how they are computed, and what is noticed."""

import json
import math
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped

from worked_attention.cases.strict_yaml import Problems
from worked_attention.cases.suites import load_suite
from worked_attention.files.artifacts import read_parts
from worked_attention.files.formats import read_json, write_array
from worked_attention.referee.truth.masks import seen
from worked_attention.referee.truth.parts import Part
from worked_attention.stages import rows
from worked_attention.stages.catalogue import TABLES
from worked_attention.stages.masks import combined
from worked_attention.stages.whole import compute, from_parameters

SCRIPTS = ROOT / "workflow" / "scripts"
FORWARD = ("projections", "scores", "weights", "contexts", "outputs")
SUITE = """
references: [torch.manual]
cases:
  layer:
    heads: 2
    sizes: {Lq: 40, d_model: 8}
    parameters:
      {x: {normal: {seed: 1}}, w_q: {normal: {seed: 2}}, w_k: {normal: {seed: 3}}, w_v: {normal: {seed: 4}}, w_o: {normal: {seed: 5}}}
    mask: {causal: top_left}
    sinusoidal: {}
  heads:
    heads: 2
    dtype: bfloat16
    sizes: {Lq: 40, Lk: 44, d_k: 4}
    parameters: {q_heads: {normal: {seed: 1}}, k_heads: {normal: {seed: 2}}, v_heads: {normal: {seed: 3}}}
    mask: {causal: bottom_right, window: {left: 9, right: 0}}
  tables:
    heads: 2
    sizes: {Lq: 40, Lk: 44, d_k: 6, buckets: 8}
    parameters: {q_heads: {normal: {seed: 1}}, k_heads: {normal: {seed: 2}}, v_heads: {normal: {seed: 3}}, t5_table: {normal: {seed: 4}}}
    positions: {offset: 4}
    rotary: {pairing: half, dims: 4}
    alibi: {slopes: interleaved}
    t5: {direction: both, longest: 16}
"""


class Inputs(dict):
    """What snakemake.input is to a script."""

    __getattr__ = dict.__getitem__


def script(name: str, folder: Path, output: str, inputs: dict[str, str], **more: object) -> None:
    """Run the script of a rule as a job does, with these parameters and wildcards."""
    given = Inputs({key: str(folder / value) for key, value in inputs.items()})
    (folder / output).mkdir(parents=True, exist_ok=True)
    job = SimpleNamespace(input=given, output=[str(folder / output)], log=[str(folder / "log")], **more)
    before = sys.dont_write_bytecode
    try:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), {"snakemake": job})
    except SystemExit as ended:
        raise AssertionError((folder / "log").read_text("utf-8")) from ended
    finally:
        sys.dont_write_bytecode = before


def stages(folder: Path, text: str, whole: float) -> dict[str, str]:
    """Compute every stage of a suite below `folder`, looking at cases larger than `whole` megabytes in a sample; the folders by stage."""
    folder.mkdir(exist_ok=True)
    (folder / "suite.yaml").write_text(text, "utf-8")
    script("parameters", folder, "parameters", {"suite": "suite.yaml"}, params=SimpleNamespace(whole=whole))
    made = {"parameters": "parameters"}
    for stage in FORWARD:
        script(stage, folder, stage, made)
        made[stage] = stage
    return made


def compared(folder: Path, made: dict[str, str], names: Sequence[str] = ("manual",)) -> dict[str, dict]:
    """Truth, these references of torch and the comparison of every case, by its name."""
    (folder / "truth").mkdir(exist_ok=True)
    script("truth", folder, "truth", made)
    wildcards = SimpleNamespace(library="torch")
    script("reference", folder, "torch", {"parameters": "parameters"}, params=SimpleNamespace(names=names), wildcards=wildcards)
    asked = SimpleNamespace(references=[f"torch.{name}" for name in names], gates={"rule": "certified"})
    script("comparison", folder, "comparison", made | {"truth": "truth", "torch": "torch"}, params=asked)
    return {path.stem: read_json(path) for path in (folder / "comparison").glob("*.json")}


def test_a_sample_has_the_first_and_last_queries_and_both_sides_of_edges_of_blocks() -> None:
    found = rows.sample(4096)
    assert {0, 1, 63, 64, 127, 128, 2048, 3967, 3968, 4031, 4032, 4094, 4095} <= set(found) and found == sorted(set(found))
    assert 13 < len(found) <= 13 + rows.DRAWN and found == rows.sample(4096) != rows.sample(4097)
    assert rows.sample(1) == [0] and set(rows.sample(40)) < set(range(40)) and {0, 1, 20, 38, 39} <= set(rows.sample(40))


def test_blocks_are_all_queries_once_and_none_is_much_shorter_than_another() -> None:
    case = {"shapes": {"masked": [8, 1025, 1024]}, "backward": None}
    parts = rows.blocks(case, 2**18)
    assert [i for part in parts for i in part] == list(range(1025)) and len(parts) == math.ceil(8 * 1025 * 1024 / 2**18)
    assert {len(part) for part in parts} <= {31, 32} and len(rows.blocks(case | {"backward": "ones"}, 2**18)) == 1


@pytest.mark.parametrize("suite", ["masks", "positions", "heads", "cache"])
def test_a_part_of_a_shipped_case_is_rows_of_it(suite: str) -> None:
    """Each case computed from its even queries alone is what the whole case has there: up to roundings, for shorter sums may be
    made in another order; masks exactly. The truth's own masks, too."""
    cases = [case for case in shipped(suite)["cases"].values() if not case["backward"] and case["mask"]["empty_row"] != "error"]
    assert cases
    for case in cases:
        whole, chosen = compute(case, ROOT / "config" / "suites"), list(range(0, case["dims"]["Lq"], 2))

        def some(name: str, case: dict = case, whole: dict = whole, chosen: list = chosen) -> np.ndarray:
            array, axis = whole[rows.stored(case, name)], rows.along(name)
            return array if axis is None or len(case["tokens"]) != array.shape[axis] else np.take(array, chosen, axis)

        part = rows.cut(case, chosen)
        given = {name: some(name) for name in part["arrays"]["parameters"]}
        for name, array in from_parameters(part, given).items():
            assert list(array.shape) == part["shapes"][name], (case["name"], name)
            assert np.allclose(array.astype(float), some(name).astype(float), 1e-5, 1e-5, equal_nan=True) or array.itemsize == 2, name
        keep = combined(part, given)
        for b in range(case["dims"].get("B", 1) if keep is not None else 0):
            own = np.broadcast_to(keep, some("masked").shape)[b if "B" in case["dims"] else ...]
            first = Part(part, given).cut(b=b).cut(h=0)
            assert np.array_equal(seen(part, first), own[0]), case["name"]


def test_masks_of_a_part_count_from_the_whole() -> None:
    case = rows.cut(shipped("masks")["cases"]["causal_top_left"], [1, 2])
    assert combined(case, {}).astype(int)[..., :3].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert seen(case, Part(case, {"x": np.zeros((2, 4))})).astype(int)[:, :3].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_streamed_stages_have_the_bytes_of_whole_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "COMPUTED", 2**18)
    large = """
cases:
  one: {heads: 8, dtype: float32, sizes: {Lq: 300, d_model: 64}, mask: {causal: top_left}, parameters:
    {x: {normal: {seed: 1}}, w_q: {normal: {seed: 2}}, w_k: {normal: {seed: 3}}, w_v: {normal: {seed: 4}}, w_o: {normal: {seed: 5}}}}
  tables: {heads: 8, dtype: float32, sizes: {Lq: 300, Lk: 300, d_k: 8, d_v: 1, buckets: 8}, rotary: {pairing: half},
    alibi: {slopes: geometric}, parameters:
    {q_heads: {normal: {seed: 1}}, k_heads: {normal: {seed: 2}}, v_heads: {normal: {seed: 3}}, t5_table: {normal: {seed: 4}}}}
"""
    for name, whole in (("whole", math.inf), ("streamed", 1.0)):
        stages(tmp_path / name, large, whole)
    for name in ("one", "tables"):
        case = read_json(tmp_path / f"streamed/parameters/{name}/case.json")
        assert case["sample"] and len(rows.blocks(case, rows.COMPUTED)) == 3 and rows.of_queries(case["arrays"]["scores"])
        assert read_json(tmp_path / f"whole/parameters/{name}/case.json")["sample"] is None
        assert not rows.of_queries(case["arrays"]["projections"])
    files = [path.relative_to(tmp_path / "whole") for stage in FORWARD for path in (tmp_path / "whole" / stage).rglob("*.*")]
    assert len(files) == 19 + 25 and not list((tmp_path / "streamed").rglob("*.part"))
    for file in files:
        assert (tmp_path / "streamed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


def test_a_comparison_in_parts_says_what_a_whole_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of right arrays, of a wrong number in the last part, of queries that see no key, and of half precision."""
    keep = json.dumps([[i != 3 and i >= j for j in range(40)] for i in range(40)])
    more = f"  empty: {{extends: layer, mask: {{causal: null, keep: {keep}}}, claims: {{output: {{at: [39, 0], values: '7'}}}}}}\n"
    made = stages(tmp_path, SUITE + more, math.inf)
    for wrong in (False, True):
        if wrong:
            array = np.load(tmp_path / "weights/layer/weights.npy")
            array[1, 38, 0] += 0.01
            write_array(tmp_path / "weights/layer/weights.npy", array)
        found = {}
        for most in (2**20, 600):
            monkeypatch.setattr(rows, "COMPARED", most)
            found[most] = compared(tmp_path, made, ["manual", "sdpa"])
        assert len(list(read_parts([tmp_path / stage for stage in made], read_json(tmp_path / "parameters/layer/case.json")))) == 6
        for name, result in found[600].items():
            whole = found[2**20][name]
            assert result["first_divergence"] == whole["first_divergence"] and result["claims"] == whole["claims"]
            assert (result["first_divergence"] is not None) == (wrong and name == "layer")
            for who, one in result["references"].items():
                other = whole["references"][who]
                for key in ("verdict", "contract", "empty_row", "first_divergence"):
                    assert one.get(key) == other.get(key), (name, who, key)
                assert list(one["arrays"]) == list(other["arrays"])
                for array, said in one["arrays"].items():
                    assert said["max_abs"] == other["arrays"][array]["max_abs"], (name, who, array)
                    assert said["verdict"] == other["arrays"][array]["verdict"], (name, who, array)
        assert found[600]["empty"]["references"]["torch.sdpa"]["empty_row"] == "zero"
        assert found[600]["heads"]["references"]["torch.manual"]["contract"].endswith("in half")


def test_a_wrong_number_in_a_sampled_row_is_noticed_and_another_row_is_told_as_not_looked_at(tmp_path: Path) -> None:
    made = stages(tmp_path, SUITE, 0.001)
    chosen = read_json(tmp_path / "parameters/layer/case.json")["sample"]
    other = next(i for i in range(40) if i not in chosen)
    results = compared(tmp_path, made)
    for result in results.values():
        assert {r["verdict"] for r in result["references"].values()} <= {"pass", "undecided"}
        assert result["looked_at"] == {"of": 40, "numbers": chosen, "why": rows.WHY} and other not in result["looked_at"]["numbers"]
    assert {r["verdict"] for name in ("layer", "tables") for r in results[name]["references"].values()} == {"pass"}
    of_positions = [results["tables"]["references"][who]["arrays"][name] for who in ("truth", "torch.manual") for name in TABLES]
    assert {result["verdict"] for result in of_positions} == {"pass"}
    path = tmp_path / "weights/layer/weights.npy"
    right = np.load(path)
    for row, verdict in ((other, "pass"), (chosen[3], "fail")):
        wrong = right.copy()
        wrong[1, row, 0] += 0.01
        write_array(path, wrong)
        found = compared(tmp_path, made)["layer"]
        assert {r["verdict"] for r in found["references"].values()} == {verdict}, row
        assert (found["first_divergence"] or {"array": None})["array"] == (None if verdict == "pass" else "weights")


def test_what_a_sample_cannot_say_is_refused_in_a_line(tmp_path: Path) -> None:
    case = "cases: {a: {dtype: float32, sizes: {Lq: 64, Lk: 64, d_k: 4}, parameters: {q_heads: {normal: {seed: 1}}, "
    case += "k_heads: {normal: {seed: 2}}, v_heads: {normal: {seed: 3}}}, %s}}\n"
    path = tmp_path / "suite.yaml"
    for more, words in (
        (
            "backward: ones",
            "case a: backward: needs all queries, but of cases larger than limits.max_whole_mb = 0.01 a sample of rows is looked at",
        ),
        (
            "claims: {weights: {at: [0, 0, 0], values: '0.5'}}",
            "case a: claims: may be about any row, but of cases larger than limits.max_whole_mb",
        ),
    ):
        path.write_text(case % more, "utf-8")
        with pytest.raises(Problems) as error:
            load_suite(path, {"max_array_mb": 1, "max_whole_mb": 0.01})
        assert len(str(error.value).splitlines()) == 1 and words in str(error.value)
        load_suite(path, {"max_array_mb": 1, "max_whole_mb": 1})


def test_the_judge_names_cases_that_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config" / "suites").mkdir(parents=True)
    (tmp_path / "config" / "suites" / "large.yaml").write_text(SUITE, "utf-8")
    monkeypatch.chdir(tmp_path)
    given = {"submission": "mine", "suites": ["large"], "limits": {"max_array_mb": 1, "max_whole_mb": 0.001}, "language": "en"}
    with pytest.raises(
        AssertionError,
        match=r"Error: Not judged, for of cases larger .*: large/layer, large/heads, large/tables; raise the limit",
    ):
        script("judge", tmp_path, "judge", {}, params=SimpleNamespace(**given))


def test_the_example_is_refused_by_its_size_until_the_limit_is_raised() -> None:
    with pytest.raises(Problems) as error:
        load_suite(ROOT / "examples" / "large.yaml", {"max_array_mb": 256, "max_whole_mb": 100})
    assert "qk [8, 4096, 4096] would take 537 MB (536,870,912 bytes), more than limits.max_array_mb = 256" in str(error.value)
    cases = load_suite(ROOT / "examples" / "large.yaml", {"max_array_mb": 600, "max_whole_mb": 100, "max_truth_mb": 3000})["cases"]
    assert all(case["sample"] == rows.sample(4096) for case in cases.values()) and json.dumps(cases)
