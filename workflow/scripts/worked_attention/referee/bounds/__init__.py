"""Certified bounds, one module per stage; rounding.py has the plan that all of them follow."""
