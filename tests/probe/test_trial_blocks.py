"""Blocks of a trial: which steps count, what is written, and what a failure leaves behind."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe import records, remedies
from perfdoctor.injected._perfdoctor_probe.remedies.base import Remedy, UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.trial import Trials


class Probe:
    """As much of one as trials ask for."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.recorder = SimpleNamespace(record=self.record, flush=lambda: None)
        self.sent: list[dict[str, Any]] = []
        self.launcher = SimpleNamespace(control=SimpleNamespace(send=self.sent.append), sent_samples=0)
        self.loading = SimpleNamespace(started=0)
        self.calls = SimpleNamespace(files_saved=0)
        self.loop = SimpleNamespace(samples=0, on_pass=None)

    def record(self, kind: str, /, **fields: Any) -> None:
        self.lines.append(json.loads(records.encoded({"k": kind, **fields})))


class Lamp(Remedy):
    """Says when it is on."""

    settle = 3
    on = False
    fails = ""
    drained = 0

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

    def drain(self) -> None:
        if Lamp.fails == "drain":
            raise OSError("clogged")
        Lamp.drained += 1

    def lost(self) -> str:
        return "a fuse has blown" if Lamp.fails == "lost" else ""


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    monkeypatch.setattr(remedies, "make", lambda name, probe: Lamp(probe))
    Lamp.on, Lamp.fails, Lamp.drained = False, "", 0
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


def passes(trials: Trials, steps: range) -> list[int]:
    """How often it was drained by the end of each step, of two passes."""
    seen = []
    for step in steps:
        trials.at_boundary(step, 100)
        for _ in range(2):
            if trials.probe.loop.on_pass is not None:
                trials.probe.loop.on_pass()
        seen.append(Lamp.drained)
    return seen


def test_what_the_job_still_holds_is_taken_back_in_the_passes_of_the_next_steps(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lamp, "drains", 2)
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    assert passes(trials, range(13)) == [0] * 7 + [2, 4] + [4] * 4
    assert not trials.busy


def test_what_is_put_in_place_again_is_no_longer_drained(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lamp, "drains", 50)
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    passes(trials, range(9))
    assert (Lamp.on, Lamp.drained, trials.busy) == (False, 4, True)
    trials.ask(block(2, "lamp"))
    passes(trials, range(9, 12))
    assert (Lamp.on, Lamp.drained) == (True, 4)
    trials.abandon()
    assert probe.loop.on_pass is None


def test_a_remedy_that_cannot_be_drained_ends_all_trials(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lamp, "drains", 2)
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    Lamp.fails = "drain"
    passes(trials, range(10))
    trials.ask(block(1, "lamp"))
    assert "clogged" in probe.lines[-1]["error"]
    assert probe.loop.on_pass is None


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
            probe.launcher.sent_samples += probe.loop.samples
            probe.loop.samples = 0
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


def test_a_block_of_epochs_begins_and_ends_where_they_do(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, "lamp", epochs=2))
    trials.ask(block(1, None, epochs=1))
    for step in range(60):
        probe.loading.started += step % 5 == 0  # the step that ended now began an epoch
        trials.at_boundary(step, 1000 + step % 5)
    first, second = probe.lines
    assert (first["step"], first["n"], first["odd"], first["epochs"]) == (5, 10, [4, 9], 2)
    # The rest of the epoch in which the lamp went out is not counted.
    assert (second["step"], second["n"], second["odd"]) == (20, 5, [4])


def test_a_block_from_save_to_save_ends_with_one_and_begins_behind_one(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, "lamp", epochs=2, by_save=True))
    trials.ask(block(1, None, epochs=2, by_save=True))
    for step in range(60):
        probe.calls.files_saved += 2 * (step % 5 == 0)  # two files in the step that ended now
        probe.loading.started += step % 3 == 0
        trials.at_boundary(step, 1000 + 500 * (step % 5 == 0))
    first, second = probe.lines
    assert (first["step"], first["n"], first["odd"], first["epochs"]) == (5, 10, [4, 9], 2)
    assert (second["step"], second["n"], sum(second["wall_us"])) == (20, 10, sum(first["wall_us"]))


def test_whole_epochs_are_waited_for_even_where_nothing_need_settle(probe: Probe) -> None:
    trials = Trials(probe)
    for number in (0, 1):
        trials.ask(block(number, None, epochs=1))
    for step in range(2, 40):
        if step == 27:  # ordered later, in the middle of an epoch
            trials.ask(block(2, None, epochs=1))
        probe.loading.started += step % 5 == 0
        trials.at_boundary(step, 1000)
    # The second one follows at once: the first ended where an epoch began.
    assert [(line["step"], line["n"]) for line in probe.lines] == [(5, 5), (10, 5), (30, 5)]


def test_what_does_not_count_is_kept_apart(probe: Probe) -> None:
    trials = Trials(probe)
    trials.ask(block(0, "lamp"))
    run(trials, range(10, 20))
    (line,) = probe.lines
    assert line["settling_us"] == [111, 112, 113] and line["switch_us"] >= 0
    assert line["wall_us"] == [114, 115, 116, 117]


def test_a_quota_that_takes_time_is_noted(probe: Probe) -> None:
    trials = Trials(probe)
    taken = iter((500, 750))
    trials.throttling = SimpleNamespace(total_us=lambda: next(taken))
    trials.ask(block(0, None))
    run(trials, range(6))
    assert probe.lines[0]["throttled_us"] == 250


def test_a_remedy_that_works_does_so_in_each_step_it_is_in_place(probe: Probe) -> None:
    done: list[int] = []

    class Worker(Lamp):
        needs = ("optimizer",)

        def at_step(self) -> None:
            done.append(1)

    trials = Trials(probe)
    trials.remedies = [Worker(probe)]
    trials.work()
    trials.keep([], 2)
    assert len(done) == 1 and not trials.busy


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
