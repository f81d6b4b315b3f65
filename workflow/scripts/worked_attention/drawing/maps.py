"""What is drawn of a case: its scores and weights, and what else is asked for, as maps from values to colours.

Weights have one scale, 0 to 1, in every figure; scores have one scale per case, symmetric around 0.
"""

from dataclasses import dataclass, field, replace

import matplotlib
import numpy as np

from worked_attention.drawing.style import MASKED

HEADS, SEQUENCES, TOKENS = 8, 2, 128  # more of them are not drawn, and the figure says so
Index = tuple[int, ...]


@dataclass(frozen=True)
class Scale:
    """From values to colours: `low` and `high` are the ends of the colour map."""

    colours: str
    low: float
    high: float

    def rgba(self, values: np.ndarray, blank: np.ndarray) -> np.ndarray:
        """Colours [..., 4] of `values` [...]; cells that are `blank`, NaN or infinite are grey."""
        with np.errstate(invalid="ignore"):
            colours = matplotlib.colormaps[self.colours]((values - self.low) / (self.high - self.low))
        colours[blank | ~np.isfinite(values)] = matplotlib.colors.to_rgba(MASKED)
        return colours


@dataclass(frozen=True)
class Map:
    """One kind of heatmap of a case: `values` and where they are `hatched`, [B, H, rows, columns], and what is `printed` wrongly there.

    rows, columns: their names, of the queries and keys where they are None. sides: what rows and columns are. panel: what each is one of.
    """

    name: str
    formula: str
    values: np.ndarray
    hatched: np.ndarray
    scale: Scale
    printed: dict[Index, str] = field(default_factory=dict)
    rows: list[str] | None = None
    columns: list[str] | None = None
    sides: tuple[str, str] = ("query i", "key j")
    panel: str = "head {}"

    def first(self, sequences: int) -> "Map":
        """As much of it as is drawn."""
        some = slice(sequences), slice(HEADS), slice(TOKENS), slice(TOKENS)
        return replace(self, values=self.values[some], hatched=self.hatched[some])


def maps(case: dict, arrays: dict[str, np.ndarray], looks: dict, misprints: dict[str, dict[Index, str]] | None = None) -> list[Map]:
    """The scores and the weights of a case, as far as it has them.

    case: resolved. arrays: of `qk`, `scaled`, `masked`, `keep` (boolean, True = attend) and `weights`, each [..., H, Lq, Lk], any float
    dtype.
    looks: {weights, scores}, names of colour maps. Masked is where `keep` is False or `masked` is -inf. misprints:
    what sources print wrongly, by array and index [B, H, Lq, Lk].
    """
    wrong = {"scaled": {}, "weights": {}, **(misprints or {})}
    arrays = {name: a.astype(bool if name == "keep" else float).reshape(-1, *a.shape[-3:]) for name, a in arrays.items()}
    shape = next((a.shape for name, a in arrays.items() if name in ("scaled", "weights")), None)
    if shape is None:
        return []
    masked = ~np.broadcast_to(arrays.get("keep", True), shape) | np.isneginf(arrays.get("masked", 0.0))
    found = []
    if "scaled" in arrays:
        scores, name, printed = arrays["scaled"], "scaled scores", wrong["scaled"]
        formula = "scale × query · key" if "qk" in arrays else "as given"
        entering = arrays.get("masked", scores)
        if not np.array_equal(entering[~masked], scores[~masked], equal_nan=True):
            scores, name, formula, printed = entering, "scores", "scaled, then softcap and bias", {}
        seen = np.abs(scores[~masked & np.isfinite(scores)])
        largest = seen.max(initial=0) or 1.0
        found.append(Map(name, formula, scores, masked, Scale(looks["scores"], -largest, largest), printed))
    if "weights" in arrays:
        weights = arrays["weights"]  # a convention for rows without any key may give masked cells weight: then it is shown
        formula, bounded = WEIGHTS[case["softmax"]]
        largest = np.abs(weights[np.isfinite(weights)]).max(initial=0) or 1.0
        scale = Scale(looks["weights"], 0.0, 1.0) if bounded else Scale(looks["scores"], -largest, largest)
        found.append(Map("weights", formula, weights, masked & (weights == 0), scale, wrong["weights"]))
    return found


TABLES = {  # by stage, what else can be drawn: arrays, what they are, whose rows they have, what one panel is
    "projections": (
        ("q_heads", "queries of each head", "tokens", "head {}"),
        ("k_heads", "keys of each head", "new keys", "head {}"),
        ("v_heads", "values of each head", "new keys", "head {}"),
    ),
    "scores": (),
    "weights": (),
    "contexts": (("contexts", "weights × values", "tokens", "head {}"),),
    "outputs": (("output", "the heads side by side, through the output weight", "tokens", "all heads"),),
}


def chosen(case: dict, arrays: dict[str, np.ndarray], looks: dict, misprints: dict[str, dict[Index, str]] | None = None) -> list[Map]:
    """Everything that `looks["stages"]` names, as far as the case has it, in the order of the stages.

    case, arrays, looks, misprints: as for `maps`, with the arrays of these stages.
    """
    both = {"scores": [], "weights": []}
    for m in maps(case, arrays, looks, misprints):
        both["weights" if m.name == "weights" else "scores"].append(m)
    found = []
    for stage, tables in TABLES.items():
        if stage in looks["stages"]:
            made = [table(case, arrays, looks, misprints or {}, *entry) for entry in tables if entry[0] in arrays]
            found += both.get(stage, made)
    return found


def table(case: dict, arrays: dict, looks: dict, misprints: dict, name: str, formula: str, whose: str, panel: str) -> Map:
    """An array of tokens by columns, one panel for each head or one for all, on a scale of its own around 0."""
    array = arrays[name].astype(float)
    lead = (-1, 1) if panel == "all heads" else (-1, array.shape[-3])
    values = array.reshape(*lead, *array.shape[-2:])
    past = case["dims"]["Lp"]
    names = {"tokens": case["tokens"], "new keys": case["key_tokens"][past:]}[whose]
    largest = np.abs(values[np.isfinite(values)]).max(initial=0) or 1.0
    columns = [str(n) for n in range(values.shape[-1])]
    side = "query i" if whose == "tokens" else "key j"
    scale = Scale(looks["scores"], -largest, largest)
    none = np.zeros(values.shape, bool)
    return Map(name, formula, values, none, scale, misprints.get(name, {}), names, columns, (side, "column"), panel)


WEIGHTS = {  # by kind of softmax: what the weights are, and whether they are between 0 and 1
    "plain": ("softmax of each row", True),
    "plus_one": ("softmax of each row, with 1 more in the denominator", True),
    "hardmax": ("1 for the first largest score of each row", True),
    "none": ("the scores themselves, for there is no softmax", False),
}
