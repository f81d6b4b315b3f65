"""Rule parameters: one suite file, whose limits the Snakefile has checked, to resolved cases and the arrays that they start from."""

from pathlib import Path

from worked_attention.cases.suites import UNLIMITED, load_suite
from worked_attention.files.artifacts import write_stage
from worked_attention.files.formats import write_json
from worked_attention.files.jobs import logged
from worked_attention.stages import parameters

with logged(snakemake.log[0]):
    source, output = Path(snakemake.input.suite), Path(snakemake.output[0])
    suite = load_suite(source, UNLIMITED | {"max_whole_mb": snakemake.params.whole})
    for name, case in suite["cases"].items():
        write_stage(output / name, "parameters", case, parameters.stage(case, source.parent))
        write_json(output / name / "case.json", case)
    write_json(output / "suite.json", {**suite, "cases": list(suite["cases"])})
