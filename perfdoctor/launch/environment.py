"""The job's environment: the caller's, with one directory in front of PYTHONPATH and three variables of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..injected._perfdoctor_probe import records

INJECTED = Path(__file__).resolve().parent.parent / "injected"


def job_environment(
    base: Mapping[str, str], run: Path, windows: Sequence[str], usable_cpus: float | None = None
) -> dict[str, str]:
    """`base` with the way in for the probe.

    An empty old PYTHONPATH leaves no trailing colon: Python would read that as the current directory.
    """
    old = base.get("PYTHONPATH", "")
    return {
        **base,
        "PYTHONPATH": f"{INJECTED}:{old}" if old else str(INJECTED),
        "PERFDOCTOR_RUN": str(run),
        "PERFDOCTOR_WINDOWS": ",".join(windows),
        **({} if usable_cpus is None else {"PERFDOCTOR_CPUS": f"{usable_cpus:g}"}),
    }


def changed(base: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """`base` with other variables; "" unsets one."""
    return {name: value for name, value in {**base, **changes}.items() if value or name not in changes}


def recorded(base: Mapping[str, str]) -> dict[str, str]:
    """The variables of `base` that a recording may hold."""
    return {name: base[name] for name in records.ENVIRONMENT if name in base}
