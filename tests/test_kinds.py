"""Every kind that the schema knows has its own entry in each route; a kind that a route lacks is a failure that names the route."""

from collections.abc import Iterator

import pytest
import torch

from worked_attention.cases.options import schema
from worked_attention.drawing import maps
from worked_attention.pages import backward as page_backward
from worked_attention.pages import projections as page_projections
from worked_attention.pages import scores as page_scores
from worked_attention.pages import weights as page_weights
from worked_attention.referee.bounds import backward as bounds_backward
from worked_attention.referee.bounds import projections as bounds_projections
from worked_attention.referee.bounds import weights as bounds_weights
from worked_attention.referee.mistakes import when
from worked_attention.referee.truth import backward as truth_backward
from worked_attention.referee.truth import masks as truth_masks
from worked_attention.referee.truth import positions as truth_positions
from worked_attention.referee.truth import projections as truth_projections
from worked_attention.referee.truth import weights as truth_weights
from worked_attention.referee.typical import backward as typical_backward
from worked_attention.referee.typical import weights as typical_weights
from worked_attention.references import torch_manual, torch_tools
from worked_attention.stages import backward, masks, positions, projections, weights
from worked_attention.stages.dtypes import DTYPES
from worked_attention.worksheets import hand

CASE = schema("suite")["$defs"]["case"]
WITHOUT_GRADIENT = {"hardmax"}  # refused together with `backward`
RAISES = {"error"}  # of empty rows: ours raises before it looks at a table

# By option, the table of each route. Routes that treat all kinds alike have none.
TABLES: dict[str, dict[str, dict]] = {
    "softmax": {
        "stages.weights": weights.KINDS,
        "stages.backward": backward.SOFTMAX,
        "bounds.weights": bounds_weights.KINDS,
        "bounds.backward": bounds_backward.SOFTMAX,
        "truth.weights": truth_weights.SOFTMAX,
        "truth.backward": truth_backward.SOFTMAX,
        "typical.weights": typical_weights.KINDS,
        "typical.backward": typical_backward.SOFTMAX,
        "mistakes.when": when.SOFT,
        "torch_manual": torch_manual.SOFTMAX,
        "worksheets.hand": hand.SOFTMAX,
        "pages.weights": page_weights.ROWS,
        "pages.weights (formula)": page_weights.FORMULAS,
        "pages.weights (colours)": page_weights.MAPS,
        "pages.backward": page_backward.BY_SCORES,
        "pages.weights (name)": page_weights.NAMES,
        "pages.weights (cost)": page_weights.COSTS,
        "drawing.maps": maps.WEIGHTS,
    },
    "mask.empty_row": {
        "pages.weights": page_weights.EMPTY,
        "stages.weights": weights.EMPTY_ROW,
        "truth.weights": truth_weights.EMPTY_ROW,
        "torch_manual": torch_manual.EMPTY_ROW,
    },
    "mask.diagonal": {"stages.masks": masks.DIAGONAL, "truth.masks": truth_masks.LAST, "torch_tools": torch_tools.ENDS},
    "mask.causal": {"stages.masks": masks.ALIGN, "truth.masks": truth_masks.OWN, "torch_tools": torch_tools.ALIGN},
    "rotary.pairing": {"stages.positions": positions.PAIRING, "truth.positions": truth_positions.PAIRS, "torch_tools": torch_tools.PAIRS},
    "rotary.scaling.rule": {
        "stages.positions": positions.SCALING,
        "bounds.projections": bounds_projections.SCALED,
        "truth.positions": truth_positions.SCALING,
        "torch_tools": {rule: route for rule, route in torch_tools.RULES.items() if rule},
    },
    "alibi.slopes": {"stages.positions": positions.SLOPES, "truth.positions": truth_positions.SLOPES, "torch_tools": torch_tools.SLOPES},
    "backward": {"pages.backward": page_backward.BEGINNINGS},
    "alibi.form": {
        "pages.scores": page_scores.ALIBI,
        "stages.positions": positions.STEPS,
        "truth.positions": truth_positions.STEPS,
        "torch_tools": torch_tools.FORMS,
    },
    "t5.direction": {"stages.positions": positions.DIRECTION, "truth.positions": truth_positions.SIDES, "torch_tools": torch_tools.SIDES},
    "qk_norm.kind": {
        "pages.projections": page_projections.NORMS,
        "stages.projections": projections.SHARED,
        "truth.projections": truth_projections.SHARE,
        "torch_tools": torch_tools.NORMS,
    },
    "qk_norm.zero_vector": {
        "stages.projections": projections.ZERO_VECTOR,
        "truth.projections": truth_projections.ZERO_VECTOR,
        "torch_tools": torch_tools.ZERO_VECTOR,
    },
    "dtype": {"stages.dtypes": DTYPES, "torch_tools": torch_tools.DTYPES, "truth.positions": truth_positions.FORMATS},
}
LACKING = {  # what a route need not have
    ("softmax", "stages.backward"): WITHOUT_GRADIENT,
    ("softmax", "bounds.backward"): WITHOUT_GRADIENT,
    ("softmax", "truth.backward"): WITHOUT_GRADIENT,
    ("softmax", "typical.backward"): WITHOUT_GRADIENT,
    ("softmax", "pages.backward"): WITHOUT_GRADIENT,
    ("softmax", "worksheets.hand"): {"none"},  # whose weights are the scores, and nothing to be worked out
    ("mask.empty_row", "stages.weights"): RAISES,
}
ALIKE = {  # kinds that are another option's, or that no route branches on but the loader
    "precision.accumulate": "dtype",
    "precision.softmax": "dtype",
    "precision.scores": "dtype",
    "rotary.angles": "dtype",
    "mask.window.align": "mask.causal",
    "extra_key": None,  # a zero key or none
    "sweep.skip": None,  # the loader leaves cases out or not
}


def enums(rule: dict, path: str = "") -> Iterator[tuple[str, set]]:
    """Every option of the schema that has kinds, with them."""
    for name, inner in rule.get("properties", {}).items():
        place = f"{path}.{name}".lstrip(".")
        if "enum" in inner:
            yield place, set(inner["enum"])
        if name not in ("parameters", "claims", "sizes"):
            yield from enums(inner, place)


KINDS = dict(enums(CASE))


def lacking(option: str, kinds: set[str]) -> list[str]:
    """The routes whose table of an option is not that of these kinds, each with what is missing or too much."""
    found = []
    for route, table in TABLES[option].items():
        wrong = set(table) ^ (kinds - LACKING.get((option, route), set()))
        found += [f"{route}: {', '.join(sorted(wrong))}"] * bool(wrong)
    return found


def test_every_option_with_kinds_is_looked_at():
    assert set(KINDS) == set(TABLES) | set(ALIKE)
    assert all(KINDS[option] <= KINDS[other] for option, other in ALIKE.items() if other)


@pytest.mark.parametrize("option", TABLES)
def test_every_route_has_every_kind(option: str):
    assert lacking(option, KINDS[option]) == []


def test_a_new_kind_names_the_routes_that_lack_it():
    said = lacking("softmax", KINDS["softmax"] | {"sigmoid"})
    assert [line.split(":")[0] for line in said] == list(TABLES["softmax"]) and all("sigmoid" in line for line in said)
    assert [line.split(":")[0] for line in lacking("rotary.scaling.rule", KINDS["rotary.scaling.rule"] | {"longrope"})] == list(
        TABLES["rotary.scaling.rule"]
    )


@pytest.mark.parametrize(
    "take",
    [
        lambda: weights.stage({"softmax": "sigmoid", "precision": {"softmax": "float64"}}, {"masked": torch.zeros(1, 1, 1).numpy()}),
        lambda: positions.frequencies(4, 10000.0, {"rule": "longrope", "factor": 2}),
        lambda: torch_tools.frequencies(4, 10000.0, {"rule": "longrope", "factor": 2}),
        lambda: masks.ALIGN["middle"](2, 3),
    ],
)
def test_an_unknown_kind_is_nobodys_neighbour(take):
    with pytest.raises(KeyError):
        take()
