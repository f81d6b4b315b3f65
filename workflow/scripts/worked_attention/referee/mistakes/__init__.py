"""The library of known mistakes, by stage."""
