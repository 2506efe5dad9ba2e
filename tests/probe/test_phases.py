"""Stretches of steps that end by other lines are phases; the longest one is judged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe import phases as module
from perfdoctor.injected._perfdoctor_probe.phases import Phases
from perfdoctor.recording.phases import Phase, judged_steps

STEP_NS = 120_000_000


class Sites:
    """The functions of this file are the user's, and a line is its own number."""

    def is_library(self, filename: str) -> bool:
        return filename != __file__

    def at(self, code: Any, line: int) -> int:
        return line


class Loop:
    kind = "optimizer"


class Job:
    """Takes steps, of which each fifth is looked at, as a probe would by its clock."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.begun: list[int] = []
        self.phases = Phases(self, Loop(), Sites(), None, self.begun.append)
        self.steps = 0

    def record(self, kind: str, **record: Any) -> None:
        assert kind == "phase"
        self.records.append(record)

    def step(self) -> None:
        self.steps += 1
        if self.steps % 5 == 0 or self.phases.attentive:
            self.phases.look(self.steps, self.steps * STEP_NS)

    @property
    def judged(self) -> tuple[tuple[int, int], ...]:
        """As whoever reads the records is told, up to the last step."""
        known = [Phase(one["step"], one["number"], one["judged"]) for one in self.records]
        return tuple((first, min(end, self.steps)) for first, end in judged_steps(known))


def train(job: Job, steps: int) -> None:
    for _ in range(steps):
        job.step()


def train_by_turns(job: Job, *turns: int) -> None:
    for number, steps in enumerate(turns):
        if number % 2:
            train(job, steps)
        else:
            train(job, steps)


def until_it_is_good(steps: int) -> Iterator[int]:
    """A loop that nothing says the length of."""
    number = 0
    while number < steps:
        yield number
        number += 1


def observed(script: Callable[[Job], None]) -> Job:
    """What becomes of a job that nobody's loop is around."""
    job = Job()
    thread = threading.Thread(target=script, args=(job,))
    thread.start()
    thread.join()
    return job


def test_a_job_of_one_loop_has_one_phase() -> None:
    job = observed(lambda job: train(job, 100))
    assert job.judged == ((0, 100),)
    assert not job.begun
    assert job.records[0]["steps"] == 100


def one_after_the_other(*lengths: int) -> Callable[[Job], None]:
    first, second = lengths

    def script(job: Job) -> None:
        train(job, first)
        train(job, second)

    return script


def test_what_comes_after_a_shorter_phase_is_judged_from_its_first_step_on() -> None:
    job = observed(one_after_the_other(60, 200))
    assert job.judged == ((60, 260),)
    assert len(job.begun) == 1 and 60 < job.begun[0] < 80, "its windows are opened early on"


def test_a_shorter_phase_that_follows_is_none_of_the_steps_that_are_judged() -> None:
    job = observed(one_after_the_other(200, 60))
    assert job.judged == ((0, 200),)
    assert not job.begun


def test_a_loop_of_no_known_length_is_judged_once_it_has_taken_longer() -> None:
    def script(job: Job) -> None:
        train(job, 60)
        for _ in until_it_is_good(100):
            job.step()

    job = observed(script)
    assert 60 <= job.judged[0][0] <= 64
    assert 115 <= job.begun[0] <= 130


def test_the_source_is_read_once_for_each_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it takes milliseconds, and a job is looked at twenty times a second."""
    asked: list[int] = []

    def nothing(sites: Sites, step: int, loading: None) -> None:
        asked.append(step)

    monkeypatch.setattr(module, "gone_round", nothing)
    job = observed(one_after_the_other(100, 90))
    assert [record["number"] for record in job.records] == [0, 1]
    assert len(asked) == 2


def test_of_phases_by_turns_the_steps_of_the_longer_one_are_judged() -> None:
    job = observed(lambda job: train_by_turns(job, 40, 60, 40, 60, 40))
    (first, end), (again, last) = job.judged
    assert 40 <= first <= 45 and 100 <= end <= 105 and 140 <= again <= 145 and 200 <= last <= 205
    assert len(job.begun) == 1, "the shorter one is not judged once more"


def test_lines_that_take_turns_from_step_to_step_are_branches_of_one_loop() -> None:
    def script(job: Job) -> None:
        for number in range(200):
            if number % 3:
                job.step()
            else:
                job.step()

    job = observed(script)
    assert job.judged == ((0, 200),)
    assert not job.begun


def test_what_is_over_within_a_second_is_no_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "STEP_NS", 10_000_000)
    job = observed(one_after_the_other(60, 90))
    assert job.judged == ((0, 150),)
    assert not job.records


def test_folds_are_trained_by_the_same_lines() -> None:
    def script(job: Job) -> None:
        for _ in range(4):
            train(job, 50)

    job = observed(script)
    assert job.judged == ((0, 200),)
    assert len(job.records) == 1
