"""Rule reference: the references of one library that a suite asks for, on every case of the suite."""

import gc
from pathlib import Path

from worked_attention.files.artifacts import FORMAT, logged, packed, read_cases, write_json
from worked_attention.files.environment import libraries, without_paths
from worked_attention.references.registry import adapter

gc.disable()  # what a library makes while it is imported stays; to search that for garbage takes a tenth of this job

with logged(snakemake.log[0]):
    library, output = snakemake.wildcards.library, Path(snakemake.output[0])
    for name in snakemake.params.names:
        module = adapter(library, name)
        said: dict = {"format": FORMAT, "installed": module is not None, "unsupported": {}, "convention": {}}
        with packed(output / f"{name}.npz") as put:
            for case, arrays in read_cases(snakemake.input) if module else []:
                if reason := module.supports(case):
                    said["unsupported"][case["name"]] = reason
                    continue
                if other := module.convention(case):
                    said["convention"][case["name"]] = other
                for array, value in module.run(case, arrays).items():
                    put(case["name"], array, value)
        write_json(output / f"{name}.json", said)
    if library == "torch":  # what it says of itself is part of the environment
        write_json(output / "libraries.json", without_paths(libraries()))
