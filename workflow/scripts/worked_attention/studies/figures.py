"""The figures of the studies: rows of their tables in, matplotlib Figure out."""

import numpy as np
from matplotlib.figure import Figure

from worked_attention.drawing import heatmaps  # noqa: F401, it sets what makes figures the same everywhere
from worked_attention.drawing.style import GREY
from worked_attention.studies.tables import series

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito: told apart without red and green
MARKERS = "osD^vP"


def page(title: str, columns: int, rows: int = 1, size: tuple[float, float] = (3.3, 2.9), **shared) -> tuple[Figure, list]:
    """A figure with a title and `rows` times `columns` axes of about `size` inches each."""
    width, height = 0.35 + columns * size[0], 0.5 + rows * size[1]
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.set_label(title)
    figure.text(0.15 / width, 1 - 0.28 / height, title, fontsize=11, fontweight="bold", ha="left")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    left, bottom, top = 0.75, 0.55, 0.75
    inner = size[0] - left, size[1] - bottom - 0.2
    figure.subplots_adjust(
        left=left / width,
        right=1 - 0.2 / width,
        bottom=bottom / height,
        top=1 - top / height,
        wspace=left / inner[0],
        hspace=0.95 / inner[1],
    )
    for ax in axes.flat:
        ax.tick_params(labelsize=8, which="both")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#dddddd", linewidth=0.5)
        ax.set_axisbelow(True)
    return figure, list(axes.flat)


def by_scale(rows: list[dict]) -> dict[str, list[dict]]:
    """The rows of each scale, by d_k."""
    scales = list(dict.fromkeys(row["scale"] for row in rows))
    return {scale: sorted((row for row in rows if row["scale"] == scale), key=lambda row: row["d_k"]) for scale in scales}


def lines(ax, groups: dict[str, list[dict]], x: str, y: str, expected: str = "") -> None:
    """One line for each group, and what is expected, dashed."""
    for i, (name, rows) in enumerate(groups.items()):
        places = [row[x] for row in rows]
        if expected:
            ax.plot(places, [row[expected] for row in rows], "--", color=GREY, linewidth=1, label="expected" if i == 0 else None)
        ax.plot(places, [row[y] for row in rows], marker=MARKERS[i % 6], color=COLOURS[i % 6], markersize=4, linewidth=1.3, label=name)


def log2(ax, places: list[int], label: str) -> None:
    """A logarithmic x axis with a tick at each place."""
    places = sorted(set(places))
    ax.set_xscale("log", base=2)
    ax.set_xticks(places, [str(place) for place in places])
    ax.xaxis.minorticks_off()
    ax.set_xlabel(label, fontsize=9)


def variance(rows: list[dict]) -> Figure:
    figure, (left, right) = page("Variance of q·k grows with d_k; 1/√d_k takes it back to 1", 2)
    places = [row["d_k"] for row in rows]
    once = {"q·k": sorted({row["d_k"]: row for row in rows}.values(), key=lambda row: row["d_k"])}
    lines(left, once, "d_k", "qk_variance", "qk_expected")
    lines(right, by_scale(rows), "d_k", "scaled_variance", "scaled_expected")
    for ax, title, corner in ((left, "variance of q·k", "upper left"), (right, "variance of scale × q·k", "lower left")):
        log2(ax, places, "d_k")
        ax.set_yscale("log")
        ax.set_title(title, fontsize=9)
        ax.legend(fontsize=7.5, frameon=False, loc=corner)
    right.set_ylim(bottom=right.get_ylim()[0] / 30)  # room for the legend below the lines
    return figure


def entropy(rows: list[dict]) -> Figure:
    figure, axes = page("What the scale does to the softmax", 3)
    names = {
        "entropy": "entropy of a row (nats)",
        "largest_weight": "largest weight of a row",
        "jacobian_norm": "Frobenius norm of the Jacobian",
    }
    for ax, (column, title) in zip(axes, names.items(), strict=True):
        lines(ax, by_scale(rows), "d_k", column)
        log2(ax, [row["d_k"] for row in rows], "d_k")
        ax.set_ylim(bottom=0)
        ax.set_title(title, fontsize=9)
    axes[0].axhline(rows[0]["entropy_at_most"], color=GREY, linewidth=1, linestyle="--")
    axes[0].text(1, rows[0]["entropy_at_most"] * 1.03, "equal weights: ln Lk", fontsize=7.5, color=GREY, va="bottom")
    axes[0].set_ylim(0, rows[0]["entropy_at_most"] * 1.15)
    axes[1].legend(title="scale", title_fontsize=8, fontsize=7.5, frameon=False, loc="upper left")
    return figure


def columns(rows: list[dict], axes: dict[str, str]) -> Figure:
    """One column against another: a mark for each case, and a line through the means for each value of `by`. axes: {x, y, by}."""
    x, y, by = axes["x"], axes["y"], axes.get("by")
    numbers = all(isinstance(row[x], int | float) for row in rows)
    ticks = sorted({row[x] for row in rows}) if numbers else list(dict.fromkeys(str(row[x]) for row in rows))
    words = [] if numbers else [tick if len(tick) <= 40 else f"{tick[:39]}…" for tick in ticks]
    longest = max(map(len, words), default=0)
    upright = longest if sum(map(len, words)) > 50 or longest > 11 else 0  # letters of words that stand below each other
    size = max(5.2, 1 + 0.16 * len(words)), 3.6 + 0.08 * upright
    figure, (ax,) = page(f"{y} against {x}", 1, size=size)
    for i, name in enumerate(dict.fromkeys(row[by] for row in rows) if by else [None] * bool(rows)):
        own = [(row[x] if numbers else ticks.index(str(row[x])), row[y]) for row in rows if not by or row[by] == name]
        places = sorted({place for place, _ in own})
        means = [np.mean([value for at, value in own if at == place]) for place in places]
        ax.plot(places, means, color=COLOURS[i % 6], linewidth=1.3)
        ax.plot(*zip(*own, strict=True), MARKERS[i % 6], color=COLOURS[i % 6], markersize=4, label=name)
    ax.set_xlabel(x, fontsize=9)
    ax.set_ylabel(y, fontsize=9)
    if not numbers:
        ax.set_xticks(range(len(ticks)), words, rotation=90 if upright else 0)
        figure.subplots_adjust(bottom=(0.55 + 0.08 * upright) / (0.5 + size[1]))
    elif rows and 0 < 8 * ticks[0] <= ticks[-1]:
        log2(ax, ticks, x)
    elif len(ticks) <= 8:
        ax.set_xticks(ticks)
    if rows and 0 < 100 * min(row[y] for row in rows) <= max(row[y] for row in rows):
        ax.set_yscale("log")
    if not rows:
        ax.text(0.5, 0.5, "no case has both", transform=ax.transAxes, ha="center", fontsize=9, color=GREY)
    if by and rows:
        ax.legend(title=by, title_fontsize=8, fontsize=7.5, frameon=False)
    return figure


def permutation(rows: list[dict]) -> Figure:
    figure, (ax,) = page("Permuted tokens: how far the output is from the permuted one", 1, size=(6.4, 1.2 + 0.28 * len(rows)))
    figure.subplots_adjust(left=0.32)
    floor = 1e-17
    for i, row in enumerate(rows):
        value = row["largest_difference"]
        ax.plot([floor, max(value, floor)], [i, i], color="#bbbbbb", linewidth=1)
        ax.plot(max(value, floor), i, "o", color=COLOURS[0] if value < 1e-12 * row["largest_output"] else COLOURS[1], markersize=6)
        ax.text(max(value, floor) * 2.5, i, f"{value:.2g}", fontsize=8, va="center")
    ax.set_xscale("log")
    ax.set(xlim=(floor / 2, 1e4), ylim=(len(rows) - 0.4, -0.6))
    ax.set_yticks(range(len(rows)), [row["case"].replace("_", " ") for row in rows])
    ax.set_xlabel("largest |output of permuted tokens − permuted output|", fontsize=9)
    return figure


AXES = {"L": "L, tokens", "d_model": "d_model, width", "H": "H, heads"}


def costs(rows: list[dict]) -> Figure:
    figure, axes = page("Costs, counted exactly, against length, width and heads", 3, 2, sharey="row")
    counted = {
        "projections and output": lambda row: row["projections_multiply_adds"] + row["outputs_multiply_adds"],
        "scores and contexts": lambda row: row["scores_multiply_adds"] + row["contexts_multiply_adds"],
    }
    stored = {"of weights and biases": lambda row: row["parameter_bytes"], "of attention weights": lambda row: row["weights_bytes"]}
    for i, (axis, label) in enumerate(AXES.items()):
        chosen = series(rows, axis)
        fixed = ", ".join(f"{name} = {rows[0][name]}" for name in AXES if name != axis)
        for ax, kinds, first in ((axes[i], counted, 0), (axes[i + 3], stored, 2)):
            for n, (name, count) in enumerate(kinds.items(), first):
                places = [row[axis] for row in chosen]
                ax.plot(places, list(map(count, chosen)), marker=MARKERS[n], color=COLOURS[n], markersize=4, linewidth=1.3, label=name)
            log2(ax, [row[axis] for row in chosen], label)
            ax.set_yscale("log")
            ax.set_title(fixed, fontsize=8, color=GREY)
    for ax, name in ((axes[0], "multiply-adds"), (axes[3], "bytes")):
        ax.set_ylabel(name, fontsize=9)
        ax.legend(fontsize=7.5, frameon=False)
    return figure


def reach(rows: list[dict], drawn: list[tuple[str, np.ndarray]]) -> Figure:
    columns = 3
    figure, axes = page("Steps from token j (column) to token i (row)", columns, -(-len(drawn) // columns), size=(2.9, 3.0))
    most = max(found.max() for _, found in drawn)
    for ax, (name, found), row in zip(axes, drawn, rows, strict=False):
        ax.imshow(np.where(found > 0, found, np.nan), cmap="YlGnBu", vmin=0, vmax=most)
        for i, j in np.argwhere(found > 0):
            ax.text(j, i, str(found[i, j]), fontsize=7, ha="center", va="center", color="white" if found[i, j] > 0.6 * most else "black")
        ax.set_title(name, fontsize=9)
        ax.set_xlabel(f"longest path {row['longest_path']}; {row['pairs']} pairs in one layer", fontsize=8)
        ax.grid(visible=False)
    for ax in axes:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(ax in axes[: len(drawn)])
    return figure


def rounding(rows: list[dict]) -> Figure:
    """One column for each stage: the worst ratio of each dtype as a line, that of each evaluation as a mark."""
    stages, dtypes, kinds = (list(dict.fromkeys(row[name] for row in rows)) for name in ("stage", "dtype", "evaluation"))
    figure, axes = page("Largest rounding error of honest evaluations, as a part of its bound", len(stages), sharey=True, size=(2.7, 3.2))
    for ax, stage in zip(axes, stages, strict=True):
        for colour, dtype in zip(COLOURS, dtypes, strict=False):
            chosen = [row for row in rows if (row["stage"], row["dtype"]) == (stage, dtype) and row["ratio"] > 0]
            lengths = sorted({row["L"] for row in chosen})
            ax.plot(
                lengths, [max(row["ratio"] for row in chosen if row["L"] == n) for n in lengths], color=colour, linewidth=1.3, label=dtype
            )
            for marker, kind in zip(MARKERS, kinds, strict=False):
                own = [row for row in chosen if row["evaluation"] == kind]
                ax.plot([row["L"] for row in own], [row["ratio"] for row in own], marker, color=colour, markersize=3.5, alpha=0.7)
        ax.axhline(1, color=GREY, linewidth=1, linestyle="--")
        log2(ax, [row["L"] for row in rows], "L, tokens")
        ax.set_yscale("log")
        ax.set_title(stage, fontsize=9)
    axes[0].set_ylabel("error / bound", fontsize=9)
    axes[0].legend(fontsize=7.5, frameon=False, loc="lower left")
    marks = [axes[-1].plot([], [], marker, color=GREY, markersize=3.5, label=kind)[0] for marker, kind in zip(MARKERS, kinds, strict=False)]
    axes[-1].legend(handles=marks, fontsize=7.5, frameon=False, loc="upper right", bbox_to_anchor=(1, 0.93))
    return figure


def measured(rows: list[dict]) -> Figure:
    """Seconds against length, width and heads, with the slope between the last two points."""
    figure, axes = page("Costs, measured on this machine", 3, sharey="row")
    for ax, (axis, label) in zip(axes, AXES.items(), strict=True):
        chosen = series(rows, axis)
        for n, name in enumerate(("projections", "scores", "weights", "contexts", "outputs")):
            seconds = [row[f"{name}_seconds"] for row in chosen]
            slope = np.log(seconds[-1] / seconds[-2]) / np.log(chosen[-1][axis] / chosen[-2][axis]) if len(chosen) > 1 else np.nan
            places = [row[axis] for row in chosen]
            ax.plot(places, seconds, marker=MARKERS[n], color=COLOURS[n], markersize=4, linewidth=1.3, label=f"{name}: {slope:.1f}")
        log2(ax, [row[axis] for row in chosen], label)
        ax.set_yscale("log")
        ax.legend(title="slope at the end", title_fontsize=7.5, fontsize=7, frameon=False)
    axes[0].set_ylabel("seconds", fontsize=9)
    return figure
