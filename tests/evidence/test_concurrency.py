from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import WALL_US, recorded, selected, settings, site, steps

from perfdoctor.evidence import concurrency, steady
from perfdoctor.evidence.model import Concurrency, Missing, RequestTiming, Site

N = 101
COUNTED = settings()


def _seen(step: int = 60, **fields: Any) -> dict[str, Any]:
    """Half a second of four threads: 1,000 forwards of 2 ms."""
    record = {
        "threads": 4,
        "shared": 1,
        "us": 500_000,
        "calls": 1_000,
        "overlapped": 900,
        "others": 2_700,
        "busy_us": 2_000_000,
        "together": [100, 200_000, 60_000, 40_000],
        "alone": [10, 5_000, 4_500, 250],
        "least_cpu_us": 300,
        "site": 1,
    }
    return {"k": "concurrency", "step": step, **record, **fields}


def _round(one_ms: float, batch_ms: float, team_ms: float) -> dict[str, Any]:
    timings = {"one_ms": one_ms, "batch_ms": batch_ms, "threads": 2, "team_ms": team_ms, "single_ms": 0.05}
    return {"k": "batching", "step": 60, "copies": 4, "ops": 8, "timed": 6, **timings}


def _built(directory: Path, *records: dict[str, Any]) -> Concurrency | Missing:
    recording = recorded(directory, steps(WALL_US, N), site(1, 31), *records)
    return concurrency.build(recording, selected(recording))


def _present(directory: Path, *records: dict[str, Any]) -> Concurrency:
    built = _built(directory, COUNTED, *records)
    assert isinstance(built, Concurrency)
    return built


def test_a_job_that_ended_at_once_does_not_say(tmp_path: Path) -> None:
    assert isinstance(_built(tmp_path), Missing)


def test_a_hook_that_failed_counts_nothing(tmp_path: Path) -> None:
    built = _built(tmp_path, COUNTED, {"k": "fault", "hook": "concurrency", "error": "KeyError: 7"})
    assert isinstance(built, Missing)
    assert "KeyError: 7" in built.reason


def test_without_a_second_thread_there_is_one(tmp_path: Path) -> None:
    built = _present(tmp_path)
    assert (built.threads, built.overlapped_share, built.in_flight) == (1, 0.0, 1.0)
    assert built.forwards == selected(recorded(tmp_path, steps(WALL_US, N))).count


def test_shares_are_of_measured_forwards_and_counts_of_all(tmp_path: Path) -> None:
    built = _present(tmp_path, _seen(), _seen(90, calls=3_000, overlapped=2_700, others=8_100, busy_us=2_000_000))
    assert (built.threads, built.shared, built.forwards, built.measured) == (4, True, 4_000, 200)
    assert built.overlapped_share == pytest.approx(0.9)
    assert built.in_flight == pytest.approx(3.7)
    assert built.wall_ms == pytest.approx(1.0)
    assert built.occupied_share == pytest.approx(4.0)
    assert built.cpu_ms == pytest.approx(0.6)
    assert built.least_cpu_ms == pytest.approx(0.3)
    assert built.blocked_share == pytest.approx(0.5)
    assert built.delay_share == pytest.approx(0.2)
    assert built.blocked_alone_share == pytest.approx(0.05)
    assert built.site == Site("train.py", 31, "main")


def test_behind_a_lock_the_cpu_time_is_that_of_lone_forwards(tmp_path: Path) -> None:
    built = _present(tmp_path, _seen(overlapped=0, together=[0, 0, 0, 0], waiters=33))
    assert built.cpu_ms == pytest.approx(0.45)
    assert built.waiters == pytest.approx(3.3)
    assert built.measured == 0


def test_what_was_seen_before_the_steady_steps_does_not_count(tmp_path: Path) -> None:
    assert _present(tmp_path, _seen(1), _seen(60, threads=2)).threads == 2


def test_timings_are_the_least_cpu_time_and_the_middle_of_the_clock(tmp_path: Path) -> None:
    rounds = [_round(0.09, 0.2, 0.1), _round(0.08, 0.15, 0.4), _round(0.085, 0.17, 0.12)]
    timing = _present(tmp_path, _seen(), *rounds).timing
    assert timing == RequestTiming(4, 8, 6, 0.08, 0.15, 2, 0.12, 0.05, 3)
    assert isinstance(timing, RequestTiming)
    assert timing.of(1) == pytest.approx(0.08)
    assert timing.of(4) == pytest.approx(0.15)
    assert isinstance(_present(tmp_path, _seen()).timing, Missing)


@pytest.mark.parametrize(
    ("backwards", "eval_with_grad", "useless"), [(0, 501, True), (0, 499, False), (1, 1_000, False)]
)
def test_graphs_are_useless_when_most_forwards_make_one_and_nobody_goes_back(
    tmp_path: Path, backwards: int, eval_with_grad: int, useless: bool
) -> None:
    built = _present(
        tmp_path, _seen(backwards=backwards, eval_with_grad=eval_with_grad, eval_with_grad_us=2_000 * eval_with_grad)
    )
    assert built.graph_nobody_uses is useless
    assert built.eval_with_grad_share == pytest.approx(eval_with_grad / 1_000)


def test_a_step_that_waits_for_its_turn_now_and_then_is_its_mean(tmp_path: Path) -> None:
    walls = [1_000] * N
    walls[50] = walls[90] = 51_000
    alone = recorded(tmp_path, COUNTED, steps(walls, forward=0))
    assert _step_ms(alone) == pytest.approx(1.0)
    crowded = recorded(tmp_path, COUNTED, steps(walls, forward=0), _seen())
    assert _step_ms(crowded) == pytest.approx(2.0)


def _step_ms(recording: Any) -> float:
    return steady.measure(recording, selected(recording)).step_ms


def test_counters_of_a_thread_that_has_ended_do_not_go_backwards(tmp_path: Path) -> None:
    samples = [{"k": "sample", "t": 1, "step": step, "delay_us": delay} for step, delay in ((20, 900), (100, 30))]
    assert selected(recorded(tmp_path, steps(WALL_US, N), *samples)).per_step("delay_us") is None
