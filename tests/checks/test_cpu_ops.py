from __future__ import annotations

from dataclasses import replace

import pytest
from ill_runs.cpu_ops import (
    LOSS_LINE,
    element_loop,
    sequential_loop,
)
from ill_runs.network import time_loop
from ill_runs.optimizer import parameter_loop, state_copies
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import HOT_LINES, healthy, ids, is_clear, number, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import Evidence, Line, Loop, Missing, Site


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
    across = {"across": "for agent in range(48)", "across_at": Site("train.py", 47, "main")}
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
