"""Rule measured_costs: seconds of each stage of each case, the fastest of some runs in one process, on this machine."""

import time
from pathlib import Path

from worked_attention.cases.fitting import fitting
from worked_attention.files.artifacts import read_case, read_suite
from worked_attention.files.jobs import logged
from worked_attention.stages.whole import STAGE
from worked_attention.studies import figures
from worked_attention.studies.files import write_study
from worked_attention.studies.tables import costs

RUNS = 15
STAGES = {name: stage for name, stage in STAGE.items() if name != "backward"}
COLUMNS = {
    "case": "name",
    "L": "queries",
    "d_model": "width of x",
    "H": "heads",
    "multiply_adds": "of all stages",
    **{f"{name}_seconds": f"fastest of {RUNS} runs of stage {name}" for name in STAGES},
}


def measure(case: dict, parameters: dict) -> dict[str, float]:
    """Seconds of each stage."""
    fastest = dict.fromkeys(STAGES, float("inf"))
    for _ in range(RUNS):
        arrays = dict(parameters)
        for name, stage in STAGES.items():
            start = time.perf_counter()
            arrays |= stage(case, arrays)
            fastest[name] = min(fastest[name], time.perf_counter() - start)
    return {f"{name}_seconds": seconds for name, seconds in fastest.items()}


with logged(snakemake.log[0]):
    suite, cases = read_suite(snakemake.input.parameters)
    chosen = fitting("costs", {case["name"]: case for case in cases})
    rows = []
    for case, counted in zip(chosen, costs(chosen), strict=True):
        arrays = read_case([Path(snakemake.input.parameters)], case)
        rows.append({name: counted[name] for name in COLUMNS if name in counted} | measure(case, arrays))
    facts = {"suite": suite["name"], "study": "measured_costs", "columns": COLUMNS}
    write_study(Path(snakemake.output[0], "costs"), facts, rows, figures.measured(rows), snakemake.params.looks["dpi"])
