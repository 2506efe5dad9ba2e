from __future__ import annotations

from dataclasses import replace

import pytest
from ill_runs.cpu_ops import (
    LOSS_LINE,
    READ_LINE,
    device_sync,
    element_loop,
    list_conversion,
    round_trip,
    scalar_reads,
    sequential_loop,
)
from ill_runs.network import time_loop
from ill_runs.optimizer import parameter_loop, state_copies
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import DEVICE_BOUND, HOT_LINES, healthy, ids, is_clear, number, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Finding, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import CallSite, Evidence, Line, Loop, Missing, Site


def _ids(evidence: Evidence) -> list[str]:
    return ids(examine(evidence, CHECK.limits))


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


@pytest.mark.parametrize("part", ["step", "call_sites", "hot_lines"])
def test_without_the_window_nothing_is_claimed(part: str) -> None:
    outcome = examine(with_(healthy(), **{part: Missing("it was not seen")}), CHECK.limits)
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


# ---------------------------------------------------------------------------------------------------------
# Loops over elements


def test_a_loop_is_found_with_its_lines_and_its_part_of_the_backward_pass() -> None:
    finding = _found(element_loop())
    assert finding.id == "PD10.element-loop"
    assert finding.location is not None
    assert finding.location.line == LOSS_LINE.line
    assert number(finding, "runs") == 256
    assert number(finding, "loop_ms") == pytest.approx(4.8)
    assert number(finding, "backward_ms") == pytest.approx(0.6 * 14)
    # At worst 15 % of the backward pass are not the loop's.
    assert finding.savings.low_ms == pytest.approx(0.92 * (4.8 + 0.85 * 8.4))
    assert finding.savings.high_ms == pytest.approx(0.98 * (4.8 + 8.4))


def test_a_loop_is_told_at_its_head_also_where_it_calls_what_computes() -> None:
    run = element_loop()
    body = with_(LOSS_LINE, line=60, function="main")
    loop = Loop(59, "for row in rows", body=body)
    looped = tuple(with_(line, loop=loop) if line.runs_per_step > 1 else line for line in run.hot_lines)  # type: ignore[union-attr]
    finding = _found(with_(run, hot_lines=looped))
    assert finding.id == "PD10.element-loop"
    assert finding.location is not None and (finding.location.line, finding.location.function) == (59, "main")


@pytest.mark.parametrize(
    ("file", "runs", "findings", "lines"),
    [
        ("train.py", 256.0, 1, "50, 51, 90"),
        ("train.py", 1024.0, 1, "50, 51, 90"),  # a loop inside, or a function that is called four times
        ("losses.py", 256.0, 1, "50, 51, losses.py:90"),
        ("losses.py", 1024.0, 2, "50, 51"),
        ("train.py", 350.0, 2, "50, 51"),
    ],
)
def test_what_a_loop_calls_belongs_to_it(file: str, runs: float, findings: int, lines: str) -> None:
    loop = element_loop()
    assert not isinstance(loop.hot_lines, Missing)
    called = Line(Site(file, 90, "distance"), "forward", 2 * runs, 2.5, 2.0, 0.2, 0.2, runs)
    outcome = examine(with_(loop, hot_lines=(called, *loop.hot_lines)), CHECK.limits)
    assert len(outcome.findings) == findings
    assert lines in {m.value for finding in outcome.findings for m in finding.evidence if m.name == "lines"}


@pytest.mark.parametrize(
    ("file", "function", "runs", "findings"),
    [
        ("train.py", "sample_loss", 310.0, 1),
        ("train.py", "sample_loss", 350.0, 2),
        ("train.py", "overlap", 310.0, 1),  # which the loop calls
        ("losses.py", "overlap", 310.0, 2),
    ],
)
def test_runs_of_lines_in_one_file_are_estimates(file: str, function: str, runs: float, findings: int) -> None:
    loop = element_loop()
    assert not isinstance(loop.hot_lines, Missing)
    next_line = Line(Site(file, 52, function), "forward", 2 * runs, 2.5, 2.0, 0.2, 0.2, runs)
    outcome = examine(with_(loop, hot_lines=(next_line, *loop.hot_lines)), CHECK.limits)
    assert len(outcome.findings) == findings


@pytest.mark.parametrize(("runs", "count"), [(31.0, 0), (32.0, 1)])
def test_a_loop_runs_32_times(runs: float, count: int) -> None:
    assert len(_ids(with_(element_loop(runs), loaders=()))) == count


@pytest.mark.parametrize(("runs", "batch", "count"), [(16.0, 16, 1), (16.0, 24, 0), (7.0, 7, 0), (16.0, None, 0)])
def test_or_as_often_as_there_are_samples(runs: float, batch: int | None, count: int) -> None:
    assert len(_ids(with_(element_loop(runs), loader__batch_size=batch))) == count


@pytest.mark.parametrize(("runs", "count"), [(63.0, 0), (64.0, 1)])
def test_blocks_of_a_deep_network_are_no_loop(runs: float, count: int) -> None:
    assert len(_ids(element_loop(runs, function="forward"))) == count


@pytest.mark.parametrize(
    ("runs", "changes", "site", "count"),
    [
        (9.0, {}, {}, 1),
        (7.0, {}, {}, 0),
        (9.0, {"of_layers": True}, {}, 0),
        (9.0, {"body": LOSS_LINE}, {}, 0),  # the lines are in what it calls
        (9.0, {}, {"via": "torch/nn/modules/linear.py forward"}, 0),
        (9.0, {"carries": ("h",)}, {}, 0),
    ],
)
def test_lines_of_a_loop_that_was_read_and_calls_operators_alone_are_few(
    runs: float, changes: dict[str, object], site: dict[str, str], count: int
) -> None:
    run = with_(sequential_loop(runs=runs, function="forward", **site), loaders=())
    lines = [replace(one, loop=one.loop and with_(one.loop, **changes)) for one in run.hot_lines]  # type: ignore
    assert len(_ids(with_(run, hot_lines=tuple(lines)))) == count


def test_a_network_called_once_is_no_loop_however_many_operators_it_has() -> None:
    whole = Line(Site("train.py", 41, "main"), "forward", 5000.0, 8.0, 5.0, 1.0, 1.0, 1.0)
    assert is_clear(examine(with_(healthy(), hot_lines=(whole,)), CHECK.limits))


@pytest.mark.parametrize(("op_us", "count"), [(49.0, 1), (51.0, 0)])
def test_operators_that_work_are_no_overhead(op_us: float, count: int) -> None:
    assert len(_ids(element_loop(op_us=op_us))) == count


def test_what_its_operators_compute_whole_tensors_may_take_as_well() -> None:
    """768 operators in 12.8 ms: at 6 us each all of that is calling them, at 16 us a part may be work."""
    short, longer = (_found(element_loop(share=1.6, op_us=op_us)).savings for op_us in (6.0, 16.0))
    assert longer.high_ms == pytest.approx(short.high_ms)
    assert longer.low_ms / short.low_ms == pytest.approx(1 - 768 * 0.004 / 12.8)


def test_a_loop_that_leaves_no_nodes_has_no_part_of_the_backward_pass() -> None:
    run = element_loop()
    assert not isinstance(run.hot_lines, Missing)
    few = [with_(line, ops_per_step=40.0) if line.part == "backward" else line for line in run.hot_lines]
    copies = _found(with_(run, hot_lines=tuple(few)))
    assert number(copies, "backward_ms") < 0.5 < number(_found(run), "backward_ms")


@pytest.mark.parametrize(("share", "count"), [(0.11, 0), (0.12, 1)])
def test_a_loop_counts_from_a_tenth_of_the_step_on(share: float, count: int) -> None:
    assert len(_ids(element_loop(share=share))) == count


def test_backward_and_optimizer_lines_are_never_loops() -> None:
    busy = tuple(
        Line(replace(line.site, via="torch/_tensor.py:backward"), part, 900.0, 14.0, 3.0, 1.0, 1.0, 300.0)
        for line, part in zip(HOT_LINES, ("backward", "optimizer"), strict=False)
    )
    assert _ids(with_(healthy(), hot_lines=busy)) == []


def test_cells_are_left_to_the_check_of_the_layers() -> None:
    assert _ids(time_loop()) == []


@pytest.mark.parametrize(
    ("runs", "forward_ms", "count"),
    [(140.0, 3.5, 0), (160.0, 3.5, 1), (140.0, 3.4, 1)],
    ids=["its-line", "another-line", "much-besides"],
)
def test_a_line_whose_first_operator_is_no_cells_may_still_be_the_cell(
    runs: float, forward_ms: float, count: int
) -> None:
    """`self.cell(x[:, t], state)`: 100 calls of the cell, in a line of 7 ms that ran about as often."""
    run = time_loop()
    line = run.hot_lines[0]  # type: ignore[index]
    sliced = replace(line, site=replace(line.site, via="torch/_tensor.py:select"), runs_per_step=runs)
    layers = tuple(replace(one, forward_ms=forward_ms) for one in run.layers.layers)  # type: ignore[union-attr]
    ran = with_(run, hot_lines=(sliced,), layers__layers=layers)
    assert len(_ids(ran)) == count


def test_a_loop_whose_iterations_need_one_another_is_not_told_to_use_whole_tensors() -> None:
    finding = _found(sequential_loop("state", "done"))
    assert finding.id == "PD10.sequential-loop"
    assert finding.severity is Severity.NOTE
    assert "whole tensors" not in finding.fix.text and not finding.fix.code
    assert finding.savings.high_ms == 0  # none that a run could predict
    assert finding.savings.ceiling_ms == pytest.approx(4.8 + 8.4)
    assert {m.value for m in finding.evidence if m.name == "carries"} == {"state, done"}


def test_a_loop_of_a_solver_is_not_the_users_to_vectorise() -> None:
    run = sequential_loop()
    lines = [replace(one, loop=one.loop and replace(one.loop, by_library=True)) for one in run.hot_lines]  # type: ignore
    assert is_clear(examine(with_(run, hot_lines=tuple(lines)), CHECK.limits))


def test_a_loop_around_one_that_needs_its_state_is_computed_at_once() -> None:
    run = sequential_loop("carry")
    across = {"across": "for agent in range(48)", "across_line": 47}
    lines = [replace(one, loop=one.loop and replace(one.loop, **across)) for one in run.hot_lines]  # type: ignore
    finding = _found(with_(run, hot_lines=tuple(lines)))
    assert finding.id == "PD10.element-loop" and "`{across}` (line {across_line})" in finding.fix.text
    told = {measured.name: measured.value for measured in finding.evidence}
    assert (told["across"], told["across_line"], told["carries"]) == ("for agent in range(48)", "47", "carry")
    assert finding.location is not None and finding.location.line == 47, "the loop that has to go"
    # Two agents halve the loop.
    assert finding.savings.low_ms == pytest.approx(0.5 * (4.8 + 0.85 * 8.4))


def test_lines_under_one_head_are_one_loop_however_often_they_seem_to_run() -> None:
    """64 times and, with a softmax of two operators, 85 times."""
    run = sequential_loop()
    first = run.hot_lines[0]  # type: ignore[index]
    below = replace(first.site, line=first.site.line + 3)
    second = replace(first, site=below, runs_per_step=1.33 * first.runs_per_step)
    elsewhere = replace(second, loop=second.loop and replace(second.loop, line=7))
    assert len(_ids(with_(run, hot_lines=(*run.hot_lines, second)))) == 1  # type: ignore[misc]
    assert len(_ids(with_(run, hot_lines=(*run.hot_lines, elsewhere)))) == 2  # type: ignore[misc]


def test_a_sequential_loop_is_worth_telling_from_the_same_share_on() -> None:
    assert _ids(sequential_loop("h", share=0.11)) == []
    assert _ids(sequential_loop("h", op_us=51.0)) == []
    assert _ids(with_(sequential_loop("h", runs=31.0), loaders=())) == []


def test_the_fix_speaks_of_the_loop_that_was_seen() -> None:
    finding = _found(sequential_loop())
    assert finding.id == "PD10.element-loop"
    assert "`{loop}`" in finding.fix.text and "`{loop}`" in finding.message
    assert not finding.fix.code


def test_lines_before_and_after_the_state_are_a_loop_of_their_own() -> None:
    """`e = embed(x[t])` could be computed for all time steps, `h = cell(e, h)` could not."""
    run = sequential_loop("h")
    first, *others = run.hot_lines  # type: ignore[misc]
    free = replace(first, loop=replace(first.loop, carries=()))
    assert _ids(with_(run, hot_lines=(free, *others))) == ["PD10.element-loop", "PD10.sequential-loop"]


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


def test_a_loop_in_the_backward_of_a_function_is_a_loop_too() -> None:
    """Autograd's own operators are those of the line that calls `backward()`, once; a function's are its own lines'."""
    own = Line(Site("quantise.py", 30, "backward"), "backward", 800.0, 6.0, 4.0, 0.43, 0.8, 200.0)
    whole = Line(Site("train.py", 60, "main", "torch/_tensor.py:backward"), "backward", 200.0, 8.0, 7.0, 0.57, 0.2, 1.0)
    finding = _found(with_(healthy(), hot_lines=(whole, own)))
    assert finding.id == "PD10.element-loop"
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("quantise.py", 30)
    assert number(finding, "loop_ms") == pytest.approx(6.0)
    assert number(finding, "backward_ms") == 0.0


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


# ---------------------------------------------------------------------------------------------------------
# What another check tells


def test_loops_over_parameters_are_left_to_the_check_of_the_optimizer() -> None:
    for run in (parameter_loop(), parameter_loop(reads=120.0), state_copies()):
        assert _ids(run) == []
    assert _ids(parameter_loop(header="for sample in batch")) == ["PD10.element-loop"]
    assert _ids(parameter_loop(header="for sample in batch", reads=120.0)) == ["PD10.scalar-reads"]


def test_on_a_gpu_reads_of_parameters_are_told_here_by_what_the_host_waits() -> None:
    run = parameter_loop(reads=120.0)
    assert not isinstance(run.call_sites, Missing)
    (read,) = run.call_sites
    waiting = on_gpu(hot_lines=run.hot_lines, call_sites=(replace(read, ms_per_step=5.0),))
    assert _ids(waiting) == ["PD10.device-sync"]
