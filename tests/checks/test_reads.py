"""Reads of single numbers, and what goes through lists or between host and device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ill_runs.cpu_ops import (
    READ_LINE,
    device_sync,
    list_conversion,
    round_trip,
    scalar_reads,
)
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import DEVICE_BOUND, HOT_LINES, healthy, ids, is_clear, number, only, with_

from perfdoctor.diagnosis.findings import Finding, Part
from perfdoctor.evidence.model import CallSite, Evidence, Line, Loop, Missing, Site


def _ids(evidence: Evidence) -> list[str]:
    return ids(examine(evidence, CHECK.limits))


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


# ---------------------------------------------------------------------------------------------------------
# Scalar reads on a CPU


def test_a_line_that_reads_in_each_run_costs_all_that_it_computes() -> None:
    finding = _found(scalar_reads())
    assert finding.id == "PD10.scalar-reads"
    assert finding.location is not None
    assert finding.location.line == READ_LINE.line
    assert finding.savings.ceiling_ms == pytest.approx(4.0)


def test_several_reads_in_each_run_are_a_loop_of_reads_with_the_lines_beside_it() -> None:
    """Norm, mean and deviation of 42 gradients on one line, their histograms on another."""
    call = CallSite("scalar_read", READ_LINE, 126.0, 0.05, "other")
    reading = Line(READ_LINE, "other", 500.0, 4.0, 1.3, 0.6, 0.6, 42.0)
    beside = replace(reading, site=replace(READ_LINE, line=61), ops_per_step=84.0, ms_per_step=0.5, runs_per_step=45.0)
    elsewhere = replace(beside, site=replace(READ_LINE, function="evaluate"))
    once = replace(beside, site=replace(READ_LINE, line=62), runs_per_step=1.0)
    finding = _found(
        with_(scalar_reads(), call_sites=(call,), hot_lines=(reading, beside, elsewhere, once, *HOT_LINES))
    )
    assert finding.id == "PD10.scalar-reads"
    assert number(finding, "cost_ms") == pytest.approx(4.5)
    # Another line of the same loop that reads is the same finding.
    also = replace(call, site=beside.site, calls_per_step=42.0, ms_per_step=0.02)
    both = with_(scalar_reads(), call_sites=(call, also), hot_lines=(reading, beside, *HOT_LINES))
    assert _ids(both) == ["PD10.scalar-reads"]
    # Three scalars of one line that runs once are three reads, whatever else the line computes.
    single = with_(scalar_reads(), call_sites=(replace(call, calls_per_step=3.0),), hot_lines=(once, *HOT_LINES))
    assert _ids(single) == []


def test_reads_take_no_more_than_the_part_of_the_step_that_they_are_in() -> None:
    """4,000 reads of 3 us each in a part of 4.7 ms: on a quick CPU one takes less."""
    call = CallSite("scalar_read", READ_LINE, 4_000.0, 6.0, "other")
    reading = Line(READ_LINE, "other", 8_000.0, 4.0, 1.3, 0.6, 0.6, 4_000.0)
    finding = _found(with_(scalar_reads(), call_sites=(call,), hot_lines=(reading, *HOT_LINES)))
    assert number(finding, "cost_ms") == pytest.approx(4.7)
    assert finding.savings.high_ms == pytest.approx(0.9 * 4.7)


@pytest.mark.parametrize(
    ("loop", "line"),
    [
        (Loop(57, "for value in values"), 57),
        (Loop(57, "for value in values", by_library=True), READ_LINE.line),
        (Loop(57, "for value in values", body=replace(READ_LINE, line=58)), READ_LINE.line),
    ],
)
def test_a_loop_of_reads_is_told_at_its_head_where_its_function_has_it(loop: Loop, line: int) -> None:
    evidence = scalar_reads()
    lines = tuple(replace(one, loop=loop) if one.site == READ_LINE else one for one in evidence.hot_lines)  # type: ignore[union-attr]
    finding = _found(with_(evidence, hot_lines=lines))
    assert finding.location is not None and finding.location.line == line


def test_reading_the_loss_once_a_step_is_fine() -> None:
    assert is_clear(examine(scalar_reads(reads=1.0, line_ms=4.0), CHECK.limits))


@pytest.mark.parametrize(("line_ms", "count"), [(1.2, 0), (1.3, 1)])
def test_reads_count_from_a_twentieth_of_the_step_on(line_ms: float, count: int) -> None:
    assert len(_ids(scalar_reads(line_ms=line_ms))) == count


def test_reads_on_a_line_that_does_much_else_cost_only_themselves() -> None:
    evidence = scalar_reads(reads=400.0)
    other = with_(evidence.hot_lines[0], runs_per_step=1.0)  # type: ignore[index]
    finding = _found(with_(evidence, hot_lines=(other,)))
    assert finding.savings.ceiling_ms == pytest.approx(400 * (2.0 + 3.0) / 1000)


@pytest.mark.parametrize(
    "changes", [{"detail": "optimizer"}, {"site": Site("train.py", 60, "main", "torch/optim/adam.py:_step")}]
)
def test_torchs_own_optimizers_are_not_blamed_on_the_line_that_calls_them(changes: dict[str, object]) -> None:
    evidence = with_(scalar_reads(**changes), hot_lines=HOT_LINES)
    assert _ids(evidence) == []
    assert number(examine(evidence, CHECK.limits), "reads") == 0


def test_all_reads_of_a_loop_are_counted() -> None:
    one = scalar_reads(16.0, line_ms=2.0)
    assert not isinstance(one.call_sites, Missing) and not isinstance(one.hot_lines, Missing)
    there = with_(one.call_sites[0].site, line=one.call_sites[0].site.line + 1)
    both = with_(
        one,
        call_sites=(*one.call_sites, with_(one.call_sites[0], site=there)),
        hot_lines=(*one.hot_lines, with_(one.hot_lines[0], site=there)),
    )
    finding = _found(both)
    assert number(finding, "reads") == 32 and finding.message.startswith("this loop")


def test_a_loop_of_reads_is_not_found_twice() -> None:
    assert _ids(scalar_reads()) == ["PD10.scalar-reads"]


# ---------------------------------------------------------------------------------------------------------
# CUDA


@pytest.mark.parametrize(("reads", "count"), [(1.0, 0), (1.9, 0), (2.0, 1)])
def test_on_cuda_two_reads_a_step_are_too_many(reads: float, count: int) -> None:
    assert _ids(device_sync(reads)) == ["PD10.device-sync"] * count


def test_a_read_that_does_not_wait_is_harmless() -> None:
    assert _ids(device_sync(reads=20.0, ms=0.4)) == []


def test_waiting_is_not_all_lost() -> None:
    finding = _found(device_sync(ms=5.0))
    assert finding.savings.low_ms == pytest.approx(0.5)
    assert finding.savings.high_ms == pytest.approx(4.5)


def test_waiting_while_the_device_has_work_costs_nothing() -> None:
    assert _ids(with_(device_sync(ms=5.0), device=DEVICE_BOUND)) == []


def test_a_read_costs_at_most_what_the_device_lacks_work() -> None:
    finding = _found(with_(device_sync(ms=5.0), device=replace(DEVICE_BOUND, idle_most_ms=2.0)))
    assert finding.savings.ceiling_ms == pytest.approx(2.0)
    assert finding.savings.low_ms == pytest.approx(0.5)
    assert finding.savings.high_ms == pytest.approx(2.0)
    assert number(finding, "cost_ms") == 5.0
    assert number(finding, "felt_ms") == pytest.approx(2.0)


@pytest.mark.parametrize(("where", "part"), [("forward", Part.COMPUTE), ("other", Part.OTHER)])
def test_a_wait_belongs_to_the_part_that_it_is_in(where: str, part: Part) -> None:
    assert _found(device_sync(detail=where)).savings.part is part


def test_data_that_leaves_and_comes_back_is_a_round_trip() -> None:
    finding = _found(round_trip())
    assert finding.id == "PD10.round-trip"
    assert finding.savings.ceiling_ms == pytest.approx(3.0)


@pytest.mark.parametrize(
    "evidence",
    [round_trip(ms=1.2), round_trip(back="load"), round_trip(copies=0.5)],
    ids=["cheap", "another function", "not in every step"],
)
def test_a_batch_that_is_brought_to_the_device_is_no_round_trip(evidence: Evidence) -> None:
    assert _ids(evidence) == []


def test_numbers_that_go_through_lists_cost_both_ways() -> None:
    finding = _found(list_conversion())
    assert finding.id == "PD10.list-conversion"
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(2.4), pytest.approx(3.0))
    assert finding.location is not None and finding.location.line == 64  # the dearer of the two
    assert number(finding, "made") == 2.0
    # A few lists are common, and an opportunity.
    assert finding.is_opportunity and not _found(list_conversion(ms=6.0)).is_opportunity


@pytest.mark.parametrize(
    "evidence",
    [list_conversion(ms=1.2), list_conversion(part="input_wait"), list_conversion(ms=1.5, back="targets")],
    ids=["cheap", "a batch that is made", "5 % together, in two functions"],
)
def test_lists_that_cost_little_or_make_the_batch_are_left_to_others(evidence: Evidence) -> None:
    assert _ids(evidence) == []


def test_copies_in_one_direction_are_no_round_trip() -> None:
    one_way = (CallSite("copy", READ_LINE, 3.0, 5.0, "cpu->cuda"),)
    assert _ids(with_(round_trip(), call_sites=one_way)) == []


def test_what_a_library_reads_for_itself_does_not_make_the_line_a_loop_of_reads() -> None:
    by_hand = scalar_reads(reads=200.0, line_ms=4.0, each_us=0.1)
    assert ids(examine(by_hand, CHECK.limits)) == ["PD10.scalar-reads"]
    assert not isinstance(by_hand.call_sites, Missing)
    (call,) = (one for one in by_hand.call_sites if one.kind == "scalar_read")
    inside = replace(call, by_library=True)
    assert is_clear(examine(with_(by_hand, call_sites=(inside,)), CHECK.limits))


def test_an_agent_that_reads_its_action_does_not_lose_its_rollout_to_the_read() -> None:
    """Sixteen times a step: the network, the distribution that checks its arguments, the action."""
    acting = Line(READ_LINE, "forward", 32.0, 0.2, 0.1, 0.02, 0.02, 16.0)
    sample = replace(READ_LINE, line=59, via="torch/distributions/categorical.py:sample")
    drawing = Line(sample, "forward", 64.0, 6.0, 3.0, 0.7, 0.6, 16.0)
    read = CallSite("scalar_read", READ_LINE, 16.0, 0.02, "forward")
    checked = CallSite("scalar_read", replace(READ_LINE, line=58), 32.0, 0.04, "forward", by_library=True)
    checking = Line(checked.site, "forward", 64.0, 5.0, 2.0, 0.5, 0.5, 16.0)
    evidence = with_(healthy(), call_sites=(read, checked), hot_lines=(drawing, checking, acting, *HOT_LINES))
    assert _ids(evidence) == []


def test_what_anomaly_detection_reads_is_not_the_line_that_asks_for_the_backward_pass() -> None:
    engine = CallSite("scalar_read", READ_LINE, 800.0, 4.0, "backward", by_library=True)
    assert _ids(with_(healthy(), call_sites=(engine,))) == []
    assert _ids(with_(healthy(), call_sites=(replace(engine, by_library=False),))) == ["PD10.scalar-reads"]
