"""Rule contexts: see attention/contexts.py."""

from worked_attention.files.jobs import run_stage
from worked_attention.stages import contexts

run_stage(snakemake, contexts.stage)
