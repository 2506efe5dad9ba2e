"""Blocks of a trial: which steps count, what is written, and what a failure leaves behind."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.remedies.base import Remedy, UnsuitableError
from perfdoctor.injected._perfdoctor_probe.trial import Trials


class Probe:
    """As much of one as trials ask for."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.recorder = SimpleNamespace(line=lambda text: self.lines.append(json.loads(text)), flush=lambda: None)
        self.sent: list[dict[str, Any]] = []
        self.control = SimpleNamespace(send=self.sent.append)
        self.loading = SimpleNamespace(started=0)
        self.loop = SimpleNamespace(samples=0)
        self.sent_samples = 0


class Lamp(Remedy):
    """Says when it is on."""

    settle = 3
    on = False
    fails = ""

    def apply(self) -> None:
        Lamp.on = True
        if Lamp.fails == "apply":
            raise UnsuitableError("no socket")
        if Lamp.fails == "crash":
            raise KeyError("fuse")

    def withdraw(self) -> None:
        if Lamp.fails == "withdraw":
            raise OSError("stuck")
        Lamp.on = False

    def lost(self) -> str:
        return "a fuse has blown" if Lamp.fails == "lost" else ""


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    monkeypatch.setattr(remedies, "make", lambda name, probe: Lamp(probe))
    Lamp.on, Lamp.fails = False, ""
    return Probe()


def block(number: int, remedy: str | None, steps: int = 4, **more: Any) -> dict[str, Any]:
    return {"do": "block", "trial": 1, "block": number, "remedy": remedy, "settle": 2, "steps": steps, **more}


def run(trials: Trials, steps: range, wall_us: int = 100) -> list[bool]:
    """Boundaries after these steps; whether the lamp was on in the step after each."""
    seen = []
    for step in steps:
        trials.at_boundary(step, wall_us + step)
        seen.append(Lamp.on)
    return seen


def test_settling_steps_are_dropped_and_the_others_counted(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, None))
    trials.ask(block(1, "lamp"))
    seen = run(trials, range(10, 25))
    first, second = probe.lines
    # Nothing was in place before, so there is nothing to settle; the lamp takes three steps.
    assert (first["step"], first["n"], first["wall_us"]) == (10, 4, [111, 112, 113, 114])
    assert (second["step"], second["n"], second["remedy"]) == (17, 4, "lamp")
    assert second["wall_us"] == [118, 119, 120, 121]
    assert seen == [False] * 4 + [True] * 7 + [False] * 4
    assert [message["block"] for message in probe.sent] == [0, 1]
    assert not trials.busy


def test_the_job_settles_after_a_remedy_as_long_as_the_remedy_did(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    trials.ask(block(1, None))
    run(trials, range(20))
    assert [line["step"] for line in probe.lines] == [3, 10]


def test_neighbours_with_the_same_remedy_do_not_settle_again(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    trials.ask(block(1, "lamp"))
    run(trials, range(20))
    assert [line["step"] for line in probe.lines] == [3, 7]


def test_a_block_waits_for_the_step_that_all_ranks_were_told(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, None, **{"from": 7}))
    run(trials, range(3, 15))
    assert probe.lines[0]["step"] == 7


def test_steps_that_begin_an_epoch_are_named(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, None))
    for step in range(5):
        probe.loading.started += step == 2
        trials.at_boundary(step, 100)
    assert probe.lines[0]["odd"] == [1]


def test_samples_are_counted_across_heartbeats(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, None))
    for step in range(5):
        trials.at_boundary(step, 100)
        probe.loop.samples += 8
        if step == 1:  # a heartbeat
            probe.sent_samples, probe.loop.samples = probe.sent_samples + probe.loop.samples, 0
    assert probe.lines[0]["samples"] == 32


@pytest.mark.parametrize(
    ("fails", "why"), [("apply", "no socket"), ("crash", "KeyError: 'fuse'"), ("lost", "a fuse has blown")]
)
def test_a_remedy_that_fails_ends_its_own_trial_only(fails: str, why: str, probe: Probe) -> None:
    Lamp.fails = fails
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    trials.ask(block(1, None))
    trials.ask({**block(0, None), "trial": 2})
    run(trials, range(20))
    assert (probe.lines[0]["trial"], probe.lines[0]["error"]) == (1, why)
    assert [(line["trial"], "error" in line) for line in probe.lines] == [(1, True), (2, False)]
    assert not Lamp.on and not trials.busy


def test_a_remedy_that_cannot_be_taken_back_ends_all_trials(probe: Probe) -> None:
    Lamp.fails = "withdraw"
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    trials.ask(block(1, None))
    run(trials, range(20))
    assert "could not be taken back" in probe.lines[-1]["error"]
    trials.ask({**block(0, None), "trial": 2})
    assert probe.lines[-1]["trial"] == 2 and "could not be taken back" in probe.lines[-1]["error"]
    assert not trials.queue


def test_dropped_blocks_leave_the_job_as_it_was(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    run(trials, range(5))
    assert Lamp.on
    trials.drop()
    run(trials, range(5, 6))
    assert not Lamp.on and not trials.busy and probe.lines == []


def test_remedies_kept_for_good_say_what_became_of_them(probe: Probe) -> None:
    trials = Trials(probe)
    trials.keep(["lamp"], 2)
    assert Lamp.on and probe.lines == [{"k": "applied", "remedy": "lamp", "step": 2, "error": ""}]
    Lamp.fails = "apply"
    trials.keep(["lamp"], 2)
    assert probe.lines[-1]["error"] == "no socket" and not Lamp.on
