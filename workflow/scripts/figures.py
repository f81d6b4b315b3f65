"""Rule figures: each drawn case of a suite as SVG and PNG, and all of them at a glance."""

from pathlib import Path

from worked_attention.drawing.heatmaps import case_figure, overview_figure, write_png, write_svg
from worked_attention.drawing.maps import chosen, maps
from worked_attention.files.artifacts import read_case, read_suite
from worked_attention.files.formats import write_bytes
from worked_attention.files.jobs import logged
from worked_attention.referee.claims import check_claim
from worked_attention.stages.rows import looked_at


def save(figure, path: Path, dpi: int) -> None:
    """Write `figure` as path.svg and path.png."""
    write_bytes(path.with_name(path.name + ".svg"), lambda file: write_svg(figure, file))
    write_bytes(path.with_name(path.name + ".png"), lambda file: write_png(figure, file, dpi))


def misprints(claims: list[dict], arrays: dict) -> dict[str, dict[tuple, str]]:
    """What sources print wrongly of the arrays, by array and index [B, H, row, column]; the output is of all heads."""
    found: dict = {}
    for claim in [claim for claim in claims if claim["array"] in arrays and arrays[claim["array"]].ndim > 1]:
        array = arrays[claim["array"]]
        wrong = [value for value in check_claim(claim, array) if not value["agrees"]]
        for value in wrong:
            *lead, row, column = value["index"]
            lead = [*lead, 0] if claim["array"] == "output" else lead
            found.setdefault(claim["array"], {})[(*(0,) * (2 - len(lead)), *lead, row, column)] = value["printed"].replace("-", "−")
    return found


with logged(snakemake.log[0]):
    source, looks = snakemake.input, snakemake.params.looks
    suite, cases = read_suite(source.parameters)
    cases = [case for case in cases if case["name"] in suite["figures"]]
    at_a_glance = []
    for case in cases:
        arrays = read_case([Path(folder) for name, folder in source.items() if name != "parameters"], case, case["sample"])
        case = looked_at(case)
        wrong = misprints(case["claims"], arrays)
        save(case_figure(case, chosen(case, arrays, looks, wrong), looks), Path(snakemake.output.figures, case["name"]), looks["dpi"])
        at_a_glance += [(case, m) for m in maps(case, arrays, looks, wrong) if m.name == "weights"]
    save(overview_figure(suite, at_a_glance), Path(snakemake.output.overview).with_suffix(""), looks["dpi"])
