"""The studies: their numbers against closed forms and small cases by hand, their files, and what a suite may ask for."""

import csv
import itertools
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import contents, run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from shipped import all_shipped, shipped

from worked_attention.cases.fitting import STUDIES, fitting
from worked_attention.cases.strict_yaml import Problems
from worked_attention.cases.suites import load_suite
from worked_attention.stages.weights import row_entropy
from worked_attention.stages.whole import compute
from worked_attention.studies import evaluations, figures, tables
from worked_attention.studies.files import write_study

LIMITS = {"max_array_mb": 256}


def suite(name: str) -> dict:
    return shipped(name)["cases"]


def array(case: dict, name: str) -> np.ndarray:
    return compute(case)[name.split("/")[1]]


def test_each_study_is_asked_for_by_a_suite():
    suites = all_shipped().values()
    asked = [study for suite in suites for study in suite["studies"]]
    assert {study for study in asked if isinstance(study, str)} == set(STUDIES) == set(tables.COLUMNS)
    assert [list(study) for study in asked if isinstance(study, dict)] == [["columns"]]


def test_variance_is_that_of_a_sum_of_d_k_products():
    rows = tables.variance(fitting("variance", suite("scaling")), array)
    assert {row["scale"] for row in rows} == {"none", "1/sqrt(d_k)", "1/d_k"}
    for row in rows:
        assert row["qk_expected"] == row["d_k"]
        assert row["qk_variance"] == pytest.approx(row["d_k"], rel=0.1)
        expected = {"none": row["d_k"], "1/sqrt(d_k)": 1, "1/d_k": 1 / row["d_k"]}[row["scale"]]
        assert row["scaled_expected"] == pytest.approx(expected, rel=1e-15)
        assert row["scaled_variance"] == pytest.approx(expected, rel=0.1)


def test_entropy_of_known_weights():
    p = np.array([[0.25] * 4, [1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.25, 0.125, 0.125]])
    assert row_entropy(p) == pytest.approx(np.log(2) * np.array([2, 0, 1, 1.75]), abs=1e-15)


def test_norm_of_the_jacobian_is_that_of_the_matrix():
    p = np.random.default_rng(0).dirichlet(np.ones(5), size=7)
    matrices = [np.diag(row) - np.outer(row, row) for row in p]
    assert tables.jacobian_norm(p) == pytest.approx([np.linalg.norm(matrix) for matrix in matrices], rel=1e-13)
    for n in (1, 2, 9):
        assert tables.jacobian_norm(np.full(n, 1 / n)) == pytest.approx(np.sqrt(n - 1) / n, abs=1e-15)


def test_without_scale_the_softmax_saturates():
    rows = {row["case"]: row for row in tables.entropy(fitting("entropy", suite("scaling")), array)}
    root, none, linear = (rows[f"normal_d_k_256_scale_{kind}"] for kind in ("1_sqrt_d_k", "none", "1_d_k"))
    assert none["entropy"] < 0.5 < root["entropy"] < linear["entropy"] <= linear["entropy_at_most"] == pytest.approx(np.log(32))
    assert none["largest_weight"] > 0.8 > root["largest_weight"] > linear["largest_weight"] >= 1 / 32
    assert none["jacobian_norm"] < linear["jacobian_norm"] < root["jacobian_norm"]


def test_only_positions_and_masks_by_place_notice_an_order():
    cases = suite("order")
    rows = {row["case"]: row for row in tables.permutation(fitting("permutation", cases), array, cases)}
    assert len(rows) == len(cases) / 2
    assert rows["plain"]["order"] == "2 3 1 0"
    unnoticed = {case for case, row in rows.items() if row["largest_difference"] < 1e-13}
    assert unnoticed == {"plain", "padding"}
    assert all(row["largest_difference"] > 0.01 for case, row in rows.items() if case not in unnoticed)


def test_costs_are_those_of_the_formulas():
    rows = tables.costs(fitting("costs", suite("costs")))
    assert len(rows) == 13
    for row in rows:
        length, d, heads = row["L"], row["d_model"], row["H"]
        assert row["parameters"] == 4 * d**2 + 4 * d
        assert row["parameter_bytes"] == 8 * row["parameters"]
        assert row["projections_multiply_adds"] == 3 * length * d**2
        assert row["scores_multiply_adds"] == row["contexts_multiply_adds"] == length**2 * d
        assert row["outputs_multiply_adds"] == length * d**2
        assert row["multiply_adds"] == 4 * length * d**2 + 2 * length**2 * d
        assert row["weights_bytes"] == 8 * heads * length**2
    assert [row["L"] for row in tables.series(rows, "L")] == [16, 32, 64, 128, 256]
    assert [row["d_model"] for row in tables.series(rows, "d_model")] == [8, 16, 32, 64, 128]
    assert [row["H"] for row in tables.series(rows, "H")] == [1, 2, 4, 8, 16]


def test_paths_by_hand():
    assert tables.convolution(4).astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert tables.paths(tables.convolution(4)).tolist() == [[1, 1, 2, 3], [1, 1, 1, 2], [2, 1, 1, 1], [3, 2, 1, 1]]
    assert tables.recurrence_paths(3).tolist() == [[1, 0, 0], [2, 1, 0], [3, 2, 1]]
    assert tables.paths(np.array([[True]])).tolist() == [[1]]
    ring = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], dtype=bool)  # 0 to 1 to 2 to 0
    assert tables.paths(ring).tolist() == [[3, 2, 1], [1, 3, 2], [2, 1, 3]]


@pytest.mark.parametrize(("tokens", "width"), [(1, 3), (5, 1), (9, 3), (10, 5), (12, 7)])
def test_longest_path_of_a_convolution(tokens: int, width: int):
    radius, found = width // 2, tables.paths(tables.convolution(tokens, width))
    distance = abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    expected = np.where(distance == 0, 1, np.ceil(distance / radius) if radius else 0)
    assert found.tolist() == expected.tolist()


def test_reach_of_convolution_recurrence_and_attention():
    rows, drawn = tables.reach(fitting("reach", suite("reach")), array)
    found = {row["operation"]: row for row in rows}
    n, d = 8, 4
    assert [row["longest_path"] for row in rows] == [n - 1, n, 1, 1, n - 1, 4]
    assert [row["steps_in_a_row"] for row in rows] == [1, n, 1, 1, 1, 1]
    assert [row["unreachable"] for row in rows] == [0, 28, 0, 28, 0, 28]
    assert found["full"]["pairs"] == n**2
    assert found["causal"]["pairs"] == found["recurrence"]["pairs"] == n * (n + 1) / 2
    assert found["full"]["multiply_adds"] == 2 * n**2 * d
    assert found["convolution of width 3"]["multiply_adds"] == 3 * n * d**2
    paths = dict(drawn)
    assert (paths["attention: window"] == paths["convolution of width 3"]).all()


def test_sums_are_taken_in_their_order():
    """Next to 2^24 float32 has no odd number, and half of 2 is rounded to even: by hand, each order loses other ones."""
    big, one = 2.0**24, 1.0
    for terms, sequential, pairwise, blocked in (
        ([big, one, one, one], 0, 2, 0),
        ([one, one, one, big], 4, 2, 4),
        ([big, *[one] * 15, *[one] * 16], 0, 30, 16),
        ([one], 1 - big, 1 - big, 1 - big),
    ):
        found = [add(np.array(terms, np.float32)) for add in (evaluations.sequential, evaluations.pairwise, evaluations.blocked)]
        assert [float(total) - big for total in found] == [sequential, pairwise, blocked]


@cache
def rounding() -> list[dict]:
    return tables.rounding(fitting("rounding", suite("rounding")), array)


def test_bounds_hold_and_are_sharp():
    rows = rounding()
    assert len(rows) == 4 * 3 * 4 * 5  # dtypes, lengths, evaluations, stages
    assert all(0 < row["ratio"] <= 1 and row["error"] <= row["bound"] for row in rows)
    worst = {
        (dtype, stage): max(row["ratio"] for row in rows if (row["dtype"], row["stage"]) == (dtype, stage))
        for dtype, stage in {(row["dtype"], row["stage"]) for row in rows}
    }
    assert worst["bfloat16", "projections"] > 0.9 and worst["float16", "projections"] > 0.9  # one rounding, and its bound is that
    assert all(worst[dtype, "projections"] > 0.1 and worst[dtype, "outputs"] > 1e-3 for dtype in ("float64", "float32"))
    found = {row["evaluation"]: row["error"] for row in rows if (row["case"], row["stage"]) == ("layer_dtype_float32_lq_128", "outputs")}
    assert found["pairwise"] < found["blocked"] < found["sequential"]  # as their constants are: log n, 2 sqrt n, n


def test_an_evaluation_that_is_not_honest_lies_beyond_its_bound(monkeypatch):
    monkeypatch.setitem(evaluations.SUMS, "sequential", lambda terms: evaluations.sequential(terms[:-1]))
    monkeypatch.setitem(evaluations.SUMS, "blocked", lambda terms: evaluations.blocked(terms) * np.float32(1 + 1e-5))
    cases = {name: case for name, case in suite("rounding").items() if name == "layer_dtype_float32_lq_8"}
    rows = tables.rounding(fitting("rounding", cases), array)
    for evaluation, honest in (("ours", True), ("pairwise", True), ("sequential", False), ("blocked", False)):
        assert (max(row["ratio"] for row in rows if row["evaluation"] == evaluation) <= 1) == honest


def test_a_table_says_what_its_columns_mean_and_spells_nan(tmp_path: Path):
    rows = [{"case": "a", "x": float("nan"), "n": 3}, {"case": "b", "x": 0.1, "n": 4}]
    facts = {"columns": {"case": "name", "x": "a number", "n": "a count"}}
    write_study(tmp_path / "study", facts, rows, figures.page("Nothing", 1)[0], 50)
    assert (tmp_path / "study.csv").read_bytes() == b"case,x,n\na,NaN,3\nb,0.1,4\n"
    assert json.loads((tmp_path / "study.json").read_text("utf-8")) == facts | {"format": 1, "rows": [rows[0] | {"x": "NaN"}, rows[1]]}


def test_a_column_against_another():
    """By hand: the entropy of each case that has heads and an entropy, with its scale and its seed, in the order of the suite."""
    cases = [
        {"name": name, "sweep": {"choices": {"parameters.x.normal.seed": seed}}} for name, seed in (("a", 1), ("b", 2), ("c", 3), ("d", 4))
    ]
    cases.append({"name": "e", "sweep": None})
    told = [
        {"heads": 1, "entropy": 0.5, "scale": "none"},
        {"heads": 2, "entropy": "NaN", "scale": 0.5},
        {"heads": None, "entropy": 1.0, "scale": 1},
    ]
    told += [{"heads": 4, "entropy": 2, "scale": None}, {"heads": 8, "entropy": 0.25, "scale": "none"}]
    rows = tables.columns(cases, {"x": "heads", "y": "entropy", "by": "scale"}, told)
    assert rows == [
        {"case": "a", "heads": 1, "entropy": 0.5, "scale": "none"},
        {"case": "d", "heads": 4, "entropy": 2, "scale": "–"},
        {"case": "e", "heads": 8, "entropy": 0.25, "scale": "none"},
    ]
    axes = {"x": "parameters.x.normal.seed", "y": "entropy"}
    assert [list(row.values()) for row in tables.columns(cases, axes, told)] == [["a", 1, 0.5], ["c", 3, 1.0], ["d", 4, 2]]
    assert tables.called(axes) == "entropy_against_parameters_x_normal_seed"
    masks = [{"mask.window": None}, {"mask.window": {"left": 1}}, {"heads": 1}]
    swept = [{"name": name, "sweep": {"choices": choices}} for name, choices in zip("abc", masks, strict=True)]
    none = [{"entropy": 1.0, "mask.window.left": left} for left in (None, 1, None)]
    assert [list(row.values()) for row in tables.columns(swept, {"x": "mask.window", "y": "entropy"}, none)] == [
        ["a", "–", 1.0],  # the choice of none is one, too
        ["b", '{"left": 1}', 1.0],
    ]
    assert [row["case"] for row in tables.columns(swept, {"x": "mask.window.left", "y": "entropy"}, none)] == ["a", "b"]


def test_a_figure_of_columns_has_a_mark_for_each_case_and_a_line_through_the_means():
    rows = [{"case": "a", "h": 1, "y": 2.0, "s": "p"}, {"case": "b", "h": 1, "y": 4.0, "s": "p"}, {"case": "c", "h": 2, "y": 9.0, "s": "q"}]
    axes = figures.columns(rows, {"x": "h", "y": "y", "by": "s"}).axes[0]
    drawn = [(line.get_label(), *(np.asarray(data).tolist() for data in line.get_data())) for line in axes.lines]
    assert [(places, heights) for _, places, heights in drawn] == [([1], [3.0]), ([1, 1], [2.0, 4.0]), ([2], [9.0]), ([2], [9.0])]
    assert [label for label, *_ in drawn if label in "pq"] == ["p", "q"]
    worded = figures.columns(rows, {"x": "s", "y": "y"}).axes[0]
    assert [label.get_text() for label in worded.get_xticklabels()] == ["p", "q"]
    empty = figures.columns([], {"x": "h", "y": "y"}).axes[0]
    assert not empty.lines and [text.get_text() for text in empty.texts] == ["no case has both"]


def test_words_of_a_figure_of_columns_do_not_overlap():
    for words in (
        ["none", "1/d_k"],
        [f"a_case_of_a_sweep_with_seed_{i}" for i in range(30)],
        ["x" * 200, "y" * 200],
        ["–", '{"left": 1, "right": 1}'],
    ):
        figure = figures.columns([{"case": word, "y": float(i)} for i, word in enumerate(words)], {"x": "case", "y": "y"})
        FigureCanvasAgg(figure).draw()
        boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
        assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes)) and all(
            figure.bbox.y0 <= box.y0 and box.x1 <= figure.bbox.x1 for box in boxes
        )


WRONG = {
    "studies: [{columns: {x: hedas, y: entropy}}]": "studies.0.columns.x: there is no column hedas; did you mean heads?",
    "studies: [{columns: {x: heads, y: title}}]": "studies.0.columns.y: title holds no numbers; take one that does",
    "studies: [{columns: {x: heads, y: entropy, by: scal}}]": "studies.0.columns.by: there is no column scal; did you mean scale?",
    "studies: [{columns: {x: softcap, y: entropy}}]": "studies.0.columns.x: no case of this suite has softcap",
    "studies: [{columns: {x: parameters.x.normal.seed, y: entropy}}]": "studies.0.columns.x: there is no column parameters.x.normal.seed",
    "studies: [{columns: {x: heads}}]": "studies.0.columns: y is missing; add it",
    "studies: [{columns: {x: heads, y: entropy, z: scale}}]": "studies.0.columns.z: unknown key; known: x, y, by",
    "studies: [{column: {x: heads, y: entropy}}, {columns: {x: heads, y: entropy}}]": "did you mean columns?",
    "studies: [{columns: {x: heads, y: truth.ulp}}]\nreferences: none": "truth.ulp is empty, for this suite says references: none",
    "studies: [entropi]": "should be variance or entropy or permutation or costs or reach or rounding",
    "studies: [rounding]": "no case of this suite fits rounding: it needs x, w_q, w_k, w_v and w_o, and no options but `dtype` and `heads`",
    "studies: [costs]": "no case of this suite fits costs: it needs x and projections",
    "studies: [permutation]": "no case of this suite fits permutation: it needs a partner NAME_permuted",
    "studies: [reach, reach]": "names text (reach) twice",
    "studies: reach": "write [reach]",
}


@pytest.mark.parametrize("line", WRONG)
def test_studies_that_a_suite_cannot_have(line: str, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{line}\ncases:\n  one:\n    parameters: {{x: [[1, 2], [3, 4]]}}\n", "utf-8")
    with pytest.raises(Problems) as problems:
        load_suite(path, LIMITS)
    assert len(problems.value.problems) == 1 + ("column:" in line)
    assert WRONG[line] in str(problems.value)
    assert "mine.yaml:1: studies" in str(problems.value)


def test_the_same_files_each_time_one_job_per_suite(project: Path):
    names = ["scaling", "costs", "order", "reach", "rounding"]
    targets = [f"results/studies/{name}/exact" for name in names]
    only = ["--config", f"suites=[{','.join(names)}]", "--"]
    done = run(project, *only, *targets)
    assert done.returncode == 0, done.stderr
    first = contents(project / "results" / "studies")
    assert {Path(name).suffix for name in first} == {".csv", ".json", ".svg", ".png"}
    assert {Path(name).stem for name in first} == set(STUDIES) | {"largest_weight_against_d_k_by_scale"}
    assert not any("measured" in name for name in first)
    drawn = [path for path in (project / "results" / "studies").rglob("*.csv") if "rounding" not in path.parts]
    times = {path: path.stat().st_mtime_ns for path in drawn}
    again = run(project, "--forcerun", "studies", *only, *targets[:-1], env={"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}, cores=1)
    assert again.returncode == 0, again.stderr
    assert len(times) >= len(STUDIES) - 1 and all(path.stat().st_mtime_ns > time for path, time in times.items())
    assert contents(project / "results" / "studies") == first
    for name in first:
        if name.endswith(".csv"):
            study = json.loads(first[name.replace(".csv", ".json")])
            table = list(csv.DictReader(first[name].decode("utf-8").splitlines()))
            assert list(table[0]) == list(study["columns"]) == list(study["rows"][0])
            assert len(table) == len(study["rows"])


def test_times_are_measured_only_when_asked_for(project: Path):
    only = ["--config", "suites=[costs]"]
    plan = run(project, "--dry-run", *only)
    assert "studies" in plan.stdout + plan.stderr and "measured_costs" not in plan.stdout + plan.stderr
    done = run(project, *only, "--", "measured")
    assert done.returncode == 0, done.stderr
    rows = json.loads((project / "results/studies/costs/measured/costs.json").read_text("utf-8"))["rows"]
    assert len(rows) == 13 and all(row["scores_seconds"] > 0 for row in rows)
