"""What the two source articles hold, item by item, and where each has its counterpart: a case or a page that names it as its `source`."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from conftest import ROOT

from worked_attention.cases.strict_yaml import Document

HANDWORKED, TUTORIAL = "hand-worked article", "tutorial"
FIRST = "handworked/two_heads"
ITEMS: dict[str, tuple[str, ...]] = {  # of an item, the cases (suite/case) and pages (questions/name) that hold it
    f"{HANDWORKED}: convolution, recurrence and self-attention": ("questions/who_hears_whom",),
    f"{HANDWORKED}: one query weighs keys and mixes values": ("questions/one_query",),
    f"{HANDWORKED}: score, softmax, weighted sum as a pipeline": ("questions/one_query",),
    f"{HANDWORKED}: five queries by five keys, who may connect": ("questions/who_may_connect", "articles/five_tokens"),
    f"{HANDWORKED}: two heads, split, attend, concatenate, project": ("questions/shapes_on_the_way",),
    f"{HANDWORKED}: the first query by hand, 43 printed numbers": (FIRST, "questions/parameter_count"),
    f"{HANDWORKED}: the first context as a sum of three terms": (FIRST, "questions/one_query"),
    f"{HANDWORKED}: rows of weights sum to 1": (FIRST, "questions/one_query"),
    f"{HANDWORKED}: shape table": (FIRST, "questions/shapes_on_the_way"),
    f"{HANDWORKED}: parameters, 4 × (16 + 4) = 80": (FIRST, "questions/parameter_count"),
    f"{HANDWORKED}: largest difference between NumPy and torch": (FIRST, "questions/parameter_count"),
    f"{HANDWORKED}: one script that prints everything": (FIRST, "questions/parameter_count"),
    f"{HANDWORKED}: permuted tokens give permuted rows": ("handworked/permuted_tokens", "questions/permuted"),
    f"{HANDWORKED}: large scores saturate the softmax": ("gradients/softmax_by_hand", "questions/saturation"),
    f"{TUTORIAL}: dot product and its geometry": ("articles/arrows", "questions/dot_product"),
    f"{TUTORIAL}: softmax(XXᵀ)X in three figures": (
        "tutorial/identity_attention",
        "tutorial/figure_1_2",
        "tutorial/figure_3_2",
        "questions/weights_times_values",
    ),
    f"{TUTORIAL}: Z = A X for the printed figure": ("articles/printed_weights_mixed", "questions/weights_times_values"),
    f"{TUTORIAL}: Q = X W_Q and so on from seed 0": ("tutorial/seeded_projection", "questions/four_steps"),
    f"{TUTORIAL}: roles of Q, K, V": ("questions/four_steps",),
    f"{TUTORIAL}: the four steps": ("tutorial/seeded_projection", "questions/four_steps"),
    f"{TUTORIAL}: d_k ≠ d_model": ("tutorial/seeded_projection", "questions/other_widths"),
    f"{TUTORIAL}: what if the softmax is left out": ("articles/similarity", "questions/without_softmax"),
    f"{TUTORIAL}: hardmax": ("articles/hardmax", "questions/without_softmax"),
    f"{TUTORIAL}: several heads, four Linear layers first and x afterwards": (
        "tutorial/seeded_multihead",
        "questions/several_heads_in_code",
    ),
    f"{TUTORIAL}: shape table with B, L, E, H before and after the split": ("questions/shapes_on_the_way",),
    f"{TUTORIAL}: three shape bugs": ("questions/three_shape_mistakes",),
    f"{TUTORIAL}, question 1": ("questions/what_it_does",),
    f"{TUTORIAL}, question 2": ("questions/why_self",),
    f"{TUTORIAL}, question 3": ("questions/against_a_linear_layer",),
    f"{TUTORIAL}, question 4": ("questions/the_name", "articles/nothing_asked"),
    f"{TUTORIAL}, question 5": ("questions/another_meaning",),
    f"{TUTORIAL}, question 6": ("questions/transposed_keys",),
    f"{TUTORIAL}, question 7": ("questions/one_width",),
    f"{TUTORIAL}, question 8": ("questions/why_the_root",),
    f"{TUTORIAL}, question 9": ("questions/without_the_scale", "articles/unscaled_4"),
    f"{TUTORIAL}, question 10": ("questions/masks_before",),
    f"{TUTORIAL}, question 11": ("questions/many_heads",),
    f"{TUTORIAL}, question 12": ("questions/more_heads", "articles/one_head_of_8", "articles/eight_heads_of_1"),
    f"{TUTORIAL}, question 13": ("questions/output_projection",),
    f"{TUTORIAL}, question 14": ("questions/a_million",),
    f"{TUTORIAL}, question 15": ("questions/tied_weights", "articles/tied"),
    f"{TUTORIAL}, question 16": ("questions/official_layer",),
    f"{TUTORIAL}, question 17": ("questions/layer_or_function",),
    f"{TUTORIAL}, question 18": ("questions/quadratic",),
    f"{TUTORIAL}, question 19": ("questions/any_length",),
    f"{TUTORIAL}, question 20": ("questions/against_recurrence",),
}


def said(path: Path, key: str) -> dict[str, list[str]]:
    """What each case or page of a file names as its sources."""
    entries = Document(path, path.name).data[key]
    return {name: entry["source"].split("; ") for name, entry in entries.items() if "source" in entry}


def all_said() -> dict[str, list[str]]:
    """The sources of every case and page, by suite/case and questions/name."""
    found = {f"questions/{name}": sources for name, sources in said(ROOT / "config" / "questions.yaml", "questions").items()}
    for path in (ROOT / "config" / "suites").glob("*.yaml"):
        found |= {f"{path.stem}/{name}": sources for name, sources in said(path, "cases").items()}
    return found


def lacking(items: dict[str, Iterable[str]], sources: dict[str, list[str]]) -> list[str]:
    """Each item at a place that does not name it."""
    return [f"{place}: {item}" for item, places in items.items() for place in places if item not in sources.get(place, [])]


def unlisted(items: dict[str, Iterable[str]], sources: dict[str, list[str]]) -> list[str]:
    """Each place that names an item of the articles that is not listed for it."""
    ours = (HANDWORKED, TUTORIAL)
    named = [(place, item) for place, listed in sources.items() for item in listed if item.startswith(ours)]
    return [f"{place}: {item}" for place, item in named if place not in items.get(item, ())]


def test_every_item_of_the_articles_has_its_counterpart():
    sources = all_said()
    assert lacking(ITEMS, sources) == [] and unlisted(ITEMS, sources) == []
    assert {item for item in ITEMS if ", question " in item} == {f"{TUTORIAL}, question {n}" for n in range(1, 21)}


@pytest.mark.parametrize("place", ["questions/one_query", FIRST, "articles/tied"])
def test_one_that_is_missing_or_renamed_is_seen(place: str):
    sources = all_said()
    without = {name: listed for name, listed in sources.items() if name != place}
    assert any(line.startswith(place) for line in lacking(ITEMS, without))
    renamed = without | {place: [f"{TUTORIAL}, question 21"]}
    assert any(line.startswith(place) for line in lacking(ITEMS, renamed)) and unlisted(ITEMS, renamed) == [
        f"{place}: {TUTORIAL}, question 21"
    ]


def test_43_numbers_of_the_first_query_are_checked():
    claims = Document(ROOT / "config" / "suites" / "handworked.yaml", "").data["cases"]["two_heads"]["claims"]

    def count(values) -> int:
        return 1 if isinstance(values, str) else sum(map(count, values))

    assert sum(count(claim["values"]) for of in claims.values() for claim in (of if isinstance(of, list) else [of])) == 43
