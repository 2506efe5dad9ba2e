"""Builders of ill runs, a module for each check; `ills.py` has a run for every finding."""
