"""Changes to the running job that a trial makes at a step boundary and takes back: one file per family.

Loaded only when a trial, or `perfdoctor run --apply`, asks for one.
"""

import importlib

from . import catalogue


def ordered(names: "list[str]") -> "list[str]":
    """In an order in which all of them find what they change: what is frozen, the collector does not list."""
    return sorted(names, key=lambda name: name == "gc.freeze")


def make(name: str, probe):
    """The remedy `name` for this job, not yet applied. Raises `catalogue.UnknownRemedyError`."""
    entry, value = catalogue.parse(name)
    if entry.launches:
        raise catalogue.UnknownRemedyError(f"{name} needs a new launch")
    module, _, kind = entry.home.partition(".")
    return getattr(importlib.import_module(f".{module}", __name__), kind)(probe, value)
