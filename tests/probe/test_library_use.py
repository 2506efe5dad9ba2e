"""Which library did what: the job does the same, and each way is recognised, with its timing where it has one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile

from perfdoctor.evidence.windows import library_use
from perfdoctor.injected._perfdoctor_probe.windows.library_use import Uses
from perfdoctor.injected._perfdoctor_probe.windows.operators import divided
from perfdoctor.recording.base import Missing
from perfdoctor.recording.libraries import Attention, AttentionTiming, LibraryUse
from perfdoctor.recording.lines import CallSite, SitesWindow
from perfdoctor.recording.model import ProcessRecording

pytestmark = pytest.mark.slow

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
    "packed",
)


@pytest.fixture
def seen(observe):
    return observe("libraries.py", *STYLES)


def use(process: ProcessRecording) -> LibraryUse:
    """With the timings that were taken after the last step."""
    found = library_use(process)
    assert isinstance(found, LibraryUse)
    return found


def timing(found: Attention) -> AttentionTiming:
    assert isinstance(found.timing, AttentionTiming)
    return found.timing


def sizes(found: Attention) -> tuple[int, ...]:
    return found.batch, found.queries, found.width, found.keys


def sites(process: ProcessRecording, kind: str) -> list[CallSite]:
    assert isinstance(process.call_sites, SitesWindow)
    return [call for call in process.call_sites.calls if call.kind == kind]


def test_the_job_does_the_same_to_the_last_bit_and_finds_its_switches(seen):
    seen.same()
    seen.healthy()
    assert seen.probed.stdout.count("switches [true, true]") == len(STYLES)
    assert "failed" not in seen.probed.stdout


@pytest.mark.parametrize(
    ("style", "mask", "dropout"), [("by_hand", "fill", 0.0), ("dropped", "fill", 0.1), ("einsum", "add", 0.0)]
)
def test_attention_by_hand_is_recognised_forward_and_backward(seen, style, mask, dropout):
    (found,) = use(seen.named(style)).attention
    assert (found.made, found.mask, found.dropout) == ("by hand", mask, dropout)
    assert sizes(found) == (8, 24, 8, 24)
    assert found.calls_per_step == 1
    assert (found.module, found.dtype) == ("Attention", "float32")
    assert found.ms_per_step > 0
    assert timing(found).now_ms > 0
    assert timing(found).fused_ms > 0
    assert (timing(found).causal_ms is not None) == (mask == "fill")
    assert timing(found).part == 1.0


def test_attention_of_one_head_of_one_sample_is_recognised(seen):
    """Products of two matrices each; those with weights beside them are none."""
    (found,) = use(seen.named("singly")).attention
    assert (found.made, sizes(found)) == ("by hand", (1, 24, 8, 24))
    assert found.calls_per_step == 8
    assert timing(found).now_ms > 0


def test_the_same_attention_in_two_layers_has_one_timing(seen):
    one, other = use(seen.named("layers")).attention
    assert {one.layer, other.layer} == {"0", "1"}
    assert timing(one) == timing(other)


def test_torchs_function_is_fused_or_not(seen):
    (fused,) = use(seen.named("fused")).attention
    assert fused.made == "fused"
    assert fused.timing == Missing("it was not replayed")
    (unfused,) = use(seen.named("unfused")).attention
    assert (unfused.made, unfused.dropout, timing(unfused).choice) == ("math", 0.1, "math")
    (forced,) = use(seen.named("forced")).attention
    assert (forced.made, forced.dropout, timing(forced).choice) == ("math", 0.0, "fused")


def test_weights_that_are_returned_are_torchs_layers(seen):
    (found,) = use(seen.named("returned")).attention
    assert (found.made, found.layer, found.module) == ("by hand", "attention", "MultiheadAttention")


def test_a_softmax_of_classes_is_no_attention(seen):
    assert use(seen.named("gate")).attention == ()


def test_convolutions_are_told_by_their_kernel(seen):
    plain, transposed = sorted(use(seen.named("convolutions")).convolutions, key=lambda row: row.module)
    assert (plain.kernel, plain.choice, plain.layer) == ("mkldnn_convolution", "Mkldnn", "layers.0")
    assert plain.chosen == "Mkldnn"
    assert (plain.input_shape, plain.weight_shape) == ((16, 3, 12, 12), (8, 3, 3, 3))
    assert plain.channels_last is False
    assert (transposed.module, transposed.kernel) == ("ConvTranspose2d", "")  # oneDNN's has no name


def test_in_the_trap_the_kernel_is_native_and_the_choice_between_the_steps_is_not(seen):
    process = seen.named("trapped")
    plain, transposed = sorted(use(process).convolutions, key=lambda row: row.module)
    assert "mkldnn" not in plain.kernel
    assert plain.kernel
    assert plain.choice == "Mkldnn"
    assert plain.chosen in ("Slow2d", "NnpackSpatial")  # as the CPU allows
    assert transposed.chosen == "SlowTranspose2d"
    assert transposed.kernel == "slow_conv_transpose2d"
    assert [(call.detail, call.calls_per_step) for call in sites(process, "library_off")] == [("onednn", 2)]


def test_where_the_library_is_on_no_line_is_noted(seen):
    assert sites(seen.named("convolutions"), "library_off") == []


def test_the_line_of_a_softmax_is_noted_with_its_scores(seen):
    (call,) = sites(seen.named("by_hand"), "softmax")
    assert call.detail == "24x24"
    assert call.site.function == "masked"


def test_a_recurrent_layer_of_the_library_needs_no_timing(seen):
    found = {row.module: row for row in use(seen.named("recurrent")).recurrent}
    assert found["LSTM"].kernel == "mkldnn_rnn_layer"
    assert found["LSTM"].native_ms == 0
    assert found["GRU"].kernel == "gru"  # oneDNN has none in torch


def test_a_native_lstm_is_timed_both_ways(seen):
    found = {row.module: row for row in use(seen.named("trapped_recurrent")).recurrent}
    assert found["LSTM"].kernel == "lstm"
    assert found["LSTM"].native_ms > 0
    assert found["LSTM"].onednn_ms > 0
    assert found["LSTM"].ms_per_step > 0
    assert found["GRU"].native_ms == 0


def test_an_lstm_on_packed_sequences_is_timed_on_padded_ones_too_where_those_would_do(seen):
    process = seen.named("packed")
    found = {row.layer: row for row in use(process).recurrent}
    assert {row.kernel for row in found.values()} == {"lstm"}
    assert found["one_way"].packed_ms > 0 and found["one_way"].padded_ms > 0
    assert found["both_ways"].packed_ms == found["one_way"].native_ms == 0
    (call,) = sites(process, "packs")
    assert (call.calls_per_step, call.site.function) == (1.0, "forward")


def _by_hand(images: torch.Tensor) -> torch.Tensor:
    heads = images.flatten(1, 2)
    return torch.softmax(heads @ heads.transpose(-2, -1), -1) @ heads


@pytest.mark.parametrize(
    ("forward", "kinds"),
    [
        (nn.Conv2d(3, 4, 3), "convolutions"),
        (lambda images: nn.functional.scaled_dot_product_attention(images, images, images), "attention"),
        (_by_hand, "attention"),
        (lambda images: nn.LSTM(8, 5)(images[0])[0], "recurrent"),
    ],
    ids=["convolution", "fused attention", "attention by hand", "lstm"],
)
def test_the_backward_pass_counts_to_what_it_is_of(forward, kinds):
    images = torch.randn(2, 3, 8, 8, requires_grad=True)
    with profile(record_shapes=True) as step:
        forward(images).sum().backward()
    uses = Uses()
    uses.read(*divided(step.kineto_results.events(), False))
    (kind,) = getattr(uses, kinds).values()
    assert kind.spent[0] > 0
    assert kind.spent[1] > 0
