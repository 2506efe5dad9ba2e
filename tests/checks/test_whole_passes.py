"""What the job's own passes took another way tells more than single operators do. Forward and backward are 22 ms."""

from __future__ import annotations

from types import ModuleType

import pytest
from ill_runs.cudnn import channels_first, unfused
from ill_runs.dtype import bfloat16_beside, slow_type
from ill_runs.workspaces import churn
from perfdoctor.checks import cudnn, dtype, shared_model, workspaces
from samples import healthy, with_

from perfdoctor.evidence.model import Evidence
from perfdoctor.recording.timings import PassWays

WAYS = [
    (dtype, bfloat16_beside(), "bfloat16", (0.7, 1.1)),
    (cudnn, channels_first(saved=10.0), "channels last", (0.7, 1.1)),
    (workspaces, churn(), "memory kept", (0.3, 1.2)),
    (cudnn, unfused(took=12.0, ratio=2.0), "fused attention", (0.7, 1.1)),
    (shared_model, healthy(), "no pool", (0.7, 1.1)),
]


def _found(check: ModuleType, evidence: Evidence, way: str, took_ms: float) -> list[tuple[float, float]]:
    outcome = check.CHECK.examine(with_(evidence, ops__ways=PassWays(10.0, ((way, took_ms),))), check.CHECK.limits)
    return [(finding.savings.low_ms, finding.savings.high_ms) for finding in outcome.findings]


@pytest.mark.parametrize(("check", "evidence", "way", "keeps"), WAYS)
def test_what_the_passes_took_less_is_told(
    check: ModuleType, evidence: Evidence, way: str, keeps: tuple[float, float]
) -> None:
    ((low, high),) = _found(check, evidence, way, took_ms=6.0)
    assert (low, high) == (pytest.approx(keeps[0] * 0.4 * 22), pytest.approx(keeps[1] * 0.4 * 22))


@pytest.mark.parametrize(("check", "evidence", "way", "keeps"), WAYS)
@pytest.mark.parametrize("took_ms", [9.9, 14.0])
def test_what_the_passes_did_not_gain_from_is_no_opportunity(
    check: ModuleType, evidence: Evidence, way: str, keeps: tuple[float, float], took_ms: float
) -> None:
    assert _found(check, evidence, way, took_ms) == []


def test_float32_is_told_by_the_passes_and_up_to_half_of_the_update() -> None:
    """An update of 2 ms."""
    ((low, high),) = _found(dtype, slow_type("float64"), "float32", took_ms=5.0)
    assert (low, high) == (pytest.approx(0.7 * 11), pytest.approx(1.1 * 11 + 1.0))


def test_float64_beside_the_modules_is_told_by_its_operators() -> None:
    evidence = slow_type("float64")
    assert _found(dtype, evidence, "float32", took_ms=10.0) == _found(dtype, evidence, "another", took_ms=10.0) != []
