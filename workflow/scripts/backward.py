"""Rule backward: see attention/backward.py."""

from artifacts import run_stage
from attention import backward

run_stage(snakemake, backward.stage)
