"""How a run's computation is divided among its causes."""

from __future__ import annotations

import pytest
from samples import with_

from perfdoctor.evidence.causes import compute
from perfdoctor.evidence.model import Cause, Compute, Evidence, Missing, Share


def rest(evidence: Evidence, received_ms: float = 0.0) -> Compute:
    """Where receiving a batch takes so long."""
    found = compute(with_(evidence, loader__transport_ms=received_ms))
    assert not isinstance(found, Missing), found
    assert sum(ms_of(share) for share in found.shares) == pytest.approx(found.whole_ms)
    assert all(ms_of(share) >= 0 for share in (*found.shares, *found.savable))
    return found


def ms_of(share: Share) -> float:
    return 0.0 if isinstance(share.ms, Missing) else share.ms


def missing(shares: tuple[Share, ...]) -> set[Cause]:
    return {share.cause for share in shares if isinstance(share.ms, Missing)}
