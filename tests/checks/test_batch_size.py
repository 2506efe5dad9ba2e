from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ill_runs.batch_size import batch_timings, small_batch
from ills import ILL
from perfdoctor.checks.batch_size import CHECK
from samples import FETCH, HOT_LINES, LAYERS, asked, healthy, ids, is_clear, number, on_gpu, with_

from perfdoctor.diagnosis.findings import Confidence, Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import BatchReplay, Evidence, LayerProfile, Line, Missing, Op, Parts, Site, Step

_examined, _found = asked(CHECK)


@pytest.mark.parametrize("part", ["step", "ops"])
def test_without_steps_or_operators_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


def test_without_timings_it_says_how_to_find_out() -> None:
    outcome = _examined(with_(healthy(), ops__batch_timings=Missing("nothing was timed", "compare two runs")))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert outcome.reason.endswith("nothing was timed; compare two runs")


def test_a_batch_that_fills_the_step_with_work_is_clear_with_numbers() -> None:
    outcome = _examined(healthy())
    assert is_clear(outcome)
    assert number(outcome, "gain_low") < 1.1


# ---------------------------------------------------------------------------------------------------------
# Too small


def test_launches_and_weights_are_what_a_small_batch_pays_for() -> None:
    finding = _found(ILL["PD05.batch-too-small"])
    assert finding.id == "PD05.batch-too-small"
    assert finding.is_opportunity and finding.confidence is Confidence.MEDIUM
    assert finding.savings.part is Part.COMPUTE
    assert finding.location is not None and finding.location.line == 12
    assert "batch_size=16" in finding.fix.code
    assert "validation loss" in finding.fix.text and "learning rate" in finding.fix.text


@pytest.mark.parametrize(("growing", "count"), [(0.02, 1), (0.3, 1), (0.55, 1), (0.85, 0), (1.0, 0)])
def test_it_counts_by_what_a_larger_batch_would_give(growing: float, count: int) -> None:
    evidence = small_batch(growing, step__parts__other=0.1, step__parts__input_wait=0.0, step__step_ms=24.2)
    assert len(_examined(evidence).findings) == count


@pytest.mark.parametrize("batch", [1.0, 31.0, 512.0])
def test_the_batch_is_a_choice_and_another_an_opportunity(batch: float) -> None:
    assert _found(small_batch(batch=batch)).is_opportunity


def test_sequences_count_by_their_tokens() -> None:
    embedding = replace(LAYERS.layers[0], kind="Embedding", input_shape=(4, 1024))
    finding = _found(small_batch(layers__layers=(embedding,)))
    assert finding.severity is Severity.NOTE
    assert number(finding, "tokens") == 4096


def test_a_batch_of_graphs_has_as_many_as_the_loader_draws_and_not_its_nodes() -> None:
    finding = _found(small_batch(step__samples=92.0))
    assert number(finding, "batch") == 4
    assert "batch_size=16" in finding.fix.code


def test_without_a_loader_the_first_input_says_how_many_samples_there_are() -> None:
    evidence = with_(small_batch(step__samples=Missing("no loader")), loaders=Missing("no loader was seen"))
    assert number(_examined(evidence), "batch") == 32
    assert _found(evidence).location is None
    assert isinstance(evidence.layers, LayerProfile)
    network = replace(evidence.layers.layers[0], name="", order=-1, called_at=Site("train.py", 41, "main"))
    fed = with_(evidence, layers__layers=(network, *evidence.layers.layers))
    assert _found(fed).location == Location("train.py", 41, "main")
    taken = Line(Site("train.py", 38, "batches"), "other", 2.0, 0.4, 0.2, 0.05, 0.05, 1.0, shapes=((32, 512),))
    assert _found(with_(fed, hot_lines=(*HOT_LINES, taken))).location == Location("train.py", 38, "batches")


def test_a_wait_in_the_forward_pass_is_no_reason_for_a_larger_batch() -> None:
    """25 ms of sleep in the model: neither operators nor launches explain it."""
    waits = Parts(input_wait=0.3, forward=30.0, backward=14.0, optimizer=2.0)
    grown = {f"step__parts__{name}": ms for name, ms in waits.as_dict().items()}
    assert _examined(small_batch(1.0, step__step_ms=waits.total, **grown)).kind is OutcomeKind.CLEAR


def test_operators_of_a_loop_over_samples_grow_with_the_batch() -> None:
    many = {"ops__ops_per_step": 2000.0, "ops__batch_timings": batch_timings(1.0)}
    waits = Parts(input_wait=0.3, forward=40.0, backward=14.0, optimizer=2.0)
    parts = {f"step__parts__{name}": ms for name, ms in waits.as_dict().items()}
    loop = Line(Site("train.py", 30, "forward"), "forward", 1900.0, 18.0, 18.0, 0.5, 0.9, 16.0)
    small = small_batch(1.0, 16.0, step__step_ms=waits.total, step__cpu_ms=waits.total, **parts, **many)
    assert _examined(with_(small, hot_lines=())).kind is OutcomeKind.FOUND
    assert _examined(with_(small, hot_lines=(loop,))).kind is OutcomeKind.CLEAR


def test_large_operators_that_were_not_timed_grow() -> None:
    """Elementwise work of 12 ms beside products that hardly grow."""
    elementwise = Op("native_batch_norm", "float32", "[4, 64, 56, 56]", 2.0, 12.0, 12.0, 0.0)
    evidence = small_batch(0.1, ops__ops=(elementwise,))
    low = number(_examined(small_batch(0.1)), "gain_low")
    assert number(_examined(evidence), "gain_low") < low


def test_the_optimizers_operators_do_not_grow() -> None:
    """Adam's root of the second moment is as large as a weight, whatever the batch."""
    roots = Op("sqrt", "float32", "[512, 512]", 3.0, 12.0, 12.0, 0.0)
    in_place = Op("addcdiv_", "float32", "[512, 512] [512, 512]", 3.0, 12.0, 12.0, 0.0)
    low = number(_examined(small_batch(0.1)), "gain_low")
    assert number(_examined(small_batch(0.1, ops__ops=(roots, in_place))), "gain_low") == low


def test_workers_that_cannot_keep_up_bound_the_gain() -> None:
    slow = replace(FETCH, getitem_ms=40.0, collate_ms=6.0)
    assert _examined(small_batch(0.02, loader__fetch=slow)).kind is OutcomeKind.CLEAR


def test_a_step_that_is_shorter_than_its_parts_say_is_judged_all_the_same() -> None:
    """CPU time is sampled twice a second; over a few short steps it may exceed their wall time."""
    evidence = small_batch(0.0, step__run_delay_ms=20.0, step__cpu_ms=60.0, step__parts__other=20.0)
    assert 0 < number(_examined(evidence), "gain_high") <= 4


def test_waiting_for_other_ranks_is_not_launching() -> None:
    """2,000 operators would explain 20 ms of launches, but the thread used a CPU for 9 ms only."""
    alone = small_batch(1.0, ops__ops_per_step=2000.0, ops__batch_timings=batch_timings(1.0))
    waits = with_(alone, step__parts__backward=44.0, step__step_ms=54.7, step__cpu_ms=22.0)
    busy = with_(waits, step__cpu_ms=54.0)
    assert _examined(busy).kind is OutcomeKind.FOUND
    assert _examined(waits).kind is OutcomeKind.CLEAR


def test_time_without_a_cpu_is_not_taken_for_launches() -> None:
    """A neighbour doubles the step; the timings, taken undisturbed, do not change."""
    evidence = small_batch(1.0, step__step_ms=50.0, step__run_delay_ms=25.0, step__parts__forward=33.0)
    assert _examined(evidence).kind is OutcomeKind.CLEAR


def test_the_fix_speaks_the_frameworks_language() -> None:
    finding = _found(small_batch(job__trainer="transformers"))
    assert finding.fix.code == "TrainingArguments(..., per_device_train_batch_size=16)"


# ---------------------------------------------------------------------------------------------------------
# The job's own passes, run again


def _replayed(larger: float, batch: int = 4, once: float = 34.0, **changes: Any) -> Evidence:
    """The operators say that all of it grows; four times the batch takes so many times as long as `once`, ms of the two
    steps of the window."""
    times = ((1, once), (2, once * (1 + larger) / 2), (4, once * larger))
    parts = {"step__parts__other": 0.0, "step__parts__input_wait": 0.0, "step__step_ms": 24.0, "step__cpu_ms": 24.0}
    parts |= {"loader__fetch": Missing("it was not seen")}
    return small_batch(1.0, ops__steps=2, ops__batch_replay=BatchReplay(batch, times), **parts | changes)


@pytest.mark.parametrize("larger", [1.0, 2.0, 3.0])
def test_passes_run_again_say_what_a_larger_batch_takes(larger: float) -> None:
    """Those of 22 ms are as many times as long, the optimizer's 2 ms stay."""
    evidence = _replayed(larger)
    finding, step = _found(evidence), evidence.step
    assert isinstance(step, Step)
    passes = step.parts.forward + step.parts.backward
    expected = 4 * step.step_ms / (step.step_ms - passes + larger * passes)
    low, high = number(finding, "more_low"), number(finding, "more_high")
    assert low <= expected <= high <= 1.3 * low
    assert finding.savings is not None and "run again" in finding.savings.method


def test_passes_that_grow_with_the_batch_are_clear_whatever_the_operators_say() -> None:
    evidence = _replayed(4.0)
    assert is_clear(_examined(with_(evidence, ops__batch_timings=batch_timings(0.0))))
    assert is_clear(_examined(with_(evidence, ops__batch_timings=Missing("no operator could be timed"))))


def test_an_input_whose_first_dimension_is_no_batch_says_nothing() -> None:
    """The loader draws 4 samples: 128 are the length of a sequence."""
    assert is_clear(_examined(_replayed(1.0, batch=128)))


def test_pauses_have_no_more_room_than_the_modules_leave() -> None:
    """17 of 22 ms are the modules'. What 5 more are is not known; 40 are a disturbance in the window."""
    plain, paused, disturbed = (_replayed(1.0, ops__pauses_ms=pauses) for pauses in (0.0, 6.0, 40.0))
    assert number(_examined(paused), "gain_low") < number(_examined(plain), "gain_low")
    assert number(_examined(disturbed), "gain_low") == number(_examined(plain), "gain_low")


def test_a_state_without_a_dimension_for_samples_is_one_sample() -> None:
    evidence = with_(small_batch(step__samples=Missing("no loader")), loaders=Missing("no loader was seen"))
    state = replace(LAYERS.layers[0], kind="Policy", input_shape=(4,))
    table = replace(LAYERS.layers[0], kind="Embedding", input_shape=(4,))
    assert number(_examined(with_(evidence, layers__layers=(state,))), "batch") == 1
    assert number(_examined(with_(evidence, layers__layers=(state, table))), "batch") == 4


# ---------------------------------------------------------------------------------------------------------
# Accumulation


def test_micro_batches_are_merged_before_the_batch_grows() -> None:
    finding = _found(ILL["PD05.mergeable-accumulation"])
    assert finding.id == "PD05.mergeable-accumulation"
    assert (number(finding, "micro_batches"), number(finding, "batch")) == (8, 4)
    assert "batch_size=32" in finding.fix.code
    assert "same samples" in finding.fix.text
    # The optimizer's time is paid once already.
    assert finding.savings.high_ms < 25.0 - 2.0


def test_merging_is_an_ill_only_where_whole_passes_were_run_with_a_larger_batch() -> None:
    merging = {"step__samples": 32.0, "step__micro_batches": 8.0, "loader__steady_batches_per_step": 8.0}
    timed, run = _found(ILL["PD05.mergeable-accumulation"]), _found(_replayed(1.0, **merging))
    assert timed.id == run.id == "PD05.mergeable-accumulation"
    assert (timed.severity, run.severity) == (Severity.NOTE, Severity.ERROR)


def test_micro_batches_of_a_usual_size_are_a_choice() -> None:
    evidence = with_(ILL["PD05.mergeable-accumulation"], step__samples=256.0)
    assert _found(evidence).severity is Severity.NOTE


def test_without_the_memory_for_it_nothing_is_merged() -> None:
    evidence = with_(ILL["PD05.mergeable-accumulation"], host__memory_available_bytes=1 << 30)
    assert _examined(evidence).kind is OutcomeKind.CLEAR


def test_lightning_accumulates_in_the_trainer() -> None:
    finding = _found(with_(ILL["PD05.mergeable-accumulation"], job__trainer="lightning"))
    assert "accumulate_grad_batches=1" in finding.fix.code


# ---------------------------------------------------------------------------------------------------------
# Too large


def test_a_batch_that_leaves_the_caches_is_found() -> None:
    finding = _found(ILL["PD05.batch-too-large"])
    assert finding.id == "PD05.batch-too-large"
    assert finding.severity is Severity.WARNING
    assert "batch_size=64" in finding.fix.code and "4 of them" in finding.fix.code
    assert number(finding, "products_saved") == pytest.approx(8 * 2.5 * 0.6)


def test_the_allocator_comes_first() -> None:
    evidence = with_(ILL["PD05.batch-too-large"], memory__system_cpu_ms=6.0)
    assert _found(evidence).severity is Severity.NOTE


@pytest.mark.parametrize("quarter", [0.25, 0.24, None])
def test_quarters_that_take_a_quarter_save_nothing(quarter: float | None) -> None:
    evidence = small_batch(1.0, 256.0, ops__batch_timings=batch_timings(1.0, quarter=quarter))
    assert _examined(evidence).kind is OutcomeKind.CLEAR


# ---------------------------------------------------------------------------------------------------------
# On a GPU


def test_a_gpu_that_waits_for_launches_has_room_for_a_larger_batch() -> None:
    finding = _found(on_gpu(small_batch(), ops__device_busy_ms=4.0, ops__batch_timings=Missing("on a GPU")))
    assert finding.id == "PD05.batch-too-small"
    assert finding.confidence is Confidence.LOW
    assert number(finding, "more_high") == pytest.approx(4 * 24.75 / (4 * 4.4 + 20.35), rel=0.1)


def test_a_busy_gpu_is_clear() -> None:
    assert _examined(on_gpu(small_batch(), ops__device_busy_ms=23.5)).kind is OutcomeKind.CLEAR


def test_a_full_gpu_has_no_room() -> None:
    evidence = on_gpu(small_batch(), ops__device_busy_ms=4.0, cuda_memory__peak_allocated_bytes=60 << 30)
    assert _examined(evidence).kind is OutcomeKind.CLEAR


def test_with_less_room_half_as_much_is_offered() -> None:
    evidence = on_gpu(small_batch(), ops__device_busy_ms=2.0, cuda_memory__peak_allocated_bytes=30 << 30)
    assert number(_found(evidence), "times") == 2


def test_a_simulator_between_the_operators_is_no_launch() -> None:
    """19 of 24 ms in forward and backward are pauses; without them there is little that a larger batch would share."""
    simulated = small_batch(0.9, ops__ops_per_step=5_000.0, ops__batch_timings=batch_timings(0.9))
    launching = with_(simulated, ops__batch_timings=batch_timings(0.0), ops__self_ms_per_step=4.0)
    paused = with_(launching, ops__pauses_ms=19.0)
    assert number(_examined(launching), "gain_high") > number(_examined(paused), "gain_high")
    beside = with_(launching, ops__pauses_ms=2.0)  # as long as the optimizer takes
    assert number(_examined(beside), "gain_high") == number(_examined(launching), "gain_high")


def _own_batches(calls: float, backwards: float) -> Evidence:
    """A loop without a loader that calls its network so often a step, and asks for so many backward passes."""
    evidence = with_(small_batch(step__samples=Missing("there is no loader")), loaders=())
    assert not isinstance(evidence.layers, Missing)
    network = with_(evidence.layers.layers[0], name="", order=0, leaf=False, calls_per_step=calls, input_shape=(4, 32))
    backward, *others = HOT_LINES
    # Runs are an estimate, and of no use here: a line that issues thousands of operators once may count as several.
    lines = (with_(backward, runs_per_step=7.0, passes_per_update=backwards), *others)
    return with_(evidence, layers__layers=(network, *evidence.layers.layers), hot_lines=lines)


def test_a_line_that_computes_beside_its_backward_pass_asks_for_one_all_the_same() -> None:
    """`(loss / 8).backward()`: what a line calls is told by the first of its operators."""
    evidence = _own_batches(8.0, 8.0)
    assert not isinstance(evidence.hot_lines, Missing)
    first, *others = evidence.hot_lines
    divided = with_(evidence, hot_lines=(with_(first, site=with_(first.site, via="")), *others))
    assert number(_found(divided), "micro_batches") == 8


def test_micro_batches_of_a_loop_that_makes_its_batches_itself_are_its_backward_passes() -> None:
    finding = _found(_own_batches(8.0, 8.0))
    assert finding.id == "PD05.mergeable-accumulation"
    assert (number(finding, "micro_batches"), number(finding, "batch")) == (8, 4)
    assert finding.location is not None
    assert finding.location.line == HOT_LINES[0].site.line
    assert "batch_size = 32" in finding.fix.code
    assert "DataLoader" not in finding.fix.code


@pytest.mark.parametrize(
    ("calls", "backwards"),
    [(8.0, 1.0), (2.0, 1.0), (1.0, 8.0)],  # steps of an agent, two views of a sample, a custom function's lines
)
def test_calls_without_a_backward_pass_each_are_no_micro_batches(calls: float, backwards: float) -> None:
    assert "PD05.mergeable-accumulation" not in ids(_examined(_own_batches(calls, backwards)))


def test_without_lines_or_layers_a_loop_of_its_own_has_one_batch() -> None:
    for part in ("hot_lines", "layers"):
        outcome = _examined(with_(_own_batches(8.0, 8.0), **{part: Missing("it was not seen")}))
        assert "PD05.mergeable-accumulation" not in ids(outcome)


def test_what_tells_a_trainer_the_batch_is_the_line_to_change() -> None:
    """It makes the loader and the steps itself."""
    accumulated, size = Site("job.py", 64, "main"), Site("job.py", 63, "main")
    told = {"job__accumulation_at": accumulated, "job__batch_at": size}
    assert _found(with_(ILL["PD05.mergeable-accumulation"], **told)).location == Location("job.py", 64, "main")
    assert _found(with_(ILL["PD05.batch-too-small"], **told)).location == Location("job.py", 63, "main")
