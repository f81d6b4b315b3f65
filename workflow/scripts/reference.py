"""Rule reference: every reference of one library on every case of one suite."""

from importlib import import_module
from pathlib import Path

from artifacts import logged, read_arrays, read_suite, write_array, write_json
from references import LIBRARIES

with logged(snakemake.log[0]):
    library, output = snakemake.wildcards.library, Path(snakemake.output[0])
    parameters = Path(snakemake.input.parameters)
    cases = read_suite(parameters)[1]
    for name in LIBRARIES[library]:
        adapter = import_module(f"references.{library}_{name}")
        reasons = {}
        for case in cases:
            if reason := adapter.supports(case):
                reasons[case["name"]] = reason
                continue
            for array, value in adapter.run(case, read_arrays(parameters / case["name"])).items():
                write_array(output / name / case["name"] / f"{array}.npy", value)
        write_json(output / name / "unsupported.json", reasons)
