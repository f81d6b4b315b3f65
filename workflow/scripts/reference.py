"""Rule reference: the references of one library that a suite asks for, on every case of the suite."""

import gc
from contextlib import ExitStack
from pathlib import Path

from worked_attention.files.artifacts import read_cases
from worked_attention.files.environment import libraries, without_paths
from worked_attention.files.formats import FORMAT, write_json
from worked_attention.files.jobs import logged
from worked_attention.files.packed import packed
from worked_attention.references.registry import adapter

gc.disable()  # what a library makes while it is imported stays; to search that for garbage takes a tenth of this job

with logged(snakemake.log[0]):
    library, output = snakemake.wildcards.library, Path(snakemake.output[0])
    modules = {name: adapter(library, name) for name in snakemake.params.names}
    said: dict[str, dict] = {
        name: {"format": FORMAT, "installed": module is not None, "unsupported": {}, "convention": {}} for name, module in modules.items()
    }
    with ExitStack() as files:
        put = {name: files.enter_context(packed(output / f"{name}.npz")) for name in modules}
        present = {name: module for name, module in modules.items() if module}
        for case, arrays in read_cases(snakemake.input) if present else []:
            for name, module in present.items():
                if reason := module.supports(case):
                    said[name]["unsupported"][case["name"]] = reason
                    continue
                if other := module.convention(case):
                    said[name]["convention"][case["name"]] = other
                for array, value in module.run(case, arrays).items():
                    put[name](case["name"], array, value)
    for name, words in said.items():
        write_json(output / f"{name}.json", words)
    if library == "torch":  # what it says of itself is part of the environment
        write_json(output / "libraries.json", without_paths(libraries()))
