"""Finds the checks: those in `perfdoctor.checks` by file, a third party's by entry point. A check that fails to
load fails the run: a doctor that silently looks at less is worse than none."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from ..errors import PerfdoctorError
from ..exits import Exit
from .outcomes import Check

GROUP = "perfdoctor.checks"


@dataclass(frozen=True, slots=True)
class Registered:
    """A check and the documentation of its module."""

    check: Check[Any]
    doc: str


def discover() -> tuple[Registered, ...]:
    """All checks, by code. Raises PerfdoctorError when one does not load or two share a name."""
    package = importlib.import_module("perfdoctor.checks")
    names = [module.name for module in pkgutil.iter_modules(package.__path__, "perfdoctor.checks.")]
    found = [_load(name) for name in names if not name.rpartition(".")[2].startswith("_")]
    found += [_load(entry.value.partition(":")[0]) for entry in entry_points(group=GROUP)]
    by_name: dict[str, Registered] = {}
    for registered in found:
        for name in registered.check.names:
            if name in by_name:
                raise _broken(registered.check.code, f"two checks are called {name}")
            by_name[name] = registered
    return tuple(sorted(found, key=lambda registered: registered.check.code))


def codes() -> dict[str, str]:
    """The code of each check by its names."""
    return {name: entry.check.code for entry in discover() for name in entry.check.names[1:]}


def _load(module_name: str) -> Registered:
    try:
        module: ModuleType = importlib.import_module(module_name)
    except Exception as error:
        raise _broken(module_name, f"{type(error).__name__}: {error}") from error
    check = getattr(module, "CHECK", None)
    if not isinstance(check, Check):
        raise _broken(module_name, "it has no attribute CHECK of type perfdoctor.api.Check")
    return Registered(check, module.__doc__ or "")


def _broken(name: str, why: str) -> PerfdoctorError:
    return PerfdoctorError(
        f"the check {name} cannot be loaded: {why}",
        slug="check-load",
        advice="mend or uninstall the package that brings it; nothing was judged",
        exit_code=Exit.INTERNAL,
    )
