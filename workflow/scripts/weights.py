"""Rule weights: see attention/weights.py."""

from artifacts import run_stage
from attention import weights

run_stage(snakemake, weights.stage)
