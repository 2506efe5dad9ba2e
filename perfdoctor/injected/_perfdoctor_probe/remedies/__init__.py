"""Changes to the running job that a trial makes at a step boundary and takes back: one file per family.

Loaded only when a trial, or `perfdoctor run --apply`, asks for one.
"""

import importlib

from . import catalogue


def make(name: str, probe):
    """The remedy `name` for this job, not yet applied. Raises `catalogue.UnknownRemedyError`."""
    entry, value = catalogue.parse(name)
    if entry.environment is not None:
        raise catalogue.UnknownRemedyError(f"{name} needs a new launch")
    return getattr(importlib.import_module(f".{entry.home}", __name__), entry.kind)(probe, value)
