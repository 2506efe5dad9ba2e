"""From where on the wait for data is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step spent waiting: the field's usual lower bound (TensorBoard's plugin 5 %, TraceML 10 %)."""
    error_share: float = 0.20
    """A judgement: from a fifth of the step on, loading is the first thing to mend."""
    indexing_share: float = 0.08
    """Cheap samples picked one by one are the ordinary way to use a data set of tensors; a note up to this saving."""
    min_wait_ms: float = 0.05
    """Below, the wait is the loader's own bookkeeping (20 to 40 us a batch) and no setting shortens it."""
