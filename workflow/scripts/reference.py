"""Rule reference: every reference of one library on every case of one suite."""

import gc
from pathlib import Path

from worked_attention.files.artifacts import logged, read_arrays, read_suite, write_array, write_json
from worked_attention.references.registry import LIBRARIES, adapter

gc.disable()  # what a library makes while it is imported stays; to search that for garbage takes a tenth of this job

with logged(snakemake.log[0]):
    library, output = snakemake.wildcards.library, Path(snakemake.output[0])
    parameters = Path(snakemake.input.parameters)
    cases = read_suite(parameters)[1]
    for name in LIBRARIES[library]:
        module = adapter(library, name)
        said: dict = {"installed": module is not None, "unsupported": {}, "convention": {}}
        for case in cases if module else []:
            if reason := module.supports(case):
                said["unsupported"][case["name"]] = reason
                continue
            if other := module.convention(case):
                said["convention"][case["name"]] = other
            for array, value in module.run(case, read_arrays(parameters / case["name"])).items():
                write_array(output / name / case["name"] / f"{array}.npy", value)
        write_json(output / name / "said.json", said)
