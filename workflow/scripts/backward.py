"""Rule backward: see attention/backward.py."""

from worked_attention.files.jobs import run_stage
from worked_attention.stages import backward

run_stage(snakemake, backward.stage)
