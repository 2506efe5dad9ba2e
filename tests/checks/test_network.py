from __future__ import annotations

from collections.abc import Callable

import pytest
from ill_runs.equivalents import otherwise
from ill_runs.network import (
    LEFT,
    convolution,
    dense_embedding,
    layer,
    memory_bound,
    too_wide,
    unused_outputs,
    wide_feed_forward,
    wide_head,
    with_layer,
)
from ills import ILL
from perfdoctor.checks.network import CHECK, examine
from samples import LAYERS, healthy, ids, is_clear, number, only, with_

from perfdoctor.diagnosis.findings import Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import (
    CodeLine,
    ConvolutionTiming,
    Evidence,
    IndexUse,
    Line,
    Missing,
    Op,
    Site,
    ThreadTiming,
)
from perfdoctor.report import wording


def _ids(evidence: Evidence) -> list[str]:
    return ids(examine(evidence, CHECK.limits))


def test_the_guides_figures_are_shown_and_never_alarmed() -> None:
    many = tuple(with_(LAYERS.layers[0], name=f"layers.{i}", order=i, time_share=0.005) for i in range(40))
    outcome = examine(with_(healthy(), layers__layers=many, layers__count=400), CHECK.limits)
    assert is_clear(outcome)
    assert number(outcome, "layers") == 400
    assert number(outcome, "width") == 512
    assert number(outcome, "outputs") == 512


def test_the_table_holds_the_slowest_layers_with_time_and_flops() -> None:
    outcome = examine(healthy(), CHECK.limits)
    assert number(outcome, "layer_1_ms") == 6.0
    assert number(outcome, "layer_1_flops") == 0.25
    assert "layer_5_ms" not in [m.name for m in outcome.measurements]


@pytest.mark.parametrize("part", ["step", "layers"])
def test_without_steps_or_layers_nothing_is_claimed(part: str) -> None:
    outcome = examine(with_(healthy(), **{part: Missing("the job uses torch.compile")}), CHECK.limits)
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "torch.compile" in outcome.reason


def test_a_functional_model_has_no_layers() -> None:
    outcome = examine(with_(healthy(), layers__layers=(), layers__count=0), CHECK.limits)
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE


# ---------------------------------------------------------------------------------------------------------
# Feed-forward parts too wide for their model


def test_a_width_that_is_left_at_a_librarys_default_is_told_where_the_model_is_configured() -> None:
    (finding,) = examine(wide_feed_forward(job__options=(LEFT,)), CHECK.limits).findings
    assert (finding.id, finding.severity) == ("PD09.wide-feed-forward", Severity.WARNING)
    assert finding.location == Location("train.py", 107, "build_model")
    assert [number(finding, name) for name in ("pairs", "times", "wide", "narrow")] == [2, 12, 3072, 256]
    beyond = (1 - 4 / 12) * 2 * 0.3 * 25.0
    assert number(finding, "beyond_ms") == pytest.approx(beyond, rel=0.2), "and their part of the update"
    assert "intermediate_size=1024" in finding.fix.code


def test_one_that_the_job_chose_is_an_opportunity_at_its_layer() -> None:
    (finding,) = examine(wide_feed_forward(), CHECK.limits).findings
    assert (finding.id, finding.severity) == ("PD09.wide-feed-forward", Severity.NOTE)
    assert finding.location == Location("model.py", 5, "__init__")


@pytest.mark.parametrize(("times", "share"), [(7, 0.3), (4, 0.3), (12, 0.05)], ids=["seven times", "usual", "little"])
def test_usual_widths_and_small_parts_are_left_alone(times: int, share: float) -> None:
    assert _ids(wide_feed_forward(times, share, job__options=(LEFT,))) == []


# ---------------------------------------------------------------------------------------------------------
# One layer too large


@pytest.mark.parametrize(("share", "severity"), [(0.41, None), (0.43, Severity.NOTE), (0.53, Severity.WARNING)])
def test_an_oversized_layer_counts_with_its_update_from_half_of_the_step_on(
    share: float, severity: Severity | None
) -> None:
    outcome = examine(too_wide(share, side=512, outputs=65536), CHECK.limits)
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("share", "side", "told"),
    [(0.13, 65536, True), (0.11, 65536, False), (0.3, 512 * 16, True), (0.3, 512 * 15, False)],
)
def test_what_is_flattened_without_pooling_counts_from_a_fifth_of_the_step_on(
    share: float, side: int, told: bool
) -> None:
    """With the update's 8 %: a layer sixteen times as wide as the others, that holds most of the model."""
    outcome = examine(too_wide(share, side=side), CHECK.limits)
    assert [finding.severity for finding in outcome.findings] == [Severity.NOTE] * told


def test_the_largest_layer_of_a_sane_network_is_no_finding() -> None:
    assert _ids(too_wide(side=2000)) == []


def test_a_layer_must_hold_most_of_the_model_or_its_arithmetic() -> None:
    few = (("float32", 512 * 65536 * 4),)
    assert _ids(too_wide(flops=0.59, precision__parameter_dtypes=few)) == []
    assert _ids(too_wide(flops=0.61, precision__parameter_dtypes=few)) == ["PD09.oversized-layer"]


@pytest.mark.parametrize(("outputs", "inputs", "share"), [(512, 65536, 0.75), (65536, 512, 0.5)])
def test_a_flattened_input_can_be_pooled_and_a_wide_output_halved(outputs: int, inputs: int, share: float) -> None:
    """The optimizer's 2 ms are nearly all for this layer, and shrink with it."""
    finding = only(examine(too_wide(side=inputs, outputs=outputs), CHECK.limits))
    billed = 0.7 * 25.0 + 2.0 * 512 * 65536 / (512 * 65536 + 1_000_000)
    assert finding.savings.ceiling_ms == pytest.approx(billed)
    assert finding.savings.low_ms == pytest.approx(share * billed)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("LSTMCell", 4), ("RNN", 1)])
def test_gates_are_not_width(kind: str, gates: int) -> None:
    """A recurrent layer of 512 before a `Linear` that turns its 512 into a few classes."""

    def network(hidden: int) -> Evidence:
        recurrent = layer(kind, 0.8, 0.9, weight_shape=(gates * hidden, 64), parameters=gates * hidden * (hidden + 64))
        last = layer("Linear", 0.05, 0.05, weight_shape=(10, 512), name="last")
        total = (("float32", 4 * (recurrent.parameters + 5_120)),)
        return with_(healthy(), layers__layers=(recurrent, last), precision__parameter_dtypes=total)

    assert _ids(network(512)) == []
    assert _ids(network(8192)) == ["PD09.oversized-layer"]


def test_a_network_of_one_layer_has_no_neighbours_to_compare_with() -> None:
    alone = with_(healthy(), layers__layers=(layer(share=0.9, weight_shape=(512, 65536)),))
    assert _ids(alone) == []


@pytest.mark.parametrize(
    ("width", "outputs", "given"),
    [
        (1433, 16, True),  # a graph network on bags of words
        (2 * 1433, 16, True),  # a node's beside its neighbours'
        (16, 1433, True),  # back to the data
        (5 * 1433, 16, False),
        (16, 1434, False),
        (16, 2 * 1433, False),  # twice as wide as the data inside the network
    ],
)
def test_the_width_of_the_data_is_given(width: int, outputs: int, given: bool) -> None:
    first = layer("Linear", 0.02, 0.02, weight_shape=(16, 1433), order=0, name="first")
    large = layer("Linear", 0.8, 0.9, weight_shape=(outputs, width), order=1, name="large")
    small = [layer("Linear", 0.02, 0.02, weight_shape=(16, 16), order=order, name=f"{order}") for order in (2, 3, 4)]
    assert _ids(with_(healthy(), layers__layers=(large, first, *small))) == ["PD09.oversized-layer"] * (not given)


@pytest.mark.parametrize(("weight", "data"), [((16, 1433), (2708, 1433)), ((1433, 16), (2708, 1433))])
def test_the_first_layer_is_fed_with_the_data_whichever_way_its_weight_is_kept(
    weight: tuple[int, int], data: tuple[int, int]
) -> None:
    first = layer("GraphConv", 0.8, 0.9, weight_shape=weight, input_shape=data, order=0, name="first")
    last = layer("GraphConv", 0.05, 0.05, weight_shape=(7, 16), input_shape=(2708, 16), order=1, name="last")
    assert _ids(with_(healthy(), layers__layers=(first, last))) == []


def test_a_table_does_not_say_how_wide_the_data_is() -> None:
    run = too_wide(side=2048)
    table = layer("Embedding", 0.05, 0.0, weight_shape=(1000, 512), input_shape=(32, 2048), order=-1, name="table")
    assert _ids(run) == []
    assert _ids(with_(run, layers__layers=(*run.layers.layers, table))) == ["PD09.oversized-layer"]  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------
# One convolution that takes most of the step


def test_a_large_kernel_is_ill_where_its_arithmetic_is_far_beyond_its_neighbours() -> None:
    finding = only(examine(convolution(), CHECK.limits))
    assert finding.id == "PD09.dominant-convolution"
    assert finding.severity is Severity.ERROR
    assert number(finding, "excess") == 25  # 15 x 15 over 3 x 3
    assert number(finding, "of_usual") == pytest.approx(40)
    assert finding.location is not None and finding.location.line == 5, "the line that makes it"
    # At least with seven of 3 x 3 that take twice the time per operation, at most with one.
    assert finding.savings.low_ms == pytest.approx(0.61 * 25 * (1 - 2 * 7 / 25))
    assert finding.savings.high_ms == pytest.approx(0.61 * 25 * 24 / 25)
    assert "groups" in finding.fix.text


def test_neighbours_that_compute_nearly_as_much_make_it_an_opportunity() -> None:
    finding = only(examine(convolution(flops=0.55, usual=0.15), CHECK.limits))
    assert finding.severity is Severity.NOTE


@pytest.mark.parametrize(
    ("weight", "factor"),
    [((32, 32, 5, 5), "kernel"), ((96, 96, 3, 3), "channels"), ((32, 32, 3, 3), "places"), ((64, 1, 9, 9), "places")],
)
def test_what_makes_a_convolution_dominant_is_told(weight: tuple[int, ...], factor: str) -> None:
    flops = {"kernel": 0.5, "channels": 0.5, "places": 0.8}[factor]
    usual = {"kernel": 0.2, "channels": 0.06, "places": 0.06}[factor]
    finding = only(examine(convolution(*weight, flops=flops, usual=usual), CHECK.limits))
    assert finding.severity is Severity.NOTE
    assert next(m.label for m in finding.evidence if m.name == "excess") == factor
    assert (finding.savings.high_ms > 0) is (factor == "kernel")  # no number where none is known


def _timed(run: Evidence, **ways: float) -> Evidence:
    """With its wide convolution timed at 10 ms, and as other layers."""
    wide = run.layers.layers[0]  # type: ignore[union-attr]
    timing = ConvolutionTiming(wide.input_shape, wide.weight_shape, 10.0, tuple(ways.items()))
    return with_(run, ops__convolution_timings=(timing,))


def test_kernels_that_see_as_far_save_what_was_timed() -> None:
    finding = only(examine(_timed(convolution(), small=4.0, depthwise=1.0), CHECK.limits))
    assert finding.savings.low_ms == pytest.approx(0.61 * 25 * 0.6)
    assert (number(finding, "as_small"), number(finding, "as_depthwise")) == (0.4, 0.1)
    told = wording.filled(finding).fix
    assert "of its time: a depthwise one and a 1x1 10 %, kernels of 3 that see as far 40 %" in told.text
    assert "another model" in told.risk


def test_what_takes_longer_here_is_shown_but_not_advised() -> None:
    finding = only(examine(_timed(convolution(), small=13.0, groups=9.5), CHECK.limits))
    assert finding.savings.low_ms == 0.0
    assert number(finding, "as_small") == 1.3
    assert "Timed here" not in finding.fix.text


def test_layers_in_the_place_of_one_with_many_channels_give_it_a_number() -> None:
    wide = convolution(96, 96, 3, 3, flops=0.5, usual=0.06)
    finding = only(examine(_timed(wide, groups=5.0, bottleneck=2.0, stride=11.0), CHECK.limits))
    assert finding.severity is Severity.NOTE
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((0.61 * 25 * 0.5, 0.61 * 25 * 0.8))


def test_a_timing_of_another_convolution_says_nothing_of_this() -> None:
    run = _timed(convolution(96, 96, 3, 3, flops=0.5, usual=0.06), groups=5.0)
    (timing,) = run.ops.convolution_timings  # type: ignore[union-attr]
    other = with_(run, ops__convolution_timings=(with_(timing, weight_shape=(64, 64, 3, 3)),))
    assert only(examine(other, CHECK.limits)).savings.high_ms == 0.0


@pytest.mark.parametrize(
    "run",
    [
        convolution(share=0.49),
        convolution(flops=0.49),
        convolution(32, 32, 3, 3, flops=0.5, usual=0.25),  # one of several alike
        convolution(64, 32, 3, 3, flops=0.5, usual=0.25),
    ],
    ids=["cheap", "little-arithmetic", "alike", "twice-as-wide"],
)
def test_a_convolution_in_proportion_is_no_finding(run: Evidence) -> None:
    assert _ids(run) == []


def test_a_large_kernel_alone_in_its_network_is_an_opportunity() -> None:
    run = convolution()
    alone = with_(run, layers__layers=run.layers.layers[:1])
    assert only(examine(alone, CHECK.limits)).severity is Severity.NOTE


# ---------------------------------------------------------------------------------------------------------
# The head


@pytest.mark.parametrize(("outputs", "count"), [(9_999, 0), (10_000, 1)])
def test_a_head_is_wide_from_ten_thousand_outputs_on(outputs: int, count: int) -> None:
    assert _ids(wide_head(outputs)) == ["PD09.oversized-head"] * count


def test_a_wide_head_must_take_time_and_do_arithmetic() -> None:
    assert _ids(wide_head(share=0.29)) == []
    assert _ids(wide_head(share=0.35, flops=0.29)) == []


def test_a_head_that_is_also_oversized_is_found_once() -> None:
    assert _ids(wide_head(share=0.7, flops=0.9)) == ["PD09.oversized-head"]


@pytest.mark.parametrize(("highest", "count"), [(49_000, 1), (20_000, 0)])
def test_a_real_vocabulary_makes_the_head_a_note(highest: int, count: int) -> None:
    """Its classes are used; only what they cost is worth saying. Where few are used, that is what is said."""
    use = IndexUse("target", 50_257, 0, 16_000, 3_000, highest)
    outcome = examine(with_(wide_head(), index_use=(use,)), CHECK.limits)
    notes = [f for f in outcome.findings if f.severity is Severity.NOTE]
    assert ids(outcome) == ["PD09.oversized-head" if count else "PD09.unused-outputs"]
    assert len(notes) == count


def test_unused_outputs_are_billed_with_their_loss_and_update() -> None:
    """2,200 of 2,500 outputs: of the layer's 7.5 ms, of the loss's 1.5 ms; the layer has no parameters here."""
    finding = only(examine(unused_outputs(), CHECK.limits))
    assert finding.savings.low_ms == pytest.approx(0.85 * 0.88 * (7.5 + 1.5))
    assert number(finding, "highest") == 299
    with_update = with_(
        unused_outputs(), layers__layers=(layer(share=0.3, weight_shape=(2_500, 192), parameters=500_000),)
    )
    assert number(only(examine(with_update, CHECK.limits)), "update_ms") == pytest.approx(1.0)


@pytest.mark.parametrize(
    "evidence",
    [
        unused_outputs(highest=1_250),
        unused_outputs(targets=49, distinct=49),
        unused_outputs(targets=64, distinct=8, highest=7),
        unused_outputs(distinct=2),
        unused_outputs(share=0.05),
        with_(unused_outputs(), index_use=()),
        with_(unused_outputs(), index_use=(IndexUse("lookup", 2_500, 192, 3_000, 290, 299),)),
        with_(unused_outputs(), index_use=(IndexUse("target", 2_400, 0, 3_000, 290, 299),)),
        with_(unused_outputs(), index_use=Missing("the job uses torch.compile")),
    ],
    ids=["half", "few-targets", "eight-each", "sorted", "cheap", "no-loss", "table", "other-loss", "missing"],
)
def test_outputs_in_use_or_unknown_are_no_finding(evidence: Evidence) -> None:
    assert _ids(evidence) == []


@pytest.mark.parametrize(("targets", "count"), [(190, 0), (230, 1)])
def test_half_of_a_vocabulary_needs_more_targets_than_nearly_all_of_it(targets: int, count: int) -> None:
    """Letters of a text under the head of a language model: 60 targets say that 31 outputs of 50,257 are used."""
    letters = unused_outputs(highest=30, outputs=50_257, targets=60, distinct=21)
    assert _ids(letters) == ["PD09.unused-outputs"]
    half = unused_outputs(highest=24_000, outputs=50_257, targets=targets, distinct=150)
    assert ("PD09.unused-outputs" in _ids(half)) == bool(count)


def test_half_of_the_outputs_is_the_edge() -> None:
    assert _ids(unused_outputs(highest=1_249)) == ["PD09.unused-outputs"]


# ---------------------------------------------------------------------------------------------------------
# Time without arithmetic


@pytest.mark.parametrize(("share", "flops", "count"), [(0.29, 0.0, 0), (0.31, 0.0, 1), (0.4, 0.14, 0), (0.4, 0.13, 1)])
def test_a_layer_is_slow_when_its_time_far_exceeds_its_arithmetic(share: float, flops: float, count: int) -> None:
    assert _ids(memory_bound(share, flops)) == ["PD09.memory-bound-layer"] * count


def test_dropout_draws_random_numbers_which_compiling_does_not_save() -> None:
    finding = only(examine(memory_bound(kind="Dropout"), CHECK.limits))
    assert finding.severity is Severity.NOTE and "random numbers" in finding.reasoning
    assert "compile" not in finding.fix.code
    assert "compile" in only(examine(memory_bound(), CHECK.limits)).fix.code


@pytest.mark.parametrize(
    ("own", "runs", "line_ms", "count"),
    [(True, 64.0, 2.0, 0), (False, 64.0, 2.0, 1), (True, 7.0, 2.0, 1), (True, 64.0, 1.4, 1)],
    ids=["loop", "torchs", "few-runs", "most-elsewhere"],
)
def test_a_forward_that_loops_over_elements_is_no_slow_layer(
    own: bool, runs: float, line_ms: float, count: int
) -> None:
    """PD10 names the loop, with its line. The layer's forward pass takes 3.3 ms."""
    loop = Line(Site("train.py", 61, "forward"), "forward", 4 * runs, line_ms, 1.0, 0.3, 0.5, runs)
    run = with_(memory_bound(own=own), hot_lines=(loop,))
    assert _ids(run) == ["PD09.memory-bound-layer"] * count


@pytest.mark.parametrize(("own", "saved_ms", "count"), [(True, 4.0, 0), (True, 1.0, 1), (False, 4.0, 1)])
def test_a_layer_whose_operators_others_could_stand_for_is_told_by_its_line(
    own: bool, saved_ms: float, count: int
) -> None:
    """Of 8.8 ms."""
    others = otherwise("pairs", forward_ms=saved_ms, backward_ms=0.0, other_forward_ms=0.0, other_backward_ms=0.0)
    run = with_(memory_bound(own=own), equivalents=others.equivalents)
    assert _ids(run) == ["PD09.memory-bound-layer"] * count


@pytest.mark.parametrize(("own", "ms", "count"), [(True, 5.0, 0), (True, 4.0, 1), (False, 5.0, 1)])
def test_a_layer_that_looks_up_rows_or_counts_in_float64_is_none_that_compiling_helps(
    own: bool, ms: float, count: int
) -> None:
    run = memory_bound(own=own)
    lookups = Op("index", "float32", "[192, 192, 32]", 4.0, ms, ms, 0.0)
    looks_up = with_(run, ops__ops=(lookups, *run.ops.ops))  # type: ignore[union-attr]
    for ran in (looks_up, with_(run, ops__self_ms_by_dtype=(("float64", ms),))):
        assert _ids(ran) == ["PD09.memory-bound-layer"] * count


@pytest.mark.parametrize(("own", "part", "count"), [(True, "forward", 0), (False, "forward", 1), (True, "backward", 1)])
def test_a_layer_whose_forward_computes_in_python_is_told_by_its_line(own: bool, part: str, count: int) -> None:
    """2 of 3.3 ms, in a line that issues no operators."""
    line = CodeLine(Site("train.py", 70, "forward"), part, False, 2.0, 0.3, runs_per_step=1.0)
    run = with_(memory_bound(own=own), code_lines=(line,))
    assert _ids(run) == ["PD09.memory-bound-layer"] * count


def test_a_layer_of_the_users_own_is_not_told_to_pool() -> None:
    finding = only(examine(memory_bound(own=True), CHECK.limits))
    assert "nn.RMSNorm" in finding.fix.text and "MaxPool" not in finding.fix.code


@pytest.mark.parametrize("ill", [too_wide, wide_head, unused_outputs, memory_bound, dense_embedding])
def test_a_layers_line_is_the_one_that_makes_it_else_the_one_that_calls_it(ill: Callable[[], Evidence]) -> None:
    made = ill()
    assert only(examine(made, CHECK.limits)).location == Location("model.py", 5, "__init__")
    assert not isinstance(made.layers, Missing)
    copies = tuple(with_(one, made_at=None) for one in made.layers.layers)
    found = only(examine(with_(made, layers__layers=copies), CHECK.limits))
    assert found.location == Location("model.py", 12, "forward")


def test_only_the_time_beyond_the_arithmetic_may_be_saved() -> None:
    finding = only(examine(memory_bound(0.4, 0.1), CHECK.limits))
    assert finding.savings.ceiling_ms == pytest.approx(0.75 * 10.0)
    assert finding.savings.part is Part.COMPUTE


@pytest.mark.parametrize(("shape", "share"), [((8, 24, 64, 64), 0.85), ((8, 24, 64), 0.5)])
def test_pictures_can_be_pooled_in_two_directions(shape: tuple[int, ...], share: float) -> None:
    savings = only(examine(memory_bound(input_shape=shape), CHECK.limits)).savings
    assert savings.low_ms == pytest.approx(share * savings.ceiling_ms)


@pytest.mark.parametrize(("timings", "count"), [({1: 2.0, 16: 20.0}, 0), ({1: 20.0, 16: 20.0}, 1)])
def test_a_layer_in_which_threads_wait_for_each_other_is_not_slow(timings: dict[int, float], count: int) -> None:
    timed = tuple(ThreadTiming(threads, ms) for threads, ms in timings.items())
    crowd = with_(memory_bound(), threads__intra_op=16, ops__thread_timings=timed)
    assert _ids(crowd) == ["PD09.memory-bound-layer"] * count


def test_a_small_network_has_no_slow_layers() -> None:
    tiny = memory_bound(0.4, 0.0, forward_ms=0.3, backward_ms=0.6)
    assert _ids(tiny) == []


def test_a_container_and_an_uncounted_network_are_not_blamed() -> None:
    assert _ids(memory_bound(leaf=False)) == []
    assert _ids(with_layer(layer("FFT", 0.5, 0.0, weight_shape=()), layers__flops_per_step=0.0)) == []


# ---------------------------------------------------------------------------------------------------------
# Embeddings and time loops


@pytest.mark.parametrize(
    "illness",
    [
        "PD09.oversized-layer",
        "PD09.dominant-convolution",
        "PD09.unused-outputs",
        "PD09.oversized-head",
        "PD09.memory-bound-layer",
        "PD09.dense-embedding-gradient",
        "PD09.time-loop",
    ],
)
def test_time_without_a_cpu_is_not_blamed_on_a_layer(illness: str) -> None:
    """It falls into whichever layer runs just then."""
    evidence = ILL[illness]
    assert not isinstance(evidence.layers, Missing)
    waited = with_(evidence, layers__stray_ms=0.95 * max(layer.ms for layer in evidence.layers.layers))
    assert illness not in ids(examine(waited, CHECK.limits))
