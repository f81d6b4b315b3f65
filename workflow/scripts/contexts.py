"""Rule contexts: see attention/contexts.py."""

from artifacts import run_stage
from attention import contexts

run_stage(snakemake, contexts.stage)
