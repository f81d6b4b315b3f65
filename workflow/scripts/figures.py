"""Rule figures: each drawn case of a suite as SVG and PNG, and all of them at a glance."""

from pathlib import Path

from worked_attention.drawing.heatmaps import case_figure, maps, overview_figure, write_png, write_svg
from worked_attention.files.artifacts import logged, read_arrays, read_suite, write_bytes
from worked_attention.referee.claims import check_claim


def save(figure, path: Path, dpi: int) -> None:
    """Write `figure` as path.svg and path.png."""
    write_bytes(path.with_name(path.name + ".svg"), lambda file: write_svg(figure, file))
    write_bytes(path.with_name(path.name + ".png"), lambda file: write_png(figure, file, dpi))


def misprints(claims: list[dict], arrays: dict) -> dict[str, dict[tuple, str]]:
    """What sources print wrongly of the arrays [..., H, Lq, Lk], by array and index [B, H, Lq, Lk]."""
    found: dict = {}
    for claim in [claim for claim in claims if claim["array"] in arrays]:
        array = arrays[claim["array"]]
        wrong = [value for value in check_claim(claim, array) if not value["agrees"]]
        batch = (0,) * (4 - array.ndim)
        found.setdefault(claim["array"], {}).update({(*batch, *value["index"]): value["printed"].replace("-", "−") for value in wrong})
    return found


with logged(snakemake.log[0]):  # noqa: F821
    source, looks = snakemake.input, snakemake.params.looks  # noqa: F821
    suite, cases = read_suite(source.parameters)
    cases = [case for case in cases if case["name"] in suite["figures"]]
    at_a_glance = []
    for case in cases:
        arrays = read_arrays(Path(source.scores, case["name"])) | read_arrays(Path(source.weights, case["name"]))
        shown = maps(case, arrays, looks, misprints(case["claims"], arrays))
        save(case_figure(case, shown, looks), Path(snakemake.output.figures, case["name"]), looks["dpi"])  # noqa: F821
        at_a_glance += [(case, m) for m in shown if m.name == "weights"]
    save(overview_figure(suite, at_a_glance), Path(snakemake.output.overview).with_suffix(""), looks["dpi"])  # noqa: F821
