"""Rule projections: see attention/projections.py."""

from artifacts import run_stage
from attention import projections

run_stage(snakemake, projections.stage)
