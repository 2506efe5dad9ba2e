"""The table of layers and the table of lines: the job does the same, and both are right."""

from __future__ import annotations

import linecache

import pytest

from perfdoctor.recording.model import LayersSeen, LineRow, ProcessRecording

STYLES = ("shared", "recomputed", "raises", "functional", "own_hooks", "beside", "loop")


@pytest.fixture
def seen(observe):
    return observe("layers.py", *STYLES)


def layers(process: ProcessRecording) -> LayersSeen:
    assert process.ops is not None
    assert process.ops.layers is not None
    return process.ops.layers


def test_the_job_does_the_same_to_the_last_bit_and_keeps_no_hooks(seen):
    seen.same()
    seen.healthy()
    assert seen.probed.stdout.count("hooks false") == 4
    assert "failed" not in seen.probed.stdout


def test_a_layer_with_two_names_is_one_layer(seen):
    found = {row.name: row for row in layers(seen.named("shared")).modules}
    assert set(found) == {"", "one", "big"}
    assert found["one"].calls == 3 * found[""].calls
    assert found["one"].parameters == 72
    assert found["big"].weight == (512, 8)
    assert found["big"].input == (4, 8)
    assert not found[""].leaf


def test_forward_and_backward_go_to_their_layer(seen):
    found = {row.name: row for row in layers(seen.named("shared")).modules}
    assert found["one"].forward_us > 0
    assert found["one"].backward_us > 0
    calls = found[""].calls
    # Forward, and backward for the weight and the input; the first layer's input needs no gradient.
    assert found["big"].flops == calls * 3 * 2 * 4 * 8 * 512
    assert found["one"].flops == calls * (3 + 3 + 2) * 2 * 4 * 8 * 8


def test_a_recomputed_forward_counts_as_backward(seen):
    found = {row.name: row for row in layers(seen.named("recomputed")).modules}
    assert found["block.0"].calls == 2 * found[""].calls
    assert found["block.0"].backward_us > 0


def test_a_forward_that_raises_leaves_no_range_open(seen):
    found = {row.name: row for row in layers(seen.named("raises")).modules}
    assert found["first"].calls == found[""].calls
    assert found["second"].calls < found["first"].calls


def test_parts_never_exceed_the_whole(seen):
    for style in ("shared", "recomputed", "raises", "beside"):
        table = layers(seen.named(style))
        assert sum(row.forward_us + row.backward_us for row in table.modules) <= table.total_us
        assert sum(row.flops for row in table.modules) <= table.flops


def test_without_modules_the_table_is_empty(seen):
    assert layers(seen.named("functional")).modules == ()
    assert layers(seen.named("functional")).missing == ""


def test_with_hooks_of_the_jobs_own_there_is_no_table(seen):
    assert "hooks of its own" in layers(seen.named("own_hooks")).missing


def test_other_threads_are_not_counted(seen):
    assert {row.weight for row in layers(seen.named("beside")).modules} == {(), (16, 8), (8, 16)}


def line(process: ProcessRecording, text: str, part: str) -> LineRow:
    assert process.call_sites is not None
    (found,) = [
        row
        for row in process.call_sites.lines or ()
        if row.part == part and text in linecache.getline(process.sites[row.site].file, process.sites[row.site].line)
    ]
    return found


def test_operators_are_counted_by_the_line_that_issued_them(seen):
    process = seen.named("loop")
    assert process.call_sites is not None
    steps = process.call_sites.steps
    loss = line(process, "output[i].pow(2).mean()", "forward")
    assert loss.ops == steps * 40 * 4
    assert loss.calls == loss.ops
    assert loss.places == 4
    backward = line(process, "loss.backward()", "backward")
    assert backward.ops > loss.ops / 2
    assert backward.passes == steps
    assert loss.passes == 0
    assert line(process, "optimizer.step()", "optimizer").calls <= steps
    assert sum(process.call_sites.lines_ops.values()) == process.call_sites.ops


def test_reads_of_torchs_optimizer_are_told_from_the_jobs(seen):
    process = seen.named("loop")
    assert process.call_sites is not None
    reads = {call.detail: call.count for call in process.call_sites.calls if call.kind == "scalar_read"}
    assert reads["other"] == 2 * process.call_sites.steps
    assert reads["optimizer"] > 0
