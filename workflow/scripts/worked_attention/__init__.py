"""Worked Attention: every number of attention, and a referee for other people's. The rooms are described in CONTRIBUTING.md."""

__version__ = "0.1.0"
