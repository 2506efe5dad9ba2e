"""From blocks to a gain: pairs, intervals, disturbed blocks, when to stop."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from perfdoctor.diagnosis.measured import Gain, Range, Trial, Verdict
from perfdoctor.recording.model import Block
from perfdoctor.trials.analyse import (
    block_ms,
    gain_of,
    measured,
    of_any_launch,
    pairs_of,
    precise_enough,
    start_s,
    undisturbed,
    verdict_of,
)
from perfdoctor.trials.blocks import LEAST_PAIRS


def block(number: int, remedy: str | None, ms: float = 20.0, **more: object) -> Block:
    return replace(Block(1, number, remedy, n=10, wall_us=(round(1000 * ms),) * 10, delay_us=0), **more)  # type: ignore[arg-type]


def blocks(pairs: int, ratio: float, noise: float = 0.01, seed: int = 0) -> list[Block]:
    """`pairs` pairs in which the remedy divides the step by `ratio`."""
    rng = np.random.default_rng(seed)
    found = []
    for pair in range(pairs):
        base = 20 * math.exp(rng.normal(0, 0.2))  # the machine drifts from pair to pair
        first = bool(rng.integers(2))
        for index, treated in enumerate((first, not first)):
            ms = base * math.exp(rng.normal(0, noise)) / (ratio if treated else 1)
            found.append(block(2 * pair + index, "lamp" if treated else None, ms))
    return found


def test_a_gain_is_found_with_an_interval_around_it() -> None:
    verdict, gain, _ = measured(blocks(10, 1.5))
    assert verdict is Verdict.HELPED and gain is not None
    assert gain.low < 1.5 < gain.high and gain.high / gain.low < 1.1
    assert (gain.pairs, gain.steps) == (10, 10)


def test_harm_is_found_too() -> None:
    verdict, gain, _ = measured(blocks(10, 0.8))
    assert verdict is Verdict.HURT and gain is not None and gain.high < 0.85


def test_a_remedy_that_does_nothing_shows_no_difference() -> None:
    verdict, gain, _ = measured(blocks(10, 1.0))
    assert verdict is Verdict.NO_DIFFERENCE and gain is not None and gain.low < 1 < gain.high


def test_nothing_is_claimed_to_help_about_once_in_two_hundred() -> None:
    verdicts = [measured(blocks(8, 1.0, 0.03, seed))[0] for seed in range(1000)]
    assert verdicts.count(Verdict.HELPED) <= 13  # 5 expected; 13 would be a 0.1 % accident


def test_the_interval_covers_the_truth() -> None:
    gains = [measured(blocks(7, 1.3, 0.03, seed))[1] for seed in range(500)]
    assert sum(gain is not None and gain.low <= 1.3 <= gain.high for gain in gains) >= 485


def test_stopping_on_precision_does_not_make_claims() -> None:
    def trial(seed: int) -> Verdict:
        everything = blocks(24, 1.0, 0.04, seed)
        for pairs in range(LEAST_PAIRS, 25, 2):
            verdict, gain, _ = measured(everything[: 2 * pairs])
            if gain is not None and precise_enough(gain, None):
                break
        return verdict

    assert [trial(seed) for seed in range(400)].count(Verdict.HELPED) <= 8


def test_too_few_pairs_say_nothing() -> None:
    verdict, gain, reason = measured(blocks(LEAST_PAIRS - 1, 3.0))
    assert (verdict, gain) == (Verdict.NOT_MEASURED, None) and "only 5" in reason


def test_what_was_measured_before_a_failure_counts_only_if_it_is_enough() -> None:
    failure = Block(1, 40, "lamp", error="no socket")
    assert measured([*blocks(10, 1.5), failure])[0] is Verdict.HELPED
    assert measured([*blocks(2, 1.5), failure]) == (Verdict.NOT_MEASURED, None, "no socket")
    assert measured([failure])[2] == "no socket"


def test_half_a_pair_does_not_count() -> None:
    assert len(pairs_of(blocks(3, 1.5)[:-1])) == 2


def test_a_disturbed_pair_is_left_out() -> None:
    everything = blocks(10, 1.5)
    everything[4] = replace(everything[4], delay_us=100_000, wall_us=(60_000,) * 10)
    verdict, gain, _ = measured(everything)
    assert verdict is Verdict.HELPED and gain is not None
    assert (gain.pairs, gain.dropped) == (9, 1) and gain.low < 1.5 < gain.high


def test_a_neighbour_that_is_always_there_disturbs_nothing() -> None:
    contended = [replace(b, delay_us=sum(b.wall_us) // 4) for b in blocks(8, 1.5)]
    assert len(undisturbed(pairs_of(contended))) == 8


def test_a_remedy_may_change_how_often_the_job_waits_for_a_cpu() -> None:
    waiting = [replace(b, delay_us=0 if b.remedy else sum(b.wall_us) // 3) for b in blocks(8, 1.5)]
    assert len(undisturbed(pairs_of(waiting))) == 8


def test_mostly_disturbed_is_not_measured() -> None:
    everything = [
        replace(b, delay_us=sum(b.wall_us) * (8 if (b.block // 2) % 9 < 4 else 0) // 10) for b in blocks(18, 1.5)
    ]
    kept = undisturbed(pairs_of(everything))
    assert len(kept) == 10 and measured(everything)[0] is Verdict.HELPED
    few = [replace(b, delay_us=sum(b.wall_us) * (8 if b.block // 2 < 3 else 0) // 10) for b in blocks(8, 1.5)]
    verdict, gain, reason = measured(few)
    assert (verdict, gain) == (Verdict.NOT_MEASURED, None) and "3 of 8" in reason


def test_pairs_that_are_left_over_are_no_fair_choice_when_most_were_disturbed() -> None:
    """Seven of twenty are left, which would be enough if they had not been chosen so."""
    everything = [
        replace(b, delay_us=sum(b.wall_us) // 2) if (pair := b.block // 2) < 13 and bool(b.remedy) == (pair < 7) else b
        for b in blocks(20, 1.5)
    ]
    assert len(undisturbed(pairs_of(everything))) == 7
    verdict, gain, reason = measured(everything)
    assert (verdict, gain) == (Verdict.NOT_MEASURED, None) and "13 of 20" in reason


def test_steps_that_begin_an_epoch_are_left_out_unless_they_are_the_rule() -> None:
    walls = (10_000,) * 9 + (90_000,)
    assert block_ms(Block(1, n=10, wall_us=walls, odd=(9,))) == pytest.approx(10)
    assert block_ms(Block(1, n=10, wall_us=walls, odd=(5, 7, 9))) == pytest.approx(18)


def test_larger_batches_are_judged_by_the_sample() -> None:
    everything = [replace(b, work=4.0) if b.remedy else b for b in blocks(8, 1 / 1.6)]
    _, gain, _ = measured(everything)
    assert gain is not None and gain.factor == pytest.approx(4 / 1.6, rel=0.03)


def test_the_interval_is_students() -> None:
    # t with 3 degrees of freedom at 99.5 % is 5.841 (any table).
    values = [0.1, 0.2, 0.3, 0.4]
    factor, low, high = gain_of(values)
    half = 5.841 * float(np.std(values, ddof=1)) / 2
    assert math.log(factor) == pytest.approx(0.25)
    assert math.log(high) - 0.25 == pytest.approx(half, rel=1e-3) and 0.25 - math.log(low) == pytest.approx(
        half, rel=1e-3
    )


def test_other_launches_widen_a_gain_by_its_own_size() -> None:
    # The normal distribution's 99.5 % is 2.576 (any table).
    sharp = of_any_launch(Gain(4.0, 4.0, 4.0, 8))
    assert math.log(sharp.high / 4) == pytest.approx(2.576 * 0.05 * math.log(4), rel=1e-3)
    assert math.log(4 / sharp.low) == pytest.approx(math.log(sharp.high / 4))
    wide = of_any_launch(Gain(1.2, 0.8, 1.8, 8))
    assert (wide.low, wide.high) == pytest.approx((0.8, 1.8), rel=0.01)


def test_nothing_does_nothing_in_every_launch() -> None:
    nothing = Gain(1.0, 0.97, 1 / 0.97, 8)
    assert of_any_launch(nothing) == nothing


def test_other_launches_leave_the_verdict_of_a_clear_gain() -> None:
    assert of_any_launch(Gain(1.06, 1.02, 1.1016, 8)).low > 1


@pytest.mark.parametrize(
    ("low", "high", "predicted", "enough"),
    [
        (0.98, 1.02, None, True),
        (0.95, 1.05, None, False),
        (1.60, 1.80, None, False),
        (1.60, 1.80, Range(1.5, 1.9), True),
        (0.95, 1.05, Range(1.0, 1.0), False),
        (3.0, 4.0, Range(5.0, 9.0), False),
    ],
)
def test_a_trial_stops_when_it_is_precise_enough(
    low: float, high: float, predicted: Range | None, enough: bool
) -> None:
    assert precise_enough(Gain(math.sqrt(low * high), low, high, 8), predicted) is enough


def test_where_the_interval_lies_does_not_decide_when_to_stop() -> None:
    for shift in (0.5, 1.0, 2.0):
        assert precise_enough(Gain(shift, 0.98 * shift, 1.02 * shift, 8), None)
        assert not precise_enough(Gain(shift, 0.9 * shift, 1.1 * shift, 8), None)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.01, 1.2, Verdict.HELPED), (0.8, 0.99, Verdict.HURT), (1.0, 1.2, Verdict.NO_DIFFERENCE)],
)
def test_verdicts_by_where_the_interval_lies(low: float, high: float, verdict: Verdict) -> None:
    assert verdict_of(Gain(1.0, low, high, 8)) is verdict


def test_a_block_of_whole_epochs_counts_how_they_begin() -> None:
    walls = (1000,) * 9 + (21000,)
    assert block_ms(block(0, None, wall_us=walls, odd=(9,))) == pytest.approx(1.0)
    assert block_ms(block(0, None, wall_us=walls, odd=(9,), epochs=1)) == pytest.approx(3.0)


def test_what_a_start_took_is_what_its_steps_took_beyond_the_usual() -> None:
    treated = block(1, "lamp", 20.0, settling_us=(3_000_000, 20_000, 20_000), switch_us=500_000)
    later = block(3, "lamp", 20.0, settling_us=(20_000,) * 3)
    assert start_s([block(0, None), treated, block(2, None), later]) == pytest.approx(3.48, abs=0.01)
    assert start_s([block(0, None)]) is None


def test_pairs_that_a_quota_disturbed_say_so() -> None:
    quiet, loud = blocks(4, 1.0), blocks(2, 1.0)
    taken = [replace(b, block=b.block + 8, throttled_us=90_000 * (b.block % 2), delay_us=1000) for b in loud]
    verdict, _, reason = measured(quiet + taken)
    assert verdict is Verdict.NOT_MEASURED
    assert reason.startswith("2 of 6 pairs of blocks were disturbed by the CPU quota of the job's control group")


def test_a_start_pays_after_as_many_steps_as_earn_it_back() -> None:
    gain = Gain(2.0, 1.9, 2.1, 6, step_ms=20.0)
    trial = Trial("compile.model", Verdict.HELPED, gain, start_s=3.0)
    assert trial.pays_after_steps == 300
    assert replace(trial, gain=replace(gain, factor=0.9)).pays_after_steps is None
    assert replace(trial, start_s=None).pays_after_steps is None
