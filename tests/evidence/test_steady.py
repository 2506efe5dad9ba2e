from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import (
    START_NS,
    WALL_US,
    autocorrelated,
    batches,
    boundary,
    iterator,
    loader,
    process,
    recorded,
    sample,
    selected,
    settings,
    sites_window,
    steps,
)

from perfdoctor.evidence import steady
from perfdoctor.evidence.model import Missing, Step
from perfdoctor.evidence.stats import block_interval
from perfdoctor.evidence.steady import warmup_length


def _measured(directory: Path, *records: dict[str, Any]) -> Step:
    recording = recorded(directory, *records)
    return steady.measure(recording, selected(recording))


def _steady_numbers(directory: Path, *records: dict[str, Any]) -> list[int]:
    return selected(recorded(directory, *records)).column("step").tolist()


# ---------------------------------------------------------------------------------------------------------
# The warm-up


@pytest.mark.parametrize(
    ("walls", "length"),
    [
        ([], 0),
        ([50], 1),
        ([50] + [10] * 5, 1),
        ([10] * 100, 1),  # the first step is always left out
        ([500] + [10] * 99, 1),
        ([500] + [20] * 11 + [10] * 88, 12),
        ([30 - i for i in range(20)] + [10] * 80, 19),  # within 10 % of what it becomes
        ([500, 10, 10, 90, 10] + [10] * 95, 1),  # a hiccup is no warm-up
        (list(range(100, 0, -1)), 50),  # never settles: half of it, not all
        ([10] * 50 + [20] * 50, 1),  # getting slower is no warm-up
    ],
)
def test_the_warm_up_ends_where_steps_settle(walls: list[int], length: int) -> None:
    assert warmup_length(np.array(walls, dtype=np.int64)) == length


def test_the_warm_up_is_left_out_and_counted(tmp_path: Path) -> None:
    step = _measured(tmp_path, steps([90_000] * 10 + [WALL_US] * 40))
    assert step.warmup == 10
    assert step.count == 40
    assert step.median_ms == 10.0


def test_waits_of_the_warm_up_do_not_reach_the_mean(tmp_path: Path) -> None:
    walls, waits = [90_000] * 10 + [WALL_US] * 40, [80_000] * 10 + [0] * 40
    assert _measured(tmp_path, steps(walls, input_wait_us=waits)).parts.input_wait == 0.0


def test_a_slow_first_step_does_not_reach_the_statistics(tmp_path: Path) -> None:
    step = _measured(tmp_path, steps([5_000_000] + [WALL_US] * 20))
    assert step.step_ms == pytest.approx(10.0)
    assert step.first_step_s == pytest.approx(5.0)


# ---------------------------------------------------------------------------------------------------------
# Which steps count


@pytest.mark.parametrize(("n", "count"), [(2, 1), (5, 4)])
def test_fewer_than_five_steady_steps_are_none_and_the_reason_says_how_many(tmp_path: Path, n: int, count: int) -> None:
    missing = steady.select(recorded(tmp_path, steps(WALL_US, n)))
    assert isinstance(missing, Missing)
    assert f"too few steady steps: {count} of" in missing.reason
    assert f"of the {n} seen" in missing.reason
    assert missing.remedy


def test_five_steady_steps_are_enough(tmp_path: Path) -> None:
    assert selected(recorded(tmp_path, steps(WALL_US, 6))).count == 5


def test_no_step_at_all_is_missing(tmp_path: Path) -> None:
    missing = steady.select(recorded(tmp_path, settings()))
    assert missing == Missing("no step was seen")


def test_windows_are_left_out(tmp_path: Path) -> None:
    walls = [WALL_US] * 40
    walls[20:23] = [80_000] * 3
    step = _measured(tmp_path, steps(walls, marked=[20, 21, 22]))
    assert (step.windowed, step.count) == (3, 36)
    assert step.step_ms == pytest.approx(10.0)


def test_a_window_in_the_warm_up_does_not_lengthen_it(tmp_path: Path) -> None:
    walls = [WALL_US] * 40
    walls[3:6] = [80_000] * 3
    assert _measured(tmp_path, steps(walls, marked=[3, 4, 5])).warmup == 1


def test_epoch_starts_are_left_out_and_their_cost_is_kept_beside(tmp_path: Path) -> None:
    starts = [0, 20, 40, 60, 80]
    walls = [110_000 if i in starts else WALL_US for i in range(100)]
    step = _measured(tmp_path, loader(), steps(walls), *(iterator(i) for i in starts))
    assert (step.irregular, step.count) == (4, 95)
    assert step.step_ms == pytest.approx(10.0)
    assert step.irregular_ms == pytest.approx(4 * 100 / 99)


def test_an_epoch_start_that_is_quicker_than_the_step_earns_nothing_back(tmp_path: Path) -> None:
    walls = [{20: 110_000, 40: 5_000}.get(i, WALL_US) for i in range(100)]
    step = _measured(tmp_path, loader(), steps(walls), iterator(20), iterator(40))
    assert (step.irregular, step.irregular_ms) == (2, pytest.approx(100 / 99))


def test_an_epoch_start_in_a_window_is_the_windows(tmp_path: Path) -> None:
    walls = [110_000 if i == 20 else WALL_US for i in range(100)]
    step = _measured(tmp_path, loader(), steps(walls, marked=[20, 21]), iterator(20))
    assert (step.irregular, step.irregular_ms, step.windowed) == (0, 0.0, 2)


def test_steps_with_a_validation_run_or_a_checkpoint_are_left_out(tmp_path: Path) -> None:
    micro = [9 if i in (30, 60) else 1 for i in range(100)]
    saving = [50_000 if i == 45 else 0 for i in range(100)]
    numbers = _steady_numbers(tmp_path, steps(WALL_US, 100, micro=micro, checkpoint_us=saving))
    assert not {30, 45, 60} & set(numbers)
    assert len(numbers) == 96


def test_what_happens_every_third_step_is_how_this_loop_works(tmp_path: Path) -> None:
    starts = list(range(0, 60, 3))
    walls = [40_000 if i in starts else WALL_US for i in range(60)]
    waits = [30_000 if i in starts else 0 for i in range(60)]
    step = _measured(tmp_path, loader(), steps(walls, input_wait_us=waits), *(iterator(i) for i in starts))
    assert step.irregular == 0
    assert step.parts.input_wait == pytest.approx(10.0, rel=0.05)


def test_gradient_accumulation_is_regular(tmp_path: Path) -> None:
    step = _measured(tmp_path, steps(WALL_US, 30, micro=4))
    assert (step.irregular, step.micro_batches) == (0, 4.0)


def test_once_the_optimizer_steps_only_its_steps_count(tmp_path: Path) -> None:
    step = _measured(
        tmp_path,
        boundary("batch"),
        steps(90_000, 30),
        boundary("optimizer", 30),
        steps(WALL_US, 20, first=30),
    )
    assert (step.boundary, step.count) == ("optimizer", 19)
    assert step.step_ms == pytest.approx(10.0)


def test_steps_by_backward_passes_count_before_evaluations_however_many(tmp_path: Path) -> None:
    step = _measured(
        tmp_path,
        boundary("forward"),
        steps(2_000, 60),
        boundary("backward", 60),
        steps(WALL_US, 20, first=60, micro=[1] * 12 + [7] + [1] * 7),
    )
    assert (step.boundary, step.count, step.irregular) == ("backward", 18, 1)
    assert step.step_ms == pytest.approx(10.0)


def test_a_few_optimizer_steps_do_not_make_an_inference_loop_a_training_loop(tmp_path: Path) -> None:
    step = _measured(tmp_path, steps(WALL_US, 3), boundary("forward", 3), steps(5_000, 40, first=3))
    assert (step.boundary, step.step_ms) == ("forward", pytest.approx(5.0))


def test_events_belong_to_the_span_between_warm_up_and_end(tmp_path: Path) -> None:
    selection = selected(recorded(tmp_path, steps(WALL_US, 20)))
    assert (selection.first, selection.last, selection.span) == (1, 20, 19)
    assert selection.start_ns == START_NS + 1000 * WALL_US
    assert selection.end_ns == START_NS + 20_000 * WALL_US


# ---------------------------------------------------------------------------------------------------------
# Where the time goes


def test_the_parts_add_up_to_the_step(tmp_path: Path) -> None:
    step = _measured(
        tmp_path,
        steps(WALL_US, 50, input_wait_us=1000, forward_us=2000, backward_us=4000, optimizer_us=500, cpu_us=8000),
    )
    assert step.parts.as_dict() == pytest.approx(
        {
            "input_wait": 1,
            "forward": 2,
            "backward": 4,
            "optimizer": 0.5,
            "checkpoint": 0,
            "gc": 0,
            "other": 2.5,
            "communication": 0,
            "logging": 0,
        }
    )
    assert step.step_ms == pytest.approx(step.parts.total) == pytest.approx(10.0)
    assert step.cpu_ms == pytest.approx(8.0)


def test_a_cost_every_fiftieth_step_is_a_cost(tmp_path: Path) -> None:
    pauses = [60_000 if i % 50 == 25 else 0 for i in range(200)]
    step = _measured(tmp_path, steps([WALL_US + p for p in pauses], gc_us=pauses, backward_us=WALL_US))
    assert step.parts.gc == pytest.approx(60 * 4 / 199)
    assert step.step_ms == pytest.approx(10 + 60 * 4 / 199)


def test_a_hiccup_in_the_arithmetic_is_none(tmp_path: Path) -> None:
    backward = [1_000_000 if i in (30, 90) else WALL_US for i in range(100)]
    step = _measured(tmp_path, steps(backward, backward_us=backward))
    assert step.parts.backward == pytest.approx(10.0)
    assert step.step_ms == pytest.approx(10.0)
    assert step.low_ms <= 10.0 <= step.high_ms


def test_the_interval_moves_along_with_the_step_that_leaves_out_hiccups(tmp_path: Path) -> None:
    backward = [1_000_000 if i in (30, 90) else WALL_US for i in range(100)]
    step = _measured(tmp_path, steps(backward, backward_us=backward))
    _, high = block_interval(np.array(backward[1:]) / 1000)
    assert step.high_ms == pytest.approx(high - 20.0)


def test_other_time_is_never_negative(tmp_path: Path) -> None:
    """Clocks are read one after the other, so the parts of a step may exceed it by microseconds."""
    assert _measured(tmp_path, steps(WALL_US, 20, backward_us=WALL_US + 3)).parts.other == 0.0


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_interval_holds_the_true_step(tmp_path: Path, rho: float) -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(40):
        walls = (20_000 + 1000 * autocorrelated(rng, 200, rho)).astype(int).tolist()
        step = _measured(tmp_path, steps(walls))
        assert step.low_ms <= step.step_ms <= step.high_ms
        hits += step.low_ms <= 20.0 <= step.high_ms
    assert hits >= 32


def test_a_job_that_slows_down_has_a_slope(tmp_path: Path) -> None:
    rising = _measured(tmp_path, steps([10_000 + 20 * i for i in range(300)]))
    assert rising.slope == pytest.approx(0.36, abs=0.05)
    assert _measured(tmp_path, steps(WALL_US, 300)).slope == 0.0
    assert _measured(tmp_path, steps([10_000 + 200 * i for i in range(20)])).slope == 0.0  # too few to say


# ---------------------------------------------------------------------------------------------------------
# Counters


def test_counters_are_taken_over_the_span(tmp_path: Path) -> None:
    step = _measured(
        tmp_path,
        steps(WALL_US, 100),
        sample(0, utime_us=9_000_000),  # before the warm-up's end
        sample(10, utime_us=10_000_000, stime_us=1_000_000, delay_us=500),
        sample(90, utime_us=10_800_000, stime_us=1_080_000, delay_us=80_500),
    )
    assert step.process_cpu_ms == pytest.approx(11.0)
    assert step.run_delay_ms == pytest.approx(1.0)


def test_counters_after_the_last_window_are_preferred(tmp_path: Path) -> None:
    """A window's own work is in the counters of the process."""
    step = _measured(
        tmp_path,
        steps(WALL_US, 100, marked=[20, 21]),
        sample(10),
        sample(30, utime_us=50_000_000),
        sample(80, utime_us=50_500_000),
    )
    assert step.process_cpu_ms == pytest.approx(10.0)


def test_counters_taken_after_the_last_step_are_left_out(tmp_path: Path) -> None:
    """As the job ends they hold an evaluation, or the operators that were timed after the last step."""
    recording = steps(WALL_US, 100)
    step = _measured(
        tmp_path,
        recording,
        sample(10, utime_us=10_000_000),
        sample(90, utime_us=10_800_000),
        sample(100, t=recording["t"] + 900_000_000, utime_us=19_800_000),
    )
    assert step.process_cpu_ms == pytest.approx(10.0)


def test_counters_leave_out_stretches_with_an_evaluation(tmp_path: Path) -> None:
    """Its CPU time and page faults are not those of the steps around it."""
    step = _measured(
        tmp_path,
        loader(),
        steps([910_000 if i == 50 else WALL_US for i in range(100)]),
        iterator(50),
        sample(10, utime_us=10_000_000),
        sample(40, utime_us=10_300_000),
        sample(60, utime_us=11_400_000),
        sample(90, utime_us=11_700_000),
    )
    assert step.process_cpu_ms == pytest.approx(10.0)


def test_counters_with_evaluations_everywhere_are_taken_over_the_span(tmp_path: Path) -> None:
    """Stretches that leave them out hold too few steps."""
    step = _measured(
        tmp_path,
        loader(),
        steps(WALL_US, 100),
        iterator(25),
        iterator(75),
        sample(10, utime_us=10_000_000),
        sample(50, utime_us=11_000_000),
        sample(90, utime_us=12_000_000),
    )
    assert step.process_cpu_ms == pytest.approx(25.0)


def test_without_two_samples_counters_are_missing_with_a_reason(tmp_path: Path) -> None:
    step = _measured(tmp_path, steps(WALL_US, 100), sample(50))
    for value in (step.process_cpu_ms, step.run_delay_ms):
        assert isinstance(value, Missing)
        assert value.reason


def test_without_scheduler_statistics_only_the_delay_is_missing(tmp_path: Path) -> None:
    step = _measured(tmp_path, steps(WALL_US, 100), sample(10, delay_us=None), sample(90, delay_us=None))
    assert isinstance(step.run_delay_ms, Missing)
    assert step.process_cpu_ms == 0.0


def test_counters_that_start_anew_with_another_thread_are_missing(tmp_path: Path) -> None:
    step = _measured(tmp_path, steps(WALL_US, 100), sample(10, delay_us=80_000), sample(90, delay_us=500))
    assert isinstance(step.run_delay_ms, Missing)


# ---------------------------------------------------------------------------------------------------------
# Samples


def test_samples_are_those_of_the_batches_in_the_steady_steps(tmp_path: Path) -> None:
    step = _measured(
        tmp_path,
        loader(),
        {"k": "batch", "loader": 1, "samples": 32},
        {"k": "batch", "loader": 1, "samples": 7},  # a ragged last one
        steps(WALL_US, 20, micro=2),
        batches([i for i in range(20) for _ in range(2)], 0),
    )
    assert step.samples == 64.0


def test_without_a_loader_the_samples_are_unknown(tmp_path: Path) -> None:
    assert isinstance(_measured(tmp_path, process(), steps(WALL_US, 20)).samples, Missing)


# ---------------------------------------------------------------------------------------------------------
# Phases of the job


def phase(step: int, number: int, judged: bool) -> dict[str, Any]:
    return {"k": "phase", "step": step, "number": number, "judged": judged}


def test_steps_of_other_phases_are_neither_steady_nor_warm_up(tmp_path: Path) -> None:
    walls = [*[40_000] * 30, *[10_000] * 50, *[20_000] * 20]
    told = [phase(0, 0, True), phase(30, 1, False), phase(30, 1, True), phase(80, 2, False)]
    recording = recorded(tmp_path, boundary("optimizer"), steps(walls), *told)
    selection = selected(recording)
    assert selection.column("step").tolist() == list(range(31, 80))
    assert steady.measure(recording, selection).step_ms == pytest.approx(10.0)


def test_of_phases_by_turns_all_stretches_of_the_judged_one_count(tmp_path: Path) -> None:
    walls = [*[10_000] * 20, *[30_000] * 20] * 2
    told = [phase(0, 0, True), phase(20, 1, False), phase(20, 1, True), phase(40, 0, False), phase(60, 1, True)]
    selection = selected(recorded(tmp_path, boundary("optimizer"), steps(walls), *told))
    assert selection.column("step").tolist() == [*range(21, 40), *range(60, 80)]


def test_lines_that_turned_out_to_be_branches_are_no_phases(tmp_path: Path) -> None:
    told = [phase(0, 0, True), phase(20, 1, True), phase(0, 0, True)]
    selection = selected(recorded(tmp_path, boundary("optimizer"), steps([10_000] * 60), *told))
    assert selection.column("step").tolist() == list(range(1, 60))


def test_a_window_of_another_phase_is_not_the_steps_own(tmp_path: Path) -> None:
    told = [phase(0, 0, True), sites_window(), phase(30, 1, False)]
    seen = recorded(tmp_path, boundary("optimizer"), steps([10_000] * 80), *told)
    assert seen.call_sites is not None
    longer = [*told, phase(30, 1, True)]
    assert recorded(tmp_path, boundary("optimizer"), steps([10_000] * 80), *longer).call_sites is None


# ---------------------------------------------------------------------------------------------------------
# Something else between two steps


@pytest.mark.parametrize(
    ("wall_ms", "parts", "left_out"),
    [
        (2_300, {}, True),
        (90, {}, False),
        (2_300, {"input_wait_us": 2_290_000}, False),
        (2_300, {"backward_us": 2_290_000}, False),
    ],
    ids=["far longer", "a little longer", "a wait for data", "a pass"],
)
def test_a_step_that_held_something_far_longer_is_no_steady_one(
    tmp_path: Path, wall_ms: int, parts: dict[str, int], left_out: bool
) -> None:
    """Windows for the next stage of a curriculum, cut in one step of 156: it was told as 2.3 s of steady steps."""
    walls = [*[6_000] * 150, 1_000 * wall_ms, *[6_000] * 50]
    columns = {name: [*[0] * 150, us, *[0] * 50] for name, us in parts.items()}
    recording = recorded(tmp_path, boundary("optimizer"), steps(walls, **columns))
    selection = selected(recording)
    assert (150 not in selection.column("step")) is left_out
    assert steady.measure(recording, selection).irregular == left_out
