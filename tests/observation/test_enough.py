"""When a running job was observed for long enough, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import START_NS, autocorrelated, no_window, recorded, sample, sites_window, steps, window

from perfdoctor.observation import enough
from perfdoctor.observation.enough import Enough, Goal
from perfdoctor.recording.model import ProcessRecording

NOTHING_ASKED = Goal(None, None, 300.0, False, ())
LOOK_S = 0.5

Job = Callable[..., ProcessRecording]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [0.0]
    monkeypatch.setattr(enough.time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def job(tmp_path: Path) -> Job:
    def made(walls_ms: Sequence[float] | np.ndarray[Any, Any], *records: dict[str, Any]) -> ProcessRecording:
        return recorded(tmp_path, steps([round(1000 * ms) for ms in walls_ms]), *records)

    return made


def observed(goal: Goal, process: ProcessRecording, now: list[float]) -> tuple[int, Enough]:
    """Steps that the job had taken when it was ended; all of them when it never was."""
    seen, ends = Enough(goal), process.steps["wall_us"].cumsum() / 1e6
    for look in np.arange(LOOK_S, ends[-1] + LOOK_S, LOOK_S):
        now[0] = float(look)
        count = int((ends <= look).sum())
        if count and seen.look(replace(process, steps=process.steps.where(slice(count)))):
            return count, seen
    return len(ends), seen


def quiet(n: int, ms: float) -> np.ndarray[Any, Any]:
    return ms * (1 + 0.01 * np.random.default_rng(0).normal(size=n))


def _uneven(n: int, ms: float) -> np.ndarray[Any, Any]:
    return ms * (1 + 0.5 * np.random.default_rng(0).normal(size=n).clip(-1.5, 1.5))


@pytest.mark.parametrize(
    ("planned", "seconds"), [(130, (9.5, 11.0)), (60, (4.0, 6.0)), (1000, (14.5, 16.0))], ids=["soon", "short", "later"]
)
def test_a_job_whose_loop_is_about_to_end_is_ended_a_little_before(
    job: Job, now: list[float], planned: int, seconds: tuple[float, float]
) -> None:
    """Steps of 100 ms that do not settle; what is timed after the last one needs the job alive."""
    plan = {"k": "planned", "step": 24, "steps": planned, "epoch": 0, "by": "loops"}
    count, _ = observed(NOTHING_ASKED, job(_uneven(planned, 100.0), plan), now)
    assert count < planned and seconds[0] <= now[0] <= seconds[1]


def test_without_a_known_end_such_a_job_ends_by_itself(job: Job, now: list[float]) -> None:
    count, _ = observed(NOTHING_ASKED, job(_uneven(130, 100.0)), now)
    assert count == 130


def phase(step: int, number: int = 0, steps: int = 0, later: int = -1, judged: bool = True) -> dict[str, Any]:
    return {"k": "phase", "step": step, "number": number, "judged": judged, "steps": steps, "later": later}


SITE = {"k": "site", "id": 3, "file": "train.py", "line": 40, "function": "main"}


@pytest.mark.parametrize(
    ("phases", "ended"),
    [
        ([], (30, 100)),
        ([phase(0, steps=120)], (30, 100)),
        ([phase(0, steps=120, later=3)], (300, 300)),
        ([phase(0, steps=5000, later=3)], (30, 100)),
    ],
    ids=["unknown", "the only one", "trains on soon", "trains on much later"],
)
def test_a_phase_that_is_over_soon_is_waited_for_where_the_job_trains_on(
    job: Job, now: list[float], phases: list[dict[str, Any]], ended: tuple[int, int]
) -> None:
    """Quiet steps of 50 ms: 12 s of them are done before 15 s have gone by after the end of the first loop."""
    count, _ = observed(NOTHING_ASKED, job(quiet(300, 50.0), SITE, *phases), now)
    assert ended[0] <= count <= ended[1]


def test_whoever_looks_on_is_told_that_another_phase_is_waited_for(job: Job, now: list[float]) -> None:
    seen, told = Enough(NOTHING_ASKED), job(quiet(110, 50.0), SITE, phase(0, steps=120, later=3))
    for now[0] in (5.0, 6.0, 7.0):
        assert not seen.look(told)
    assert seen.phase == "waiting for the next phase of the job"
    now[0] = 60.0
    assert seen.phase == "observing, 109 steady steps"


def test_no_other_phase_is_waited_for_without_an_end(job: Job, now: list[float]) -> None:
    count, _ = observed(NOTHING_ASKED, job(quiet(1500, 50.0), SITE, phase(0, steps=120, later=3)), now)
    assert count < 600 and 20.0 <= now[0] <= 30.0


@pytest.mark.parametrize(
    ("at", "ended"),
    [((), (60, 90)), ((40,), (80, 115)), ((40, 80), (120, 155)), ((40, 60), (80, 115)), ((40, 80, 120), (120, 155))],
    ids=["none", "one", "two", "others", "three"],
)
def test_what_takes_far_longer_is_waited_for_until_it_is_known_to_come_again(
    job: Job, now: list[float], at: tuple[int, ...], ended: tuple[int, int]
) -> None:
    """Evaluations of 1.5 s between quiet steps of 50 ms, of which nobody has told the distance; a second to settle."""
    walls = quiet(400, 50.0)
    walls[list(at)] = 1500.0
    count, _ = observed(NOTHING_ASKED, job(walls), now)
    assert ended[0] <= count <= ended[1]


def test_what_is_judged_then_is_observed_until_it_is_settled(job: Job, now: list[float]) -> None:
    told = [SITE, phase(0, steps=120, later=3), phase(120, 1, steps=900)]
    count, seen = observed(NOTHING_ASKED, job(quiet(1020, 50.0), *told), now)
    assert 150 <= count <= 250
    assert seen.steps <= count - 120


def test_a_job_that_was_asked_about_for_so_many_steps_is_not_ended_before(job: Job, now: list[float]) -> None:
    plan = {"k": "planned", "step": 24, "steps": 130, "epoch": 0, "by": "loops"}
    asked = replace(NOTHING_ASKED, steps=500)
    assert observed(asked, job(_uneven(130, 100.0), plan), now)[0] == 130


@pytest.mark.parametrize(("ms", "seconds"), [(2, 3), (20, 3), (150, 6)])
def test_a_settled_step_ends_the_observation_early(job: Job, now: list[float], ms: float, seconds: float) -> None:
    count, seen = observed(NOTHING_ASKED, job(quiet(6000, ms)), now)
    assert now[0] <= seconds + 0.5
    assert seen.steps >= 30 and seen.seconds >= 2 and seen.precision <= 0.03
    assert seen.done == 1 and count < 6000


def test_a_step_that_does_not_settle_gets_the_most(job: Job, now: list[float]) -> None:
    wild = 20 * np.random.default_rng(0).choice([0.2, 3.0], size=2000)
    _, seen = observed(NOTHING_ASKED, job(wild), now)
    assert enough.STEPS <= seen.steps < enough.STEPS + 50


@pytest.mark.parametrize(("ms", "steps", "seconds"), [(20, 200, 4), (150, 100, 15), (1000, 30, 30)])
def test_the_longer_the_steps_that_do_not_settle_the_fewer_are_waited_for(
    job: Job, now: list[float], ms: float, steps: int, seconds: float
) -> None:
    _, seen = observed(NOTHING_ASKED, job(ms * np.random.default_rng(2).choice([0.3, 1.7], size=800)), now)
    assert seen.precision > 0.03
    assert steps <= 1.2 * seen.steps <= 1.6 * steps and seconds <= 1.2 * seen.seconds <= 1.6 * seconds


def test_few_long_steps_are_ended_after_half_a_minute_or_with_the_windows_after_a_minute(
    job: Job, now: list[float]
) -> None:
    """Of five steps there is something to say."""
    _, seen = observed(NOTHING_ASKED, job(quiet(20, 8700)), now)
    assert seen.steps == 5
    _, seen = observed(replace(NOTHING_ASKED, windows=("sites",)), job(quiet(20, 8700)), now)
    assert seen.steps == 7 and seen.seconds >= enough.SECONDS


@pytest.mark.parametrize(
    ("asked", "steps", "seconds"),
    [
        ({"steps": 200}, 200, 4),
        ({"steps": 4000}, 4000, 80),
        ({"seconds": 20.0}, 1000, 20),
        ({"steps": 100, "seconds": 20.0}, 100, 2),
        ({"steps": 5000, "seconds": 20.0}, 1000, 20),
    ],
)
def test_what_was_asked_for_is_observed(
    job: Job, now: list[float], asked: dict[str, Any], steps: int, seconds: float
) -> None:
    _, seen = observed(replace(NOTHING_ASKED, **asked), job(quiet(6000, 20)), now)
    assert steps <= seen.steps < steps + 60 and seconds <= seen.seconds < seconds + 1


def test_windows_are_waited_for_and_so_is_what_they_cost(job: Job, now: list[float]) -> None:
    goal, walls = replace(NOTHING_ASKED, windows=("sites",)), quiet(1000, 20)
    missing, _ = observed(goal, job(walls), now)
    assert missing == 1000
    dear, seen = observed(goal, job(walls, sites_window(), sample(20, window_us=2_400_000)), now)
    assert dear < 1000 and seen.seconds >= 8


def test_a_window_that_another_one_asks_for_is_waited_for(job: Job, now: list[float]) -> None:
    goal, walls = replace(NOTHING_ASKED, windows=("repeats",)), quiet(1000, 20)
    seen = {"k": "window", "name": "repeats", "first_step": 20, "rows": [], "ops_ms": 9.0}
    plain, _ = observed(goal, job(walls, seen), now)
    asking = {**seen, "asks": ["subnormals"]}
    waiting, _ = observed(goal, job(walls, asking), now)
    answered, _ = observed(goal, job(walls, asking, no_window("subnormals", "the job uses torch.compile")), now)
    assert plain < 1000 and waiting == 1000 and answered < 1000


@pytest.mark.parametrize(("each", "least", "most"), [(0, 100, 160), (100, 500, 600), (1000, 199, 260)])
def test_what_is_compiled_again_now_and_then_is_watched_for_longer(
    job: Job, now: list[float], each: int, least: int, most: int
) -> None:
    """Every hundredth step is; or one, which may be the last."""
    walls = quiet(3000, 25.0)
    ends_ns = START_NS + (walls.cumsum() * 1e6).astype(int)
    again = [100 + number * each for number in range(20)] if each else []
    compiled = [
        {"k": "compiled", "t": int(ends_ns[step]) - 1000, "us": 800_000, "frame": "0", "reason": "self.progress == 0"}
        for step in again
        if step < len(walls)
    ]
    _, seen = observed(NOTHING_ASKED, job(walls, *compiled), now)
    assert least <= seen.steps <= most


def test_one_timing_of_other_numbers_of_threads_is_not_enough(job: Job, now: list[float]) -> None:
    def rounds(count: int) -> Sequence[dict[str, Any]]:
        return [{"k": "threads", "step": 20, "timings": [{"threads": 1, "milliseconds": 1.0}]}] * count

    _, one = observed(NOTHING_ASKED, job(quiet(1000, 20), *rounds(1)), now)
    _, three = observed(NOTHING_ASKED, job(quiet(1000, 20), *rounds(3)), now)
    assert one.steps >= enough.STEPS > three.steps


def test_jobs_ended_early_have_means_that_hold(job: Job, now: list[float]) -> None:
    """The error rate that the rule states, over noise of all sizes in which neighbours resemble each other."""
    rng = np.random.default_rng(1)
    off = []
    while len(off) < 200:
        size = rng.uniform(0.01, 0.2)
        walls = np.exp(size * autocorrelated(rng, 400) - size**2 / 2)
        count, seen = observed(NOTHING_ASKED, job(20 * walls), now)
        if seen.steps < enough.STEPS:
            off.append(abs(walls[:count].mean() - 1) > 0.05)
    assert np.mean(off) <= 0.02


@pytest.mark.parametrize(
    ("length", "looked_at", "waits"),
    [
        (100, (), True),
        (100, (window("epochs", starts=1, rows=[]),), True),
        (100, (window("epochs", starts=2, rows=[]),), False),
        (100, (no_window("epochs", "the job profiles its own functions"),), False),
        (1000, (), False),  # twenty seconds are too long
    ],
)
def test_where_epochs_begin_with_something_two_starts_are_waited_for(
    job: Job, now: list[float], length: int, looked_at: tuple[dict[str, Any], ...], waits: bool
) -> None:
    long = {"k": "long_steps", "step": 110, "at": 100, "length": length}
    observed(NOTHING_ASKED, job(quiet(6000, 20), long, *looked_at), now)
    assert (now[0] > 30) == waits


@pytest.mark.parametrize(("grown", "kept", "waits"), [(0.10, True, True), (0.10, False, False), (0.0, True, False)])
def test_where_more_and_more_is_kept_steps_that_may_grow_are_waited_for(
    job: Job, now: list[float], grown: float, kept: bool, waits: bool
) -> None:
    """It takes more steps to tell that they are a tenth longer than that they are about as long."""
    walls = quiet(4000, 80) * (1 + grown * np.minimum(1, np.arange(4000) / 100))
    hooks = {"registered_by": "register_forward_hook", "name": "teacher", "owners": 6, "hooks": 72, "per_step": 0.8}
    growth = {"k": "growth", "step": 45, "containers": [], "graphs": [], "hooks": [{**hooks, "site": -1, "uses": []}]}
    count, _ = observed(NOTHING_ASKED, job(walls, *[growth] * kept), now)
    assert (count > 90) == waits


@pytest.mark.parametrize(("grown", "known", "waits"), [(1.0, False, True), (1.0, True, False), (0.0, False, False)])
def test_steps_that_get_longer_for_no_known_reason_are_watched_for_longer(
    job: Job, now: list[float], grown: float, known: bool, waits: bool
) -> None:
    walls = quiet(4000, 20) * (1 + grown * np.arange(4000) / 400)
    growth = {"k": "growth", "step": 45, "containers": [], "graphs": [], "hooks": []}
    why = (growth, {"k": "window", "name": "later", "first_step": 60, "lines": [], "total_ms": 20.0})
    _, seen = observed(replace(NOTHING_ASKED, windows=("sites",)), job(walls, sites_window(), *why[: 2 * known]), now)
    assert (seen.steps > 2 * enough.STEPS) == waits
