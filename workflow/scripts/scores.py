"""Rule scores: see attention/scores.py."""

from artifacts import run_stage
from attention import scores

run_stage(snakemake, scores.stage)
