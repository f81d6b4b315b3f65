"""Rule scores: see attention/scores.py."""

from worked_attention.files.jobs import run_stage
from worked_attention.stages import scores

run_stage(snakemake, scores.stage)
