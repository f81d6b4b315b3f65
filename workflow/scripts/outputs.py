"""Rule outputs: see attention/outputs.py."""

from worked_attention.files.jobs import run_stage
from worked_attention.stages import outputs

run_stage(snakemake, outputs.stage)
