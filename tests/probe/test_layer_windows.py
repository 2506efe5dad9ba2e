"""The table of layers and the table of lines: the job does the same, and both are right."""

from __future__ import annotations

import pytest
from observing import line_of

from perfdoctor.recording.base import Missing
from perfdoctor.recording.layers import LayerProfile
from perfdoctor.recording.lines import Line, SitesWindow
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.operators import OpsWindow

pytestmark = pytest.mark.slow

STYLES = ("shared", "recomputed", "raises", "functional", "own_hooks", "beside", "loop", "rollout")


@pytest.fixture
def seen(observe):
    return observe("layers.py", *STYLES)


def layers(process: ProcessRecording) -> LayerProfile:
    assert isinstance(process.ops, OpsWindow)
    assert isinstance(process.ops.layers, LayerProfile)
    return process.ops.layers


def sites(process: ProcessRecording) -> SitesWindow:
    assert isinstance(process.call_sites, SitesWindow)
    return process.call_sites


def test_the_job_does_the_same_to_the_last_bit_and_keeps_no_hooks(seen):
    seen.same()
    seen.healthy()
    assert seen.probed.stdout.count("hooks false") == 4
    assert "failed" not in seen.probed.stdout


def test_a_layer_with_two_names_is_one_layer(seen):
    found = {row.name: row for row in layers(seen.named("shared")).layers}
    assert set(found) == {"", "one", "big"}
    assert found["one"].calls_per_step == 3 * found[""].calls_per_step
    assert found["one"].parameters == 72
    assert found["big"].weight_shape == (512, 8)
    assert found["big"].input_shape == (4, 8)
    assert not found[""].leaf


def test_forward_and_backward_go_to_their_layer(seen):
    found = {row.name: row for row in layers(seen.named("shared")).layers}
    assert found["one"].forward_ms > 0
    assert found["one"].backward_ms > 0
    calls = found[""].calls_per_step
    # Forward, and backward for the weight and the input; the first layer's input needs no gradient.
    assert found["big"].flops_per_step == calls * 3 * 2 * 4 * 8 * 512
    assert found["one"].flops_per_step == calls * (3 + 3 + 2) * 2 * 4 * 8 * 8


def test_a_recomputed_forward_counts_as_backward(seen):
    found = {row.name: row for row in layers(seen.named("recomputed")).layers}
    assert found["block.0"].calls_per_step == 2 * found[""].calls_per_step
    assert found["block.0"].backward_ms > 0


def test_a_forward_that_raises_leaves_no_range_open(seen):
    found = {row.name: row for row in layers(seen.named("raises")).layers}
    assert found["first"].calls_per_step == found[""].calls_per_step
    assert found["second"].calls_per_step < found["first"].calls_per_step


def test_parts_never_exceed_the_whole(seen):
    for style in ("shared", "recomputed", "raises", "beside"):
        table = layers(seen.named(style))
        assert sum(row.ms for row in table.layers) <= table.total_ms * 1.001
        assert sum(row.time_share for row in table.layers) <= 1.001
        assert sum(row.flops_per_step for row in table.layers) <= table.flops_per_step


def test_without_modules_the_table_is_empty(seen):
    assert layers(seen.named("functional")).layers == ()
    assert layers(seen.named("functional")).total_ms > 0


def test_with_hooks_of_the_jobs_own_there_is_no_table(seen):
    window = seen.named("own_hooks").ops
    assert isinstance(window, OpsWindow) and isinstance(window.layers, Missing)
    assert "hooks of its own" in window.layers.reason


def test_other_threads_are_not_counted(seen):
    assert {row.weight_shape for row in layers(seen.named("beside")).layers} == {(), (16, 8), (8, 16)}


def line(process: ProcessRecording, text: str, part: str) -> Line:
    (found,) = [row for row in sites(process).lines if row.part == part and text in line_of(row.site)]
    return found


def test_operators_are_counted_by_the_line_that_issued_them(seen):
    process = seen.named("loop")
    loss = line(process, "output[i].pow(2).mean()", "forward")
    assert loss.ops_per_step == 40 * 4
    assert loss.runs_per_step == 40  # four operators each time
    backward = line(process, "loss.backward()", "backward")
    assert backward.ops_per_step > loss.ops_per_step / 2
    assert backward.passes_per_update == 1
    assert loss.passes_per_update == 0
    assert line(process, "optimizer.step()", "optimizer").runs_per_step <= 1
    counted = sum(row.ops_per_step for row in sites(process).lines)
    assert counted * sites(process).steps == sites(process).ops
    for part in {row.part for row in sites(process).lines}:
        lines = [row for row in sites(process).lines if row.part == part]
        assert sum(row.share for row in lines) == pytest.approx(1, abs=0.001)
        assert sum(row.ops_share for row in lines) == pytest.approx(1, abs=0.001)


def test_reads_of_torchs_optimizer_are_told_from_the_jobs(seen):
    process = seen.named("loop")
    reads = {call.detail: call.calls_per_step for call in sites(process).calls if call.kind == "scalar_read"}
    assert reads["other"] == 2
    assert reads["optimizer"] > 0


def test_the_loop_around_a_line_is_told_with_what_its_iterations_need(seen):
    loss = line(seen.named("loop"), "output[i].pow(2).mean()", "forward").loop
    assert loss is not None and (loss.header, loss.carries) == ("for i in range(40)", ())
    rollout = seen.named("rollout")
    acts = line(rollout, "policy(seen)", "forward").loop
    assert acts is not None and acts.header == "for _ in range(30)" and "seen" in acts.carries
    # Inside the method: the loop is where it is called from, the state its object's.
    moves = line(rollout, "0.9 * self.state", "forward").loop
    assert moves is not None and (moves.line, moves.carries) == (acts.line, ("self.state",))
    assert acts.body is None and moves.body is not None and moves.body.line > acts.line
    # The loop over steps is none.
    assert all(one.loop is None for one in sites(rollout).lines if "optimizer" in line_of(one.site))
