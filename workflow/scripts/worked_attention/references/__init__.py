"""Implementations that we did not write, one adapter each; registry.py says what an adapter is."""
