from __future__ import annotations

import pytest
from ill_runs.backend import without_onednn
from ill_runs.cudnn import (
    channels_first,
    convolving_on_gpu,
    half_on_gpu,
    onednn_off_inside,
    packed,
    scattered,
    unfused,
    unfused_on_gpu,
)
from ills import ILL
from perfdoctor.checks import backend
from perfdoctor.checks.cudnn import CHECK, examine
from samples import ATTENTION, CONVOLUTION, RECURRENT, asked, healthy, ids, is_clear, number, on_gpu, only, with_

from perfdoctor.diagnosis.findings import Confidence, Location, Severity
from perfdoctor.diagnosis.outcomes import Outcome, OutcomeKind
from perfdoctor.evidence.model import (
    AttentionTiming,
    CallSite,
    Evidence,
    LayerProfile,
    LibraryUse,
    Missing,
    Op,
    ShapeVariety,
    Site,
)
from perfdoctor.report import wording

NOTHING = LibraryUse((), (), ())


def test_native_convolutions_on_a_gpu_are_told_with_torchs_choice() -> None:
    finding = only(examine(convolving_on_gpu("slow_conv_dilated3d", one={"chosen": "SlowDilated3d"}), CHECK.limits))
    assert finding.id == "PD02.native-convolutions"
    chosen = {m.name: m.value for m in finding.evidence}["chosen"]
    assert str(chosen).startswith("SlowDilated3d for ")
    depthwise = convolving_on_gpu("_conv_depthwise2d", one={"chosen": "CudaDepthwise2d"})
    assert "PD02.native-convolutions" not in [f.id for f in examine(depthwise, CHECK.limits).findings]


def test_what_is_inside_compiled_functions_is_said_to_be_unseen() -> None:
    outcome = examine(with_(healthy(), job__compiled=True), CHECK.limits)
    assert is_clear(outcome)
    assert "nothing was seen" in outcome.reason


_examined, _found = asked(CHECK)


def _text(outcome: Outcome) -> str:
    return wording.fill_reason(outcome.reason, outcome.measurements)


# ---------------------------------------------------------------------------------------------------------
# Outcomes without a finding


def test_a_clear_outcome_says_who_did_what_and_for_how_long() -> None:
    text = _text(_examined(healthy()))
    assert "1 convolution takes" in text
    assert "1 call of recurrent layers" in text
    assert "done by: 2 oneDNN" in text
    assert "1 fused" in text
    assert "done by: 2 cuDNN" in _text(_examined(on_gpu()))


@pytest.mark.parametrize("part", ["step", "ops", "library_use", "backend"])
def test_without_the_evidence_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


def test_a_network_of_products_has_none_of_it() -> None:
    assert _examined(with_(healthy(), library_use=NOTHING)).kind is OutcomeKind.NOT_APPLICABLE


def test_a_compiled_graph_may_hide_it() -> None:
    outcome = _examined(with_(healthy(), library_use=NOTHING, job__compiled=True))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "compiled" in outcome.reason


def test_native_convolutions_for_the_type_are_left_to_the_check_of_types() -> None:
    row = with_(CONVOLUTION, kernel="thnn_conv2d", dtype="float64", choice="Slow2d", ms_per_step=20.0)
    outcome = _examined(with_(healthy(), library_use=LibraryUse((row,), (), ())))
    assert is_clear(outcome)
    assert "float64: see PD07" in _text(outcome)


def test_transposed_convolutions_of_onednn_have_no_name_of_their_own() -> None:
    row = with_(CONVOLUTION, kernel="", module="ConvTranspose2d")
    assert "1 oneDNN" in _text(_examined(with_(healthy(), library_use=LibraryUse((row,), (), ()))))


# ---------------------------------------------------------------------------------------------------------
# oneDNN


def test_off_inside_the_forward_is_found_here_and_off_everywhere_there() -> None:
    inside, everywhere = onednn_off_inside(), without_onednn()
    assert ids(_examined(inside)) == ["PD02.onednn-disabled"]
    assert backend.examine(inside, backend.CHECK.limits).findings == ()
    assert is_clear(_examined(everywhere))
    assert ids(backend.examine(everywhere, backend.CHECK.limits)) == ["PD01.onednn-off"]


def test_what_onednn_would_save_was_timed() -> None:
    finding = _found(onednn_off_inside(0.8, 3.4))
    assert number(finding, "ratio") == pytest.approx(3.4)
    assert finding.confidence is Confidence.HIGH
    assert finding.savings.low_ms < 17.6 * (1 - 1 / 3.4) < finding.savings.high_ms
    assert "enabled=True" in finding.fix.code


@pytest.mark.parametrize(("share", "ratio", "count"), [(0.06, 3.4, 0), (0.12, 3.4, 1), (0.8, 1.05, 0), (0.8, 1.3, 1)])
def test_onednn_off_counts_by_what_it_costs(share: float, ratio: float, count: int) -> None:
    assert len(_examined(onednn_off_inside(share, ratio)).findings) == count


def test_native_convolutions_that_are_slower_in_the_job_than_repeated_may_save_all_that_they_lose() -> None:
    repeated = onednn_off_inside(0.8, 3.4)
    assert not isinstance(repeated.backend, Missing)
    timing = with_(repeated.backend.onednn_timings[0], native_milliseconds=5.0, onednn_milliseconds=2.5)
    # 17.6 ms a step for two calls of 5 ms: half of it by the ratio, all but two calls of 2.5 ms by the time.
    savings = _found(with_(repeated, backend__onednn_timings=(timing,))).savings
    assert savings.low_ms == pytest.approx(17.6 - 8.8 * 1.15, rel=0.01)
    assert savings.high_ms == pytest.approx(17.6 - 5.0 * 0.85, rel=0.01)


def test_convolutions_that_are_slower_in_onednn_count_against_it() -> None:
    one = onednn_off_inside(0.4, 3.4)
    assert not isinstance(one.backend, Missing) and not isinstance(one.ops, Missing)
    shapes = "[8, 3, 64, 64] [32, 3, 3, 3]"
    slower = with_(one.backend.onednn_timings[0], shapes=shapes, native_milliseconds=2.0, onednn_milliseconds=4.0)
    op = with_(one.ops.ops[0], shapes=shapes, calls_per_step=1.0, total_ms_per_step=2.0)
    both = with_(one, ops__ops=(*one.ops.ops, op), backend__onednn_timings=(*one.backend.onednn_timings, slower))
    assert _found(both).savings.high_ms == pytest.approx(_found(one).savings.high_ms + 2.0 - 4.0 * 0.85)


def test_a_switch_deeper_in_the_model_is_told_by_its_convolutions() -> None:
    deeper = onednn_off_inside(backend__onednn_enabled=True)
    assert "where convolutions ran" in _found(deeper).reasoning
    assert "at the end of a forward" in _found(onednn_off_inside()).reasoning


def test_a_small_convolution_that_onednn_declines_is_no_switch() -> None:
    inside = onednn_off_inside(backend__onednn_enabled=True)
    assert not isinstance(inside.backend, Missing)
    declined = with_(inside.backend.onednn_timings[0], native_milliseconds=80.0)
    assert is_clear(_examined(with_(inside, backend__onednn_timings=(declined,))))


def test_a_convolution_that_onednn_did_was_not_switched_off() -> None:
    """Beside a busy neighbour a call can take as long as a native one."""
    slow = onednn_off_inside(backend__onednn_enabled=True)
    assert not isinstance(slow.ops, Missing)
    convolution = next(op for op in slow.ops.ops if "convolution" in op.name)
    source, weight = (tuple(map(int, size.strip("[]").split(", "))) for size in convolution.shapes.split("] [")[:2])
    row = with_(CONVOLUTION, kernel="mkldnn_convolution", input_shape=source, weight_shape=weight)
    assert is_clear(_examined(with_(slow, library_use=LibraryUse((row,), (), ()))))


def test_the_line_is_the_switchs_or_of_convolutions_that_ran_without_it() -> None:
    line = CallSite("library_off", Site("model.py", 9, "forward"), 2.0, 3.0, "onednn")
    found = _found(onednn_off_inside(call_sites=(line,))).location
    assert found is not None
    assert (found.file, found.line) == ("model.py", 9)
    switch = CallSite("library_flags", Site("model.py", 7, "forward"), 1.0, 0.0, "onednn")
    by_flags = _found(onednn_off_inside(call_sites=(line, switch))).location
    assert by_flags is not None
    assert by_flags.line == 7
    other = _found(onednn_off_inside(call_sites=Missing("no window"))).location
    assert other is not None
    assert other.line == 20  # the forward's costliest
    set_at = with_(
        onednn_off_inside(call_sites=Missing("no window")), backend__onednn_off_at=Site("train.py", 3, "main")
    )
    assert _found(set_at).location == Location("train.py", 3, "main")


def test_on_a_gpu_the_line_is_the_switchs_else_the_one_that_calls_the_dearest_layer() -> None:
    layers = healthy().layers
    assert isinstance(layers, LayerProfile)
    layer = with_(
        layers.layers[0], name=CONVOLUTION.layer, kind=CONVOLUTION.module, called_at=Site("model.py", 30, "forward")
    )
    native = convolving_on_gpu("slow_conv2d_forward", layers__layers=(layer,))
    assert _found(native).location == Location("model.py", 30, "forward")
    switched = with_(native, cudnn__enabled=False, cudnn__enabled_at=Site("train.py", 4, "main"))
    assert _found(switched).location == Location("train.py", 4, "main")


def _native_lstm(native_ms: float, onednn_ms: float) -> Evidence:
    layer = with_(RECURRENT, kernel="lstm", ms_per_step=10.0, native_ms=native_ms, onednn_ms=onednn_ms)
    return with_(healthy(), library_use=LibraryUse((), (layer,), ()), backend__onednn_enabled=False)


def test_a_recurrent_layer_without_onednn_has_its_own_timing() -> None:
    finding = _found(_native_lstm(10.0, 4.0))
    assert finding.id == "PD02.onednn-disabled"
    assert finding.savings.low_ms < 6.0 < finding.savings.high_ms
    assert is_clear(_examined(_native_lstm(10.0, 9.8)))
    assert is_clear(_examined(_native_lstm(0.0, 0.0)))  # not replayed, and no convolution either


def test_packed_sequences_cost_what_the_layer_takes_less_on_padded_ones() -> None:
    finding = _found(packed(took=12.0, ratio=3.0))
    assert finding.id == "PD02.packed-sequences"
    assert number(finding, "ratio") == pytest.approx(3.0)
    assert finding.savings.low_ms < 8.0 < finding.savings.high_ms
    assert finding.location == Location("model.py", 21, "forward")


def test_where_they_are_packed_is_not_known_the_line_is_the_one_that_calls_the_layer() -> None:
    unseen = with_(packed(), call_sites=())
    assert not isinstance(unseen.layers, Missing)
    layer = with_(unseen.layers.layers[0], name="read", kind="LSTM", called_at=Site("model.py", 30, "forward"))
    assert _found(with_(unseen, layers__layers=(layer,))).location == Location("model.py", 30, "forward")


@pytest.mark.parametrize("ill", [packed(ratio=1.1), packed(took=1.0), packed(packed_ms=0.0, padded_ms=0.0)])
def test_packed_sequences_that_cost_little_or_were_not_replayed_are_clear(ill: Evidence) -> None:
    assert is_clear(_examined(ill))


# ---------------------------------------------------------------------------------------------------------
# Attention


def test_attention_by_hand_costs_what_was_timed_both_ways() -> None:
    finding = _found(unfused(took=12.0, ratio=2.0))
    assert finding.id == "PD02.attention-by-hand"
    assert finding.severity is Severity.WARNING
    assert finding.confidence is Confidence.HIGH
    assert number(finding, "ratio") == pytest.approx(2.0)
    assert finding.savings.low_ms < 6.0 < finding.savings.high_ms
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("model.py", 17)
    assert "scaled_dot_product_attention(q, k, v)" in finding.fix.code


def test_attention_without_its_own_softmax_has_the_dearest_else_the_line_of_its_layer() -> None:
    unseen = unfused(took=12.0, ratio=2.0)
    longer = CallSite("softmax", Site("model.py", 17, "forward"), 2.0, 3.0, "999x999")
    assert _found(with_(unseen, call_sites=(longer,))).location == Location("model.py", 17, "forward")
    unseen = with_(unseen, call_sites=())
    assert _found(unseen).location == Location("train.py", 20, "forward")
    assert not isinstance(unseen.layers, Missing) and not isinstance(unseen.library_use, Missing)
    made = unseen.library_use.attention[0]
    layer = with_(unseen.layers.layers[0], name=made.layer, kind=made.module, called_at=Site("model.py", 30, "forward"))
    assert _found(with_(unseen, layers__layers=(layer,))).location == Location("model.py", 30, "forward")


@pytest.mark.parametrize(("took", "ratio", "count"), [(2.0, 2.0, 0), (3.0, 2.0, 1), (20.0, 1.05, 0), (20.0, 0.3, 0)])
def test_attention_by_hand_counts_by_what_the_fused_kernel_would_save(took: float, ratio: float, count: int) -> None:
    assert len(_examined(unfused(took=took, ratio=ratio)).findings) == count


def test_a_slower_fused_kernel_and_dropout_on_a_cpu_are_named_as_reasons() -> None:
    assert "the fused kernel is slower" in _text(_examined(unfused(ratio=0.3)))
    assert "no fused kernel for dropout" in _text(_examined(unfused("math", ratio=1.0, dropout=0.1)))


def test_attention_that_was_not_timed_is_neither_blamed_nor_cleared() -> None:
    outcome = _examined(unfused(timing=Missing("it was not replayed")))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not replayed" in outcome.reason


def test_a_little_of_it_is_clear() -> None:
    outcome = _examined(unfused(ms_per_step=0.2, timing=Missing("it was not replayed")))
    assert is_clear(outcome)
    assert "not timed" in _text(outcome)


def test_of_large_attention_the_part_that_was_timed_is_one_bound_and_the_whole_the_other() -> None:
    # 12 ms in the step; replayed an eighth of it: 0.8 ms by hand, 0.5 ms fused, which is 4 ms for all.
    timing = AttentionTiming(now_ms=0.8, fused_ms=0.5, part=0.125, choice="fused")
    saved = _found(unfused(timing=timing)).savings
    assert saved.high_ms == pytest.approx(12.0 - 0.95 * 4.0)
    assert saved.low_ms == pytest.approx(12.0 - 1.4 * 4.0)
    # Beside neighbours some of the 12 ms may be theirs.
    disturbed = _found(with_(unfused(timing=timing), step__run_delay_ms=2.0)).savings
    assert disturbed.low_ms == pytest.approx(12.0 * (1 - 0.5 / 0.8 * 1.15))


def test_a_causal_mask_is_left_to_the_kernel_which_skips_what_it_hides() -> None:
    timing = AttentionTiming(now_ms=12.0, fused_ms=6.0, part=1.0, choice="fused", causal_ms=3.0)
    any_mask = unfused(mask="fill", timing=timing)
    assert "attn_mask=mask" in _found(any_mask).fix.code
    assert _found(any_mask).savings.high_ms == pytest.approx(12.0 * (1 - 0.5 * 0.85))
    assert isinstance(any_mask.call_sites, tuple)
    mask = with_(any_mask.call_sites[0], kind="causal_mask")
    causal = _found(with_(any_mask, call_sites=(*any_mask.call_sites, mask)))
    assert "is_causal=True" in causal.fix.code and "attn_mask" not in causal.fix.code
    assert causal.savings.high_ms == pytest.approx(12.0 * (1 - 0.25 * 0.85))


def test_a_part_in_which_nothing_is_saved_says_nothing_of_the_whole() -> None:
    timing = AttentionTiming(now_ms=0.5, fused_ms=0.5, part=0.125, choice="fused")
    assert is_clear(_examined(unfused(timing=timing)))


def test_mask_and_dropout_are_in_the_code_to_paste() -> None:
    code = _found(unfused(mask="fill", dropout=0.1)).fix.code
    assert "attn_mask=mask" in code
    assert "dropout_p=" in code


def test_a_library_models_attention_is_changed_in_its_own_words() -> None:
    assert 'attn_implementation="sdpa"' in _found(unfused(package="transformers")).fix.code
    # Lightning imports that library whether or not the job uses it.
    own = with_(unfused(package="model"), job__frameworks=("lightning", "transformers"))
    assert "scaled_dot_product_attention" in _found(own).fix.code


def test_returned_weights_are_told_from_attention_by_hand() -> None:
    assert "need_weights=False" in _found(ILL["PD02.attention-weights-returned"]).fix.code


@pytest.mark.parametrize(("choice", "word"), [("math", "switched off"), ("fused", "sdpa_kernel")])
def test_the_math_path_has_its_reason(choice: str, word: str) -> None:
    assert word in _found(unfused("math", choice=choice)).reasoning


@pytest.mark.parametrize(("took", "keys", "count"), [(10.0, 1024, 1), (1.0, 1024, 0), (10.0, 64, 0)])
def test_on_a_gpu_attention_is_a_range_from_elsewhere_and_long(took: float, keys: int, count: int) -> None:
    outcome = _examined(unfused_on_gpu(took, keys=keys, queries=keys))
    assert len(outcome.findings) == count
    if count:
        assert outcome.findings[0].confidence is Confidence.LOW
        assert "not in this run" in outcome.findings[0].savings.method


# ---------------------------------------------------------------------------------------------------------
# cuDNN


@pytest.mark.parametrize(("took", "count"), [(1.5, 0), (2.5, 1)])
def test_native_kernels_on_a_gpu_count_by_their_time(took: float, count: int) -> None:
    outcome = _examined(convolving_on_gpu("thnn_conv2d", took, cudnn__enabled=False))
    assert ids(outcome) == ["PD02.cudnn-disabled"] * count


def test_cudnn_off_without_anything_for_it_to_do_is_clear() -> None:
    evidence = on_gpu(library_use=LibraryUse((), (), (ATTENTION,), on_device=True), cudnn__enabled=False)
    assert is_clear(_examined(evidence))


def test_a_deliberately_native_depthwise_convolution_is_no_fault() -> None:
    assert is_clear(_examined(convolving_on_gpu("_conv_depthwise2d")))


def test_what_cudnn_said_is_passed_on() -> None:
    finding = _found(ILL["PD02.cudnn-mismatched"])
    assert "version incompatibility" in wording.fill(finding.reasoning, finding.evidence)


def test_the_flags_trap_is_told_from_a_switch_for_the_whole_process() -> None:
    assert "flags()" in _found(ILL["PD02.cudnn-disabled"]).reasoning
    whole = _found(convolving_on_gpu("thnn_conv2d", cudnn__enabled=False))
    assert "also between the steps" in whole.reasoning


@pytest.mark.parametrize(
    "changes",
    [
        {"cudnn__shapes": ShapeVariety(100, 40, 20)},
        {"cudnn__shapes": Missing("too few")},
        {"cudnn__benchmark": True},
        {"took": 8.0},
    ],
)
def test_benchmark_is_advised_for_fixed_shapes_and_many_convolutions_only(changes: dict[str, object]) -> None:
    assert is_clear(_examined(convolving_on_gpu(**{"cudnn__benchmark": False, **changes})))  # type: ignore[arg-type]


def test_benchmark_off_is_a_note_for_nobody_measured_it() -> None:
    finding = _found(ILL["PD02.benchmark-off"])
    assert (finding.severity, finding.confidence) == (Severity.NOTE, Confidence.LOW)
    assert finding.savings.low_ms == 0.0


@pytest.mark.parametrize(("late", "count"), [(4, 0), (6, 1)])
def test_new_shapes_count_when_they_keep_coming(late: int, count: int) -> None:
    shapes = ShapeVariety(sampled=100, distinct=40, late=late)
    assert len(_examined(convolving_on_gpu(cudnn__shapes=shapes)).findings) == count


def test_channels_first_matters_in_half_precision_on_tensor_cores() -> None:
    assert _found(half_on_gpu()).id == "PD02.channels-first"
    assert is_clear(_examined(half_on_gpu(channels_last=True)))
    assert is_clear(_examined(half_on_gpu(channels_last=None)))
    assert is_clear(_examined(half_on_gpu(dtype="float32")))
    assert is_clear(_examined(with_(half_on_gpu(), precision__compute_capability=(6, 1))))


def test_turning_tensors_round_is_the_least_that_channels_last_saves() -> None:
    assert _found(half_on_gpu(layout=4.0)).savings.low_ms == pytest.approx(4.0)


def test_on_a_cpu_what_channels_last_would_save_is_an_opportunity() -> None:
    finding = _found(channels_first(saved=10.0))
    assert finding.location == Location("train.py", 12, "main")  # makes the model
    assert finding.id == "PD02.channels-last" and finding.is_opportunity
    assert number(finding, "saved_share") == pytest.approx(10.0 / 25.0, rel=0.2)
    assert finding.savings.low_ms < number(finding, "saved_ms") < finding.savings.high_ms


def test_where_ranks_exchange_gradients_channels_last_may_save_nothing() -> None:
    finding = _found(with_(channels_first(saved=10.0), job__world_size=2))
    assert finding.savings.low_ms == 0 < finding.savings.high_ms
    assert "ranks" in finding.savings.method


@pytest.mark.parametrize("saved", [-5.0, 0.0, 1.0])
def test_what_channels_last_would_hardly_save_is_not_told(saved: float) -> None:
    assert is_clear(_examined(channels_first(saved)))


def test_where_onednn_is_off_that_comes_before_the_layout() -> None:
    native = with_(CONVOLUTION, kernel="slow_conv2d", choice="Slow2d")
    assert is_clear(_examined(channels_first(library_use__convolutions=(native,))))


@pytest.mark.parametrize(("copies", "count"), [(1.0, 0), (4.0, 1)])
def test_scattered_weights_cost_their_copies(copies: float, count: int) -> None:
    assert len(_examined(scattered(copies)).findings) == count


def test_on_amd_cudnn_is_not_asked_for() -> None:
    assert _examined(convolving_on_gpu("thnn_conv2d", cudnn__enabled=False, backend__hip="6.4")).findings == ()


def test_without_cudnns_settings_nothing_is_claimed_of_it() -> None:
    outcome = _examined(with_(convolving_on_gpu("thnn_conv2d"), cudnn=Missing("an old recording")))
    assert outcome.kind is OutcomeKind.CANNOT_TELL


def test_a_native_product_elsewhere_is_not_counted_as_convolution() -> None:
    ops = (Op("addmm", "float32", "[512] [32, 512] [512, 512]", 8.0, 18.0, 18.0, 1e8),)
    assert is_clear(_examined(with_(healthy(), backend__onednn_enabled=False, ops__ops=ops)))


def test_the_promise_is_a_share_of_the_step_by_the_timed_ratio_and_fifteen_per_cent_about_it() -> None:
    """Half the time with oneDNN: 42 to 57 % of what its operators take in the step."""
    saved = _found(onednn_off_inside(ratio=2.0)).savings
    assert saved.low_ms / saved.high_ms == pytest.approx((1 - 0.5 * 1.15) / (1 - 0.5 * 0.85))
