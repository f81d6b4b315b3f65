"""Rule export_suite: see exports.py."""

from pathlib import Path

from artifacts import logged, read_arrays, read_suite
from attention.arrays import STAGES
from exports import export_onnx, write_manifest, write_plain

with logged(snakemake.log[0]):
    folders = [Path(folder) for name, folder in snakemake.input.items() if name in STAGES and folder]
    root = Path(snakemake.output[0])
    suite, cases = read_suite(snakemake.input.parameters)
    entries = {}
    for case in cases:
        arrays = {name: array for folder in folders for name, array in read_arrays(folder / case["name"]).items()}
        entries[case["name"]] = write_plain(root, case, arrays) | {"onnx": export_onnx(root, case, arrays)}
    write_manifest(root, suite, entries)
