"""Variables that keep libraries from the CPU's newer instructions: which of them were in effect."""

from __future__ import annotations

from collections.abc import Mapping

from ..injected._perfdoctor_probe.records import VECTOR_EXTENSION_VARIABLES
from .model import ProcessRecording
from .settings import Backend

_UNLIMITED = (0, 1, 2)
"""Of MKL's branches: not known, off, and chosen by the CPU."""


def limiting_variables(process: ProcessRecording) -> Mapping[str, str]:
    """As they were when the job imported torch; of those that it has set since, the ones that came in time, since
    libraries read them when they are first used."""
    at_import = process.torch.environment if process.torch else {}
    now = process.settings.environment if process.settings else {}
    found = {name: at_import[name] for name in VECTOR_EXTENSION_VARIABLES if at_import.get(name)}
    if process.settings is not None:
        later = {name: now[name] for name in VECTOR_EXTENSION_VARIABLES if now.get(name) and name not in found}
        found |= {n: value for n, value in later.items() if _came_in_time(n, value, process.settings.backend)}
    return found


def _came_in_time(name: str, value: str, backend: Backend) -> bool:
    """oneDNN does not say what it has read: who sets it in a script means it, and does so early."""
    if name == "ATEN_CPU_CAPABILITY":
        return backend.capability.lower() == value.lower()
    if name == "MKL_CBWR":
        return backend.mkl_branch not in _UNLIMITED
    return name.endswith("_MAX_CPU_ISA")
