"""Stacks of a real job, sampled while it runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

import pytest
from observing import JOBS, Observed, Observer, line_of

from perfdoctor.evidence.model import Missing
from perfdoctor.injected._perfdoctor_probe.windows import sampler as sampling
from perfdoctor.injected._perfdoctor_probe.windows.sampler import Sampler
from perfdoctor.profiles.build import build
from perfdoctor.profiles.model import Profile
from perfdoctor.recording.model import Recording, RunFacts

pytestmark = pytest.mark.e2e

SAMPLED = {"PERFDOCTOR_SAMPLE": "1"}


def profiles(observed: Observed) -> tuple[Profile, ...]:
    found = build(Recording(RunFacts(cwd=str(JOBS)), observed.processes))
    assert not isinstance(found, Missing), found
    return found


def callers(profile: Profile, function: str, of: str) -> dict[str, int]:
    """Samples by the line of `of` that leads to `function`."""
    found: Counter[str] = Counter()
    for stack in profile.stacks:
        names = [frame.site.function for frame in stack.frames]
        if function in names and of in names:
            found[line_of(stack.frames[names.index(of)].site)] += stack.samples
    return found


@pytest.fixture
def sampled(observe: Observer) -> Observed:
    return observe("sampled.py", "8", windows="", env=SAMPLED)


def test_the_job_says_the_same_and_no_hook_fails(sampled: Observed) -> None:
    sampled.same()
    sampled.healthy()


def test_a_line_that_takes_three_times_as_long_has_three_times_the_samples(sampled: Observed) -> None:
    training, *_ = profiles(sampled)
    by_line = callers(training, "spin", "main")
    # A third of what it would be, if the lines were mistaken for one another.
    assert 1.5 < by_line["spin(60_000)  # long"] / by_line["spin(20_000)  # short"] < 6


def test_the_hottest_line_is_the_one_that_works(sampled: Observed) -> None:
    training, *_ = profiles(sampled)
    assert training.lines[0].site.function == "spin"
    assert training.lines[0].part == "other"


def test_lines_of_workers_are_apart_and_start_in_the_worker(sampled: Observed) -> None:
    workers = profiles(sampled)[1]
    assert (workers.name, workers.unit) == ("1 worker", "batch")
    # A sample waits until the worker lets go of the GIL, which it does in torch's call behind the loop, too.
    assert workers.lines[0].site.function in ("spin", "Data.__getitem__")
    assert {stack.frames[0].site.function for stack in workers.stacks if stack.frames} == {"_worker_loop"}
    assert "Data.__getitem__" in {frame.site.function for frame in workers.stacks[0].frames} or sys.version_info < (
        3,
        11,
    )


def test_a_thread_that_waits_is_no_profile(sampled: Observed) -> None:
    assert not any("idle one" in profile.name for profile in profiles(sampled))


@pytest.mark.slow
def test_workers_that_are_spawned_are_sampled_too(observe: Observer) -> None:
    observed = observe("sampled.py", "8", "spawn", windows="", env=SAMPLED)
    observed.same()
    workers = profiles(observed)[1]
    assert workers.lines[0].site.function in ("spin", "Data.__getitem__")


@pytest.mark.slow
def test_every_rank_has_a_profile(observe: Observer) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    observed = observe("", windows="", env=SAMPLED, command=[*command, "ddp.py"])
    assert {profile.name for profile in profiles(observed)} >= {"rank 0", "rank 1"}


# ---------------------------------------------------------------------------------------------------------


class _Loop:
    thread = 0


def test_the_jobs_switch_interval_stays_if_the_job_sets_one() -> None:
    before = sys.getswitchinterval()
    try:
        one = Sampler(None, None, _Loop(), None, None)
        one._hurry(True)
        assert sys.getswitchinterval() == pytest.approx(5e-6)
        sys.setswitchinterval(0.02)
        one._hurry(True)
        one.end()
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(before)


def test_the_jobs_switch_interval_is_back_at_the_end() -> None:
    before = sys.getswitchinterval()
    one = Sampler(None, None, _Loop(), None, None)
    one._hurry(True)
    one.end()
    assert sys.getswitchinterval() == before


def test_a_sampler_that_fails_tells_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sampling, "MEAN_NS", 1_000_000)
    one = Sampler(None, None, None, None, lambda hook, error: told.append(hook))
    one.start()
    deadline = time.monotonic() + 10
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told == ["sampler"]
    assert one.over
