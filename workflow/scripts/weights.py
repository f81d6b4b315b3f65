"""Rule weights: see attention/weights.py."""

from worked_attention.files.jobs import run_stage
from worked_attention.stages import weights

run_stage(snakemake, weights.stage)
