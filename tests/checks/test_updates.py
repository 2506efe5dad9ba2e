"""What torch itself does more of than it must: an optimizer that is not fused."""

from __future__ import annotations

import pytest
from ill_runs.optimizer import many_groups, slow_update
from perfdoctor.checks.optimizer import CHECK, examine
from samples import HOT_LINES, ids, is_clear, number, only, with_

from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.evidence.model import Evidence, Line, Missing, Site
from perfdoctor.report.wording import filled


def _ids(evidence: Evidence) -> list[str]:
    return ids(examine(evidence, CHECK.limits))


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


# ---------------------------------------------------------------------------------------------------------
# The optimizer's update


def test_an_update_in_a_loop_is_found_with_what_other_ways_take() -> None:
    finding = _found(slow_update())
    assert finding.id == "PD17.slow-update"
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


# ---------------------------------------------------------------------------------------------------------
# Groups of parameters


def test_groups_of_the_same_options_are_told_by_what_one_for_each_takes() -> None:
    finding = filled(_found(many_groups()))
    assert (finding.id, finding.severity) == ("PD17.needless-groups", Severity.WARNING)
    assert finding.message == "Adam has 200 groups of parameters for 2 sets of options: 4.80 ms per step (19 %)"
    assert finding.savings.high_ms == pytest.approx(6.0 * 0.8) and finding.savings.ceiling_ms == 6.0
    assert "fused" not in finding.fix.code and '{"params": decayed}' in finding.fix.code


def test_where_fewer_groups_need_another_way_both_are_told_as_an_opportunity() -> None:
    """A loop over tensors takes as long in one group; one operator for each of 200 groups, as well."""
    timing = {"made": "loop", "foreach_ms": 1.5, "fused_ms": 1.4, "now_together_ms": 1.4, "fused_together_ms": 0.3}
    finding = filled(_found(many_groups(**timing)))
    assert (finding.id, finding.severity) == ("PD17.needless-groups", Severity.NOTE)
    assert "}], fused=True)" in finding.fix.code and "`fused=True`" in finding.reasoning


@pytest.mark.parametrize(
    ("timing", "told"),
    [
        ({"now_together_ms": 1.4, "foreach_together_ms": 1.5}, []),
        ({"now_together_ms": None, "foreach_together_ms": None}, []),
        ({"made": "loop", "fused_ms": 0.3, "fused_together_ms": 0.29, "now_together_ms": 1.4}, ["PD17.slow-update"]),
    ],
)
def test_groups_that_cost_little_or_no_more_than_another_way_are_let_be(timing: dict, told: list[str]) -> None:
    assert _ids(many_groups(**timing)) == told
