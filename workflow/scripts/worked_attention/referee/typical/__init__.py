"""Typical errors by stage: the standard deviation that independent roundings leave in every array, element by element."""
