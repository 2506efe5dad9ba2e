"""Which library did what: the job does the same, and each way is recognised, with its timing where it has one."""

from __future__ import annotations

import pytest
from perfdoctor.recording.library import LibraryUse

from perfdoctor.recording.model import ProcessRecording

pytestmark = pytest.mark.e2e

STYLES = (
    "by_hand",
    "layers",
    "dropped",
    "einsum",
    "singly",
    "fused",
    "unfused",
    "forced",
    "returned",
    "gate",
    "convolutions",
    "trapped",
    "recurrent",
    "trapped_recurrent",
)


@pytest.fixture(scope="module")
def seen(observe_once):
    return observe_once("libraries.py", *STYLES)


def use(process: ProcessRecording) -> LibraryUse:
    assert process.ops is not None
    assert process.ops.library is not None
    assert process.ops.library.missing == ""
    return process.ops.library


def test_the_job_does_the_same_to_the_last_bit_and_finds_its_switches(seen):
    seen.same()
    seen.healthy()
    assert seen.probed.stdout.count("switches [true, true]") == len(STYLES)
    assert "failed" not in seen.probed.stdout


def calls(process: ProcessRecording) -> int:
    """Of one layer that every step calls once."""
    assert process.ops is not None
    return process.ops.steps


@pytest.mark.parametrize(
    ("style", "mask", "dropout"), [("by_hand", "fill", 0.0), ("dropped", "fill", 0.1), ("einsum", "add", 0.0)]
)
def test_attention_by_hand_is_recognised_forward_and_backward(seen, style, mask, dropout):
    process = seen.named(style)
    (found,) = use(process).attention
    assert (found.made, found.mask, found.dropout) == ("by hand", mask, dropout)
    assert found.sizes == (8, 24, 8, 24)
    assert found.calls == calls(process)
    assert (found.module, found.dtype) == ("Attention", "float32")
    assert found.forward_us > 0
    assert found.backward_us > 0
    assert found.now_us > 0
    assert found.fused_us > 0
    assert found.part == 1.0


def test_attention_of_one_head_of_one_sample_is_recognised(seen):
    """Products of two matrices each; those with weights beside them are none."""
    process = seen.named("singly")
    (found,) = use(process).attention
    assert (found.made, found.sizes) == ("by hand", (1, 24, 8, 24))
    assert found.calls == 8 * calls(process)
    assert found.backward_us > 0
    assert found.now_us > 0


def test_the_same_attention_in_two_layers_has_one_timing(seen):
    one, other = use(seen.named("layers")).attention
    assert {one.layer, other.layer} == {"0", "1"}
    assert (one.now_us, one.fused_us) == (other.now_us, other.fused_us)


def test_torchs_function_is_fused_or_not(seen):
    (fused,) = use(seen.named("fused")).attention
    assert (fused.made, fused.now_us) == ("fused", 0.0)
    assert fused.backward_us > 0
    (unfused,) = use(seen.named("unfused")).attention
    assert (unfused.made, unfused.dropout, unfused.choice) == ("math", 0.1, "math")
    (forced,) = use(seen.named("forced")).attention
    assert (forced.made, forced.dropout, forced.choice) == ("math", 0.0, "fused")
    assert forced.backward_us > 0


def test_weights_that_are_returned_are_torchs_layers(seen):
    (found,) = use(seen.named("returned")).attention
    assert (found.made, found.layer, found.module) == ("by hand", "attention", "MultiheadAttention")


def test_a_softmax_of_classes_is_no_attention(seen):
    assert use(seen.named("gate")).attention == ()


def test_convolutions_are_told_by_their_kernel(seen):
    plain, transposed = sorted(use(seen.named("convolutions")).convolutions, key=lambda row: row.transposed)
    assert (plain.kernel, plain.choice, plain.layer) == ("aten::mkldnn_convolution", "Mkldnn", "layers.0")
    assert plain.chosen == "Mkldnn"
    assert (plain.input, plain.weight) == ((16, 3, 12, 12), (8, 3, 3, 3))
    assert plain.channels_last is False
    assert plain.backward_us > 0
    assert (transposed.kernel, transposed.groups) == ("", 2)  # oneDNN's has no name


def test_in_the_trap_the_kernel_is_native_and_the_choice_between_the_steps_is_not(seen):
    process = seen.named("trapped")
    plain, transposed = sorted(use(process).convolutions, key=lambda row: row.transposed)
    assert "mkldnn" not in plain.kernel
    assert plain.kernel
    assert plain.choice == "Mkldnn"
    assert plain.chosen in ("Slow2d", "NnpackSpatial")  # as the CPU allows
    assert transposed.chosen == "SlowTranspose2d"
    assert transposed.kernel == "aten::slow_conv_transpose2d"
    assert process.call_sites is not None
    off = {(call.kind, call.detail): call.count for call in process.call_sites.calls if call.kind == "library_off"}
    assert off == {("library_off", "onednn"): 2 * process.call_sites.steps}


def test_where_the_library_is_on_no_line_is_noted(seen):
    process = seen.named("convolutions")
    assert process.call_sites is not None
    assert [call for call in process.call_sites.calls if call.kind == "library_off"] == []


def test_the_line_of_a_softmax_is_noted_with_its_scores(seen):
    process = seen.named("by_hand")
    assert process.call_sites is not None
    (call,) = [call for call in process.call_sites.calls if call.kind == "softmax"]
    assert call.detail == "24x24"
    assert process.sites[call.site].function == "masked"


def test_a_recurrent_layer_of_the_library_needs_no_timing(seen):
    found = {row.module: row for row in use(seen.named("recurrent")).recurrent}
    assert found["LSTM"].kernel == "aten::mkldnn_rnn_layer"
    assert found["LSTM"].native_us == 0
    assert found["GRU"].kernel == "aten::gru"  # oneDNN has none in torch


def test_a_native_lstm_is_timed_both_ways(seen):
    found = {row.module: row for row in use(seen.named("trapped_recurrent")).recurrent}
    assert found["LSTM"].kernel == "aten::lstm"
    assert found["LSTM"].native_us > 0
    assert found["LSTM"].onednn_us > 0
    assert found["LSTM"].backward_us > 0
    assert found["GRU"].native_us == 0
