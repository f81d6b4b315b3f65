"""The figures: what stands in the cells, one scale for all, masked cells hatched, limits, and the same bytes each time."""

import io
import xml.etree.ElementTree
from collections import Counter

import numpy as np
import pytest
from shipped import shipped

from worked_attention.drawing import heatmaps, letters, maps
from worked_attention.stages.whole import compute

PLAIN = {"softmax": "plain"}
LOOKS = {"digits": 3, "dpi": 60, "weights": "Blues", "scores": "RdBu_r"}


def softmax(scores):
    with np.errstate(invalid="ignore"):  # a row without any key
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)


def example(shape, keep=None, dtype=float, **more):
    """A case with so many [B,] heads, queries and keys, and its arrays; `keep` masks."""
    scaled = np.random.default_rng(7).normal(size=shape)
    masked = scaled if keep is None else np.where(keep, scaled, -np.inf)
    arrays = {"qk": scaled, "scaled": scaled, "masked": masked, "weights": softmax(masked)}
    arrays = {name: a.astype(dtype) for name, a in arrays.items()} | ({} if keep is None else {"keep": np.broadcast_to(keep, shape)})
    case = {
        "suite": "suite",
        "name": "example",
        "title": "An example",
        "look": "What to see.",
        "dims": {"B": shape[0]} if len(shape) == 4 else {},
    }
    return {**case, "tokens": [f"q{i}" for i in range(shape[-2])], "key_tokens": [f"k{j}" for j in range(shape[-1])], **more}, arrays


@pytest.fixture
def written(monkeypatch):
    """Every line of text that is drawn."""
    lines, text = [], heatmaps.Page.text

    def record(page, x, y, line, *rest, **looks):
        lines.append(line)
        text(page, x, y, line, *rest, **looks)

    monkeypatch.setattr(heatmaps.Page, "text", record)
    return lines


def draw(case, arrays, looks=LOOKS):
    """The figure of a case as SVG and PNG."""
    figure = heatmaps.case_figure(case, maps.maps(PLAIN, arrays, looks), looks)
    svg, png = io.BytesIO(), io.BytesIO()
    heatmaps.write_svg(figure, svg)
    heatmaps.write_png(figure, png, looks["dpi"])
    return svg.getvalue(), png.getvalue()


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (0.28309, 3, "0.283"),
        (0.0625, 3, "0.063"),
        (-0.0625, 3, "-0.063"),
        (0.5, 0, "1"),
        (2.5, 0, "3"),
        (2.675, 2, "2.67"),  # the double nearest to 2.675 lies below it
        (-0.0004, 3, "0.000"),
        (-0.0, 3, "0.000"),
        (-0.4, 0, "0"),
        (0.0, 12, "0.000000000000"),
        (-3.4028234663852886e38, 3, "-3.4e38"),
        (float(np.float32(0.1)), 12, "0.100000001490"),
        (float("nan"), 3, "NaN"),
        (float("-inf"), 3, "-inf"),
    ],
)
def test_rounding_is_half_up_from_exact_decimals_without_minus_zero(value, digits, text):
    assert heatmaps.rounded(value, digits) == text


def test_every_number_names_and_heads_are_written(written):
    case, arrays = example((2, 3, 4))
    draw(case, arrays)
    for name in ("scaled", "weights"):
        for value in arrays[name].ravel().tolist():
            assert heatmaps.rounded(value, 3).replace("-", "−") in written
    for word in ("An example", "What to see.", "scaled scores", "weights", "head 0", "head 1", "query i", "key j", "q2", "k3"):
        assert word in written
    assert "head 2" not in written and "Hatched cells are masked." not in written


def test_never_minus_zero(written):
    case, arrays = example((1, 2, 2))
    arrays["scaled"] = arrays["masked"] = np.full((1, 2, 2), -0.0001)
    draw(case, arrays)
    assert written.count("0.000") >= 4
    assert not any(line in ("-0.000", "−0.000") for line in written)


@pytest.mark.parametrize("how", ["keep", "masked"])
def test_masked_cells_are_hatched_and_hold_no_digits(written, how):
    case, arrays = example((1, 3, 3), keep=np.tril(np.ones((3, 3), dtype=bool)))
    if how == "masked":
        del arrays["keep"]
    svg, _ = draw(case, arrays)
    assert b"<pattern" in svg and "Hatched cells are masked." in written
    cells = [line for line in written if line.lstrip("−").replace(".", "").isdigit()]
    assert len(cells) == 2 * 6 + 2 * 3  # six open cells in each panel, three numbers at each colour bar
    assert cells.count("0.000") == 2 and "−inf" not in written  # the zeros of the colour bars
    assert b"<pattern" not in draw(*example((1, 3, 3)))[0]


def test_masked_cells_with_a_weight_show_it(written):
    keep = np.array([[False, False], [True, True]])
    case, arrays = example((1, 2, 2), keep=keep)
    arrays["weights"] = np.array([[[0.5, 0.5], [0.25, 0.75]]])
    scores, weights = maps.maps(PLAIN, arrays, LOOKS)
    assert scores.hatched[0, 0, 0].all() and not weights.hatched.any()
    arrays["weights"][0, 0] = np.nan
    draw(case, arrays)
    assert "NaN" in written


def test_scales():
    for seed in (1.0, 5.0):
        case, arrays = example((2, 2, 3, 3))
        arrays["scaled"] = arrays["masked"] = arrays["scaled"] * seed
        scores, weights = maps.maps(PLAIN, arrays, LOOKS)
        assert (weights.scale.low, weights.scale.high) == (0, 1)
        assert scores.scale.high == -scores.scale.low == np.abs(arrays["scaled"]).max()
    zero = {"scaled": np.zeros((1, 2, 2)), "masked": np.zeros((1, 2, 2))}
    assert maps.maps(PLAIN, zero, LOOKS)[0].scale.high == 1


def test_scores_after_a_bias_are_called_so():
    _, arrays = example((1, 2, 2))
    assert maps.maps(PLAIN, arrays, LOOKS)[0].name == "scaled scores"
    (scores, _) = maps.maps(PLAIN, {**arrays, "masked": arrays["scaled"] + 1}, LOOKS)
    assert scores.name == "scores" and (scores.values == arrays["scaled"] + 1).all()


def test_digits_are_dark_on_light_and_light_on_dark():
    case, arrays = example((1, 1, 2))
    arrays["weights"] = np.array([[[0.0, 1.0]]])
    page = heatmaps.Page()
    m = maps.maps(PLAIN, arrays, LOOKS)[1]
    page.panel(0, 0, m, (0, 0), heatmaps.Grid(["q"], ["k0", "k1"], (0.5, 0.4), 3))
    words = dict(Counter(word.color for word in page.words))
    assert words == {"black": 3, "white": 1}  # 0.000 and two names of keys; 1.000


@pytest.mark.parametrize("shape", [(1, 13, 13), (1, 3, 13), (1, 13, 3), (8, 6, 6)])
def test_cells_too_small_for_digits_have_none(written, shape):
    case, arrays = example(shape)
    draw(case, arrays)
    assert len([line for line in written if line.lstrip("−").replace(".", "").isdigit()]) == 6


def test_panels_are_limited_and_the_figure_says_so(written):
    case, arrays = example((3, 9, 130, 140))
    draw(case, arrays)
    assert "head 7" in written and "head 8" not in written
    assert "sequence 1" in written and "sequence 2" not in written
    said = " ".join(written)
    for part in ("the first 2 of 3 sequences", "the first 8 of 9 heads", "the first 128 of 130 queries", "the first 128 of 140 keys"):
        assert part in said


@pytest.mark.parametrize("left_out", [("qk", "scaled", "masked"), ("weights",), ("qk", "scaled", "masked", "weights")])
def test_what_a_case_lacks_is_left_out(written, left_out):
    case, arrays = example((1, 2, 3))
    svg, _ = draw(case, {name: a for name, a in arrays.items() if name not in left_out})
    xml.etree.ElementTree.fromstring(svg)
    assert ("scaled scores" in written) == ("scaled" not in left_out)
    assert ("softmax of each row" in written) == ("weights" not in left_out)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_other_dtypes(dtype):
    draw(*example((2, 2, 3), dtype=dtype, keep=np.array([[True, True, False], [True, True, True]])))


def test_any_token_is_a_label(written):
    tokens = ["$x_1$", "a\nb", "", "&<>\"'", "internationalisation", "\x00"]
    case, arrays = example((1, 6, 6), tokens=tokens, key_tokens=tokens, title="a\x00 $title & <more")
    svg, _ = draw(case, arrays)
    xml.etree.ElementTree.fromstring(svg)
    assert {"$x_1$", "a\\nb", "''", "internation…", "\\x00"} <= set(written)


def test_everything_lies_on_the_page():
    for shape in ((1, 1, 1), (2, 3, 3), (1, 2, 40), (1, 40, 2), (2, 8, 4, 4)):
        case, arrays = example(shape, key_tokens=["a long token"] * shape[-1])
        figure = heatmaps.case_figure(case, maps.maps(PLAIN, arrays, LOOKS), LOOKS)
        heatmaps.write_png(figure, io.BytesIO(), 72)
        width, height = figure.get_size_inches() * 72
        for artist in figure.axes[0].patches + figure.axes[0].images + list(figure.axes[0].collections):
            box = artist.get_window_extent()
            assert min(box.x0, box.y0) >= 0 and box.x1 <= width and box.y1 <= height


def test_same_bytes_each_time():
    case, arrays = example((2, 2, 3, 3), keep=np.tril(np.ones((3, 3), dtype=bool)))
    assert draw(case, arrays) == draw(case, arrays)
    svg, png = draw(case, arrays)
    assert b"<dc:date>" not in svg and png.startswith(b"\x89PNG")


def test_words_of_an_svg_are_text_and_few_bytes():
    case, arrays = example((2, 3, 3), title="Zwei <b> & 注意力")
    svg, png = draw(case, arrays, {**LOOKS, "digits": 4})
    words = [element.text for element in xml.etree.ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "Zwei <b> & 注意力" in words and "head 1" in words and heatmaps.rounded(arrays["weights"][0, 0, 0].item(), 4) in words
    assert len(svg) <= 60_000 and len(png) < 100_000


def test_overview(written):
    cases = []
    for n in range(26):
        case, arrays = example((2, 9, 3, 3) if n == 0 else (1, 2, 13), name=f"case_{n}")
        cases.append((case, maps.maps(PLAIN, arrays, LOOKS)[1]))
    figures = [heatmaps.overview_figure({"name": "suite", "description": "Many cases."}, cases) for _ in range(2)]
    files = [io.BytesIO(), io.BytesIO()]
    for figure, file in zip(figures, files, strict=True):
        heatmaps.write_svg(figure, file)
    assert files[0].getvalue() == files[1].getvalue()
    assert "case_0" in written and "case_23" in written and "case_24" not in written
    assert "head 7" in written and "head 8" not in written
    assert "Drawn: the first 24 of 26 cases." in written
    heatmaps.write_svg(heatmaps.overview_figure({"name": "suite", "description": ""}, []), io.BytesIO())


def test_a_wrong_printed_number_is_struck_below_the_right_one(written):
    case, arrays = example((1, 2, 2))
    right = heatmaps.rounded(arrays["weights"][0, 0, 1].item(), 2)
    heatmaps.case_figure(case, maps.maps(PLAIN, arrays, LOOKS, {"weights": {(0, 0, 0, 0): "9.99"}}), LOOKS)
    assert written.count("9.99") == 1 and right not in written and "Struck is what the source prints" in " ".join(written)
    written.clear()
    heatmaps.case_figure(case, maps.maps(PLAIN, arrays, LOOKS, {"weights": {}}), LOOKS)
    assert "9.99" not in written and "Struck" not in " ".join(written)


@pytest.fixture
def no_other_fonts(monkeypatch):
    """A machine that has no fonts but ours."""
    for cached in (letters.font_of, letters.outline):
        cached.cache_clear()
    monkeypatch.setattr(letters, "_system_fonts", lambda: [])
    yield
    for cached in (letters.font_of, letters.outline):
        cached.cache_clear()


def test_letters_that_no_font_has_are_told(no_other_fonts, written, capsys):
    case, arrays = example((1, 2, 2), tokens=["我", "é"], key_tokens=["a", "b"])
    svg, _ = draw(case, arrays)
    note = "No font of this machine has U+6211: boxes in the PNG, letters in the SVG."
    assert note in " ".join(written) and note in capsys.readouterr().err
    assert "我" in svg.decode("utf-8")
    written.clear()
    draw(*example((1, 2, 2), title="Żółw, naïve, αβγ"))
    assert "No font" not in " ".join(written)


def test_a_missing_letter_is_taken_from_another_font():
    found = letters.font_of("我", letters.REGULAR)
    if found is None:
        pytest.skip("no font of this machine has Chinese letters")
    points, _ = letters.outline("a我b", letters.REGULAR)
    alone = [letters.outline(letter, letters.REGULAR)[0] for letter in "a我b"]
    assert found is not letters.REGULAR and len(points) == sum(map(len, alone))
    assert points[:, 0].max() > 2 * alone[0][:, 0].max()


ALL = ["outputs", "contexts", "weights", "scores", "projections"]


def test_other_stages_are_drawn_if_they_are_named(written):
    """In the order of the formulas, whatever the order in the config; what a source prints wrongly is struck there, too."""
    case = shipped("handworked")["cases"]["two_heads"]
    arrays, looks = compute(case), {**LOOKS, "digits": 4, "stages": ALL}
    drawn = maps.chosen(case, arrays, looks, {"output": {(0, 0, 0, 1): "9.99"}})
    assert [m.name for m in drawn] == ["q_heads", "k_heads", "v_heads", "scaled scores", "weights", "contexts", "output"]
    heatmaps.case_figure(case, drawn, looks)
    for name in ("q_heads", "contexts", "output", "weights"):
        for value in arrays[name].ravel().tolist():
            assert heatmaps.rounded(value, 4).replace("-", "−") in written
    assert written.count("9.99") == 1 and written.count("all heads") == 1 and "column" in written and "x3" in written
    written.clear()
    heatmaps.case_figure(case, maps.chosen(case, arrays, {**looks, "stages": ["contexts"]}), looks)
    assert "contexts" in written and "q_heads" not in written and "weights" not in written


def test_keys_and_values_of_a_cache_have_the_names_of_new_keys():
    case = next(case for case in shipped("cache")["cases"].values() if case["dims"]["Lp"] and case["dims"].get("B"))
    q, k, v, *_ = maps.chosen(case, compute(case), {**LOOKS, "stages": ["projections"]})
    assert len(q.rows) == q.values.shape[2] and k.rows == v.rows == case["key_tokens"][case["dims"]["Lp"] :][: k.values.shape[2]]
    assert len(k.rows) == k.values.shape[2] and q.values.shape[:2] == (case["dims"]["B"], case["heads"])


def test_without_a_softmax_weights_have_a_scale_around_0():
    case = shipped("softmax")["cases"]["none_masked"]
    m = maps.maps(case, compute(case), LOOKS)[1]
    assert m.scale.low == -m.scale.high == -max(abs(compute(case)["weights"]).max(), 0) and m.scale.colours == LOOKS["scores"]
