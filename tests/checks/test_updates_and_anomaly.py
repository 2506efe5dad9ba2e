"""What torch itself does more of than it must: anomaly detection that was left on, an optimizer that is not fused."""

from __future__ import annotations

import pytest
from ill_runs.cpu_ops import SWITCH_LINE, anomaly_detection, scalar_reads, slow_update
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import HOT_LINES, healthy, ids, is_clear, number, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Confidence, Finding, Severity
from perfdoctor.evidence.model import Evidence, Line, Missing, Site


def _ids(evidence: Evidence) -> list[str]:
    return ids(examine(evidence, CHECK.limits))


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


# ---------------------------------------------------------------------------------------------------------
# Anomaly detection


def test_anomaly_detection_is_found_with_its_cost_and_the_line_that_switched_it_on() -> None:
    finding = _found(anomaly_detection())
    assert finding.id == "PD10.anomaly-detection" and finding.fix.remedies == ("debug.off",)
    assert finding.location is not None and finding.location.line == SWITCH_LINE.line
    assert "this line left" in finding.message and finding.severity is Severity.ERROR
    assert (number(finding, "traces"), number(finding, "checks")) == (80, 90)
    assert number(finding, "cost_ms") == pytest.approx(12.0)
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(10.8), pytest.approx(13.8))


def test_without_the_line_of_the_switch_one_of_the_loop_is_shown_and_not_blamed() -> None:
    finding = _found(anomaly_detection(detail=""))
    assert "this line" not in finding.message and "is on" in finding.message


def test_no_more_is_saved_than_the_two_passes_take() -> None:
    finding = _found(with_(anomaly_detection(traces_ms=20.0), step__parts=with_(healthy().step.parts, forward=9.0)))
    assert finding.savings.high_ms == pytest.approx(9.0 + 14.0)


@pytest.mark.parametrize(("ms", "count"), [(0.0, 0), (1.2, 0), (1.3, 1)])
def test_anomaly_detection_counts_from_a_twentieth_of_the_step_on(ms: float, count: int) -> None:
    assert len(_ids(anomaly_detection(traces_ms=ms, checks_ms=0.0))) == count


def test_on_a_gpu_the_search_for_nan_waits_for_the_device_too() -> None:
    finding = _found(on_gpu(anomaly_detection()))
    assert finding.savings.low_ms == pytest.approx(0.9 * 9.0) and finding.savings.high_ms == pytest.approx(13.8)
    assert finding.confidence is Confidence.MEDIUM and "waits for the device" in finding.savings.method
    assert _found(anomaly_detection()).confidence is Confidence.HIGH


def test_anomaly_detection_does_not_hide_what_else_is_wrong() -> None:
    reads = scalar_reads()
    both = with_(reads, call_sites=(*reads.call_sites, *anomaly_detection().call_sites))
    assert _ids(both) == ["PD10.anomaly-detection", "PD10.scalar-reads"]


# ---------------------------------------------------------------------------------------------------------
# The optimizer's update


def test_an_update_in_a_loop_is_found_with_what_other_ways_take() -> None:
    finding = _found(slow_update())
    assert finding.id == "PD10.slow-update"
    # The prediction is that of the fastest way, and so is the trial.
    assert finding.fix.remedies == ("optimizer.fused",)
    assert "torch.optim.Adam(model.parameters(), ..., fused=True)" in finding.fix.code
    assert "one after another" in finding.message
    assert (number(finding, "update_ms"), number(finding, "fused_ms")) == (6.0, 0.3)
    assert finding.savings.high_ms == pytest.approx(6.0 * 0.8)
    assert finding.savings.low_ms == pytest.approx(0.7 * 6.0 * 0.8)
    assert finding.savings.ceiling_ms == 6.0
    assert finding.location is not None and finding.location.line == HOT_LINES[2].site.line


@pytest.mark.parametrize(
    ("timing", "remedy"),
    [
        ({"foreach_ms": 1.44}, "optimizer.fused"),
        ({"fused_ms": None}, "optimizer.foreach"),
        ({"fused_ms": 1.47}, "optimizer.foreach"),
        ({"foreach_ms": 0.15}, "optimizer.foreach"),
        ({"made": "foreach", "foreach_ms": None}, "optimizer.fused"),
        ({"fused_ms": 1.45, "foreach_ms": 1.4}, None),
        ({"fused_ms": None, "foreach_ms": None}, None),
        ({"made": "fused", "fused_ms": None, "now_ms": 9.0}, None),
    ],
)
def test_the_fastest_way_is_named_if_it_was_faster_by_a_tenth(timing: dict[str, object], remedy: str | None) -> None:
    outcome = examine(slow_update(8.0, **timing), CHECK.limits)
    if remedy is None:
        assert is_clear(outcome)
    else:
        assert only(outcome).fix.remedies == (remedy,)


@pytest.mark.parametrize(("spent_ms", "told"), [(3.0, False), (3.2, True), (20.0, True)])
def test_a_slow_update_counts_by_what_it_would_save(spent_ms: float, told: bool) -> None:
    """Four fifths of it; of 25 ms. It is never more than a note: it is what torch chose."""
    outcome = examine(slow_update(spent_ms), CHECK.limits)
    assert only(outcome).severity is Severity.NOTE if told else is_clear(outcome)


def test_no_more_is_saved_than_the_faster_way_leaves() -> None:
    """Repeated, the loop took longer than in the job: it had to fault its memory in."""
    faulted = {"now_ms": 20.0, "foreach_ms": 9.0, "fused_ms": 1.0}
    finding = _found(slow_update(**faulted))
    assert finding.savings.high_ms == pytest.approx(6.0 - 1.0)
    assert "in the job, with its memory at hand, the loop takes less" in finding.reasoning
    assert "at hand" not in _found(slow_update()).reasoning
    assert is_clear(examine(slow_update(spent_ms=2.0, **faulted), CHECK.limits)), "1 of 25 ms is left to save"
    # What was timed is two fifths of the elements.
    assert _found(slow_update(part=0.4, **faulted)).savings.high_ms == pytest.approx(6.0 - 2.5)


def test_an_update_that_was_not_timed_is_not_judged() -> None:
    for unknown in ({"ops__update": Missing("it is not on the CPU")}, {"ops": Missing("the job runs a profiler")}):
        assert is_clear(examine(with_(slow_update(), **unknown), CHECK.limits))


def test_a_sample_of_a_large_model_is_said_to_be_one() -> None:
    (part,) = (m for m in _found(slow_update(part=0.4)).evidence if m.name == "part")
    assert (part.value, part.unit, part.label) == (0.4, "share", "of the elements timed")


def test_a_trainer_is_told_in_its_own_words() -> None:
    trainer = with_(slow_update(optimizer="AdamW"), job__trainer="transformers")
    assert 'optim="adamw_torch_fused"' in _found(trainer).fix.code


def test_without_a_line_of_the_update_it_is_told_all_the_same() -> None:
    lines = tuple(line for line in HOT_LINES if line.part != "optimizer")
    assert _found(with_(slow_update(), hot_lines=lines)).location is None
    dearer = Line(Site("ema.py", 7, "follow"), "optimizer", 200.0, 4.0, 4.0, 1.0, 1.0, 1.0)
    finding = _found(with_(slow_update(), hot_lines=(*HOT_LINES, dearer)))
    assert finding.location is not None and finding.location.file == "ema.py"
