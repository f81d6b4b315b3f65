"""Worked Attention: attention, every number, rebuilt by one DAG. This file is the table of contents."""

import gc
import os
import sys
from pathlib import Path

from snakemake.settings.types import DeploymentMethod
from snakemake.utils import min_version

min_version("9.0")

if not os.access(".snakemake" if os.path.exists(".snakemake") else ".", os.W_OK):
    sys.exit(f"Error: {os.getcwd()} cannot be written; a run needs that")
if {"{", "}"} & set(os.getcwd()):
    sys.exit(
        f"Error: {os.getcwd()} has braces in its path, which Snakemake takes for wildcards; move the project"
    )

sys.path.insert(0, str(Path(workflow.basedir) / "workflow" / "scripts"))

from imports import code, ours_first
from worked_attention.cases.strict_yaml import Problems
from worked_attention.plan import Plan

ours_first()

own_environment = (
    DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
)
gc.disable()  # to look for garbage among many cases, of which none is any, takes as long as to read them
try:
    plan = Plan(config, Path("envs/attention.yaml") if own_environment else None)
except Problems as problems:
    sys.exit(str(problems))
gc.freeze()
gc.enable()

if "--report" in sys.argv and not Path(plan.place, "index.html").exists():
    sys.exit(
        "Error: there is nothing to report yet; run `snakemake --cores 1` first, with the same --config"
    )


report: "workflow/report/workflow.rst"


wildcard_constraints:
    suite="|".join(plan.suites),


include: "workflow/rules/terminal.smk"
include: "workflow/rules/attention.smk"
include: "workflow/rules/truth.smk"
include: "workflow/rules/references.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/studies.smk"
include: "workflow/rules/pages.smk"
include: "workflow/rules/environment.smk"
include: "workflow/rules/summary.smk"
include: "workflow/rules/conformance.smk"
include: "workflow/rules/onnx_node_tests.smk"
include: "workflow/rules/judge.smk"
include: "workflow/rules/worksheets.smk"
include: "workflow/rules/power.smk"
include: "workflow/rules/archive.smk"
include: "workflow/rules/export.smk"


rule all:
    default_target: True
    input:
        f"{plan.place}/verdict.txt",
