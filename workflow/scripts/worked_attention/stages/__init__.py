"""Attention as the formulas have it: NumPy in, NumPy out, one module per stage, no files and no Snakemake."""
