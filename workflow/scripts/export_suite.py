"""Rule export_suite: see exports.py."""

from pathlib import Path

from worked_attention.files.artifacts import logged, read_cases, read_suite
from worked_attention.files.golden import export_onnx, write_manifest, write_plain

with logged(snakemake.log[0]):
    root = Path(snakemake.output[0])
    entries = {}
    for case, arrays in read_cases(snakemake.input):
        entries[case["name"]] = write_plain(root, case, arrays) | {"onnx": export_onnx(root, case, arrays)}
    write_manifest(root, read_suite(snakemake.input.parameters)[0], entries)
