"""Rule conformance_suite: every reference of one library on every case of one suite, in each dtype."""

import gc
from pathlib import Path

from worked_attention.files.artifacts import read_cases
from worked_attention.files.formats import write_json
from worked_attention.files.jobs import logged
from worked_attention.referee.arithmetics import Ours, compared, recast
from worked_attention.references.registry import adapter
from worked_attention.stages.dtypes import DTYPES, usual_precision
from worked_attention.stages.whole import from_parameters

gc.disable()  # see reference.py
KEPT = ("verdict", "contract", "reason", "empty_row")


def dtypes(case: dict) -> list[str]:
    """Those to look at: all, but for a case that names a dtype or a precision, which is what it is about."""
    plain = case["dtype"] == "float64" and case["precision"] == usual_precision("float64")
    return list(DTYPES) if plain else [case["dtype"]]


def cell(module, ours: Ours) -> dict:
    """{verdict, contract, reason, empty_row} of one reference on one case in one dtype, without what does not apply."""
    if reason := module.supports(ours.case):
        return {"verdict": "unsupported", "reason": reason}
    theirs = module.run(ours.case, {name: ours.arrays[name] for name in ours.case["arrays"]["parameters"]})
    result = compared(ours, theirs, module.convention(ours.case))
    return {key: result[key] for key in KEPT if key in result}


with logged(snakemake.log[0]):
    library = snakemake.wildcards.library
    modules = {f"{library}.{name}": adapter(library, name) for name in snakemake.params.names}
    found: dict = {}
    for case, arrays in read_cases(snakemake.input):
        cells: dict = {name: {} for name, module in modules.items() if module}
        for dtype in dtypes(case):
            other, parameters = recast(case, arrays, dtype)
            ours = Ours(other, from_parameters(other, parameters), snakemake.params.gates)
            for name in cells:
                cells[name][dtype] = cell(modules[name], ours)
        found[case["name"]] = cells
    write_json(Path(snakemake.output[0]), found)
