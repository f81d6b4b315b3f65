"""Rule projections: see attention/projections.py."""

from worked_attention.files.jobs import run_stage
from worked_attention.stages import projections

run_stage(snakemake, projections.stage)
