"""Rule reference: every reference of one library on every case of one suite."""

import gc
from importlib import import_module
from pathlib import Path

from artifacts import logged, read_arrays, read_suite, write_array, write_json
from references import LIBRARIES, packages

gc.disable()  # what a library makes while it is imported stays; to search that for garbage takes a tenth of this job

with logged(snakemake.log[0]):
    library, output = snakemake.wildcards.library, Path(snakemake.output[0])
    parameters = Path(snakemake.input.parameters)
    cases = read_suite(parameters)[1]
    for name in LIBRARIES[library]:
        said: dict = {"installed": True, "unsupported": {}, "convention": {}}
        try:
            adapter = import_module(f"references.{library}_{name}")
        except ModuleNotFoundError as error:  # this job's environment may lack what Snakemake's own has
            if str(error.name).split(".")[0] not in packages(library):
                raise
            said["installed"] = False
        for case in cases if said["installed"] else []:
            if reason := adapter.supports(case):
                said["unsupported"][case["name"]] = reason
                continue
            if other := adapter.convention(case):
                said["convention"][case["name"]] = other
            for array, value in adapter.run(case, read_arrays(parameters / case["name"])).items():
                write_array(output / name / case["name"] / f"{array}.npy", value)
        write_json(output / name / "said.json", said)
