"""A study's files: the same table as CSV and JSON, the same figure as SVG and PNG."""

import csv
import io
from pathlib import Path

import numpy as np

from worked_attention.drawing.heatmaps import write_png, write_svg
from worked_attention.files.formats import FORMAT, values, write_bytes, write_json, write_text


def write_study(path: Path, facts: dict, rows: list[dict], figure, dpi: int) -> None:
    """Write path.csv (its header is the columns of facts), path.json (facts, then rows), path.svg and path.png."""
    rows = [{name: values(np.asarray(v)) if isinstance(v, float) else v for name, v in row.items()} for row in rows]
    text = io.StringIO()
    table = csv.DictWriter(text, list(facts["columns"]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(path.with_name(path.name + ".csv"), text.getvalue())
    write_json(path.with_name(path.name + ".json"), {"format": FORMAT, **facts, "rows": rows})
    write_bytes(path.with_name(path.name + ".svg"), lambda file: write_svg(figure, file))
    write_bytes(path.with_name(path.name + ".png"), lambda file: write_png(figure, file, dpi))
