"""Rule reference: every reference of one library on every case of one suite."""

from importlib import import_module
from pathlib import Path

from artifacts import logged, read_arrays, read_suite, write_array, write_json
from references import LIBRARIES

with logged(snakemake.log[0]):
    library, output = snakemake.wildcards.library, Path(snakemake.output[0])
    parameters = Path(snakemake.input.parameters)
    adapters = {name: import_module(f"references.{library}_{name}") for name in LIBRARIES[library]}
    said: dict[str, dict] = {name: {"unsupported": {}, "convention": {}} for name in adapters}
    for case in read_suite(parameters)[1]:
        arrays = read_arrays(parameters / case["name"])
        for name, adapter in adapters.items():
            if reason := adapter.supports(case):
                said[name]["unsupported"][case["name"]] = reason
                continue
            if other := adapter.convention(case):
                said[name]["convention"][case["name"]] = other
            for array, value in adapter.run(case, arrays).items():
                write_array(output / name / case["name"] / f"{array}.npy", value)
    for name in adapters:
        write_json(output / name / "said.json", said[name])
