"""The charts of a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....diagnosis.findings import Diagnosis
from .model import Chart


def build(diagnosis: Diagnosis, recorded: Sequence[Path]) -> dict[str, Chart]:
    """The charts by name, in their order on the page; `recorded` is the run's directory, or the files of a trace."""
    return {}
