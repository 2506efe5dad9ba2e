"""The loader that feeds the loop."""

from __future__ import annotations

from perfdoctor.api.quantities import Evidence, Loader, Missing


def feeding(evidence: Evidence) -> Loader | None:
    """The one whose batches are the most; None in a loop that makes its batches itself."""
    loaders = evidence.loaders
    return None if isinstance(loaders, Missing) else max(loaders, key=lambda loader: loader.batches, default=None)
