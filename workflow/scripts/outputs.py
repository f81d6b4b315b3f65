"""Rule outputs: see attention/outputs.py."""

from artifacts import run_stage
from attention import outputs

run_stage(snakemake, outputs.stage)
