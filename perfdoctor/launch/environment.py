"""The job's environment: the caller's, with one directory in front of PYTHONPATH and three variables of ours; and what
another launch changes in it."""

from __future__ import annotations

import ctypes.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..injected._perfdoctor_probe import records

INJECTED = Path(__file__).resolve().parent.parent / "injected"


def job_environment(
    base: Mapping[str, str],
    run: Path,
    windows: Sequence[str],
    usable_cpus: float | None = None,
    *,
    keep_trace: bool = False,
    sample: bool = False,
) -> dict[str, str]:
    """`base` with the way in for the probe. `keep_trace`: of the operator window, in `run`. `sample`: stacks.

    An empty old PYTHONPATH leaves no trailing colon: Python would read that as the current directory.
    """
    old = base.get("PYTHONPATH", "")
    return {
        **base,
        "PYTHONPATH": f"{INJECTED}:{old}" if old else str(INJECTED),
        "PERFDOCTOR_RUN": str(run),
        "PERFDOCTOR_WINDOWS": ",".join(windows),
        **({} if usable_cpus is None else {"PERFDOCTOR_CPUS": f"{usable_cpus:g}"}),
        **({"PERFDOCTOR_KEEP_TRACE": "1"} if keep_trace else {}),
        **({"PERFDOCTOR_SAMPLE": "1"} if sample else {}),
    }


def leaving_at(step: int, base: Mapping[str, str]) -> dict[str, str]:
    """`base` with the step after which every rank leaves by itself."""
    return {**base, records.LEAVE_AT: str(step)}


def changed(base: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """`base` with other variables; "" unsets one."""
    return {name: value for name, value in {**base, **changes}.items() if value or name not in changes}


def recorded(base: Mapping[str, str]) -> dict[str, str]:
    """The variables of `base` that a recording may hold."""
    return {name: base[name] for name in records.ENVIRONMENT if name in base}


def found_library(names: Sequence[str], look: Callable[[str], str | None] = ctypes.util.find_library) -> str:
    """The first of these that this machine has, by the name that the loader knows it under; "" for none."""
    return next((found for name in names if (found := look(name))), "")


def preloading(library: str, base: Mapping[str, str]) -> dict[str, str]:
    """The variable that loads `library` (another allocator) in front of what the job preloads anyway."""
    before = base.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library}:{before}" if before else library}
