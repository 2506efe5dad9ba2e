"""The conductor, on a job whose job answers at once: what is ordered, when it stops, what is written."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from diagnosis_samples import STEP, found_by, healthy
from predicted import finding
from samples import healthy as healthy_evidence
from samples import with_

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Finding
from perfdoctor.diagnosis.measured import Trial, Trials, Verdict
from perfdoctor.evidence.model import Checkpoints, Missing, Parts
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import Block
from perfdoctor.recording.reader import ProcessFile, read
from perfdoctor.trials import conductor
from perfdoctor.trials.blocks import LEAST_PAIRS, Size
from perfdoctor.trials.conductor import Conductor
from perfdoctor.trials.results import results

PID, T = 100, 1_000_000_000
STEP_US = 2000


class RunningJob:
    """A job that runs every block the moment it is ordered, and says how long its steps took."""

    out_of_reach = ""
    has_other_nodes = False

    def __init__(self, directory: Path, wall_us: Callable[[str], int | str], dies_at: int = 10**9) -> None:
        self.delays_us: list[int] = []
        """Of the first blocks; then there are none."""
        self.start_us = 0
        """What a block with a remedy takes before its steps count."""
        self.path = directory / f"process-{PID}-{T}.jsonl"
        self.wall_us = wall_us
        self.dies_at = dies_at
        self.orders: list[Mapping[str, Any]] = []
        self.said: list[Trial] = []
        (directory / "run.json").write_text(json.dumps({"schema": "perfdoctor.run/2"}))
        steps = {"k": "steps", "first": 0, "n": 100, "t": T, "wall_us": STEP_US, "micro": 1}
        self._write({"k": "process", "version": 2, "pid": PID, "ppid": 1, "t": T}, steps)

    def _write(self, *records: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records))

    def alive(self) -> bool:
        return len(self.orders) < self.dies_at

    def wait(self) -> bool:
        return self.alive()

    def timed(self, patience_s: float) -> bool:
        return self.alive()

    def say(self, phase: str, trial: Trial | None) -> None:
        if trial is not None:
            self.said.append(trial)

    def read(self) -> ProcessFile:
        file = ProcessFile(self.path)
        file.refresh()
        return file

    def blocks(self, trial: int) -> list[Block]:
        return [block for block in self.read().blocks() if block.trial == trial]

    def order(self, *commands: Mapping[str, Any]) -> None:
        for number, command in enumerate(commands):
            self.orders.append(command)
            if not self.alive():
                return
            wall = self.wall_us(command["remedy"] or "")
            named = {"k": "block", **{name: command[name] for name in ("trial", "block", "remedy")}}
            if isinstance(wall, str):
                self._write({**named, "error": wall})
                return
            walls = [wall + 3 * number] * command["steps"]
            delay_us = self.delays_us.pop(0) if self.delays_us else 0
            settling = [self.start_us] if command["remedy"] else []
            block = {"n": command["steps"], "wall_us": walls, "settling_us": settling, "delay_us": delay_us}
            self._write({**named, **block, "work": 1.0})


@pytest.fixture
def ill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Conductor]:
    """Makes a conductor of a job with these findings."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(*findings: Finding, seconds: float = 60.0, also: tuple[str, ...] = (), model: bool = False) -> Conductor:
        evidence = healthy().evidence
        # Where most of the step is the model's, compiling it is tried as well.
        parts = STEP.parts if model else Parts(other=STEP_US / 1000)
        evidence = replace(evidence, step=replace(STEP, step_ms=STEP_US / 1000, parts=parts))
        monkeypatch.setattr(
            conductor, "judge", lambda directory, config: Diagnosis(evidence, found_by(*findings), None)
        )
        return Conductor(RunDirectory(tmp_path), Config(), seconds, also)

    return make


def outcome(directory: Path) -> Trials:
    found = results(read(RunDirectory(directory)))
    assert found is not None
    return found


def test_a_remedy_is_tried_in_balanced_pairs_until_it_is_known(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 1000 if remedy else 2000)
    conducted = ill(finding("a", 0.9, 1.1, "gc.thresholds"))
    conducted.prove(job)
    conducted.close()
    (trial,) = outcome(tmp_path).single
    assert trial.verdict is Verdict.HELPED and trial.gain is not None and trial.gain.pairs == 6
    assert [bool(order["remedy"]) for order in job.orders].count(True) == 6
    assert [order["block"] for order in job.orders] == list(range(12))
    assert all(30 <= order["steps"] <= 33 for order in job.orders), "60 ms of steps of 2 ms, and some more by chance"
    assert job.said == [trial]


def test_what_helped_is_tried_together(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000 - 500 * (remedy.count("+") + bool(remedy)))
    ill(finding("a", 0.5, 0.5, "gc.thresholds", "memory.malloc")).prove(job)
    together = outcome(tmp_path).together
    assert together is not None and set(together.remedy.split("+")) == {"gc.thresholds", "memory.malloc"}
    assert together.gain is not None and together.gain.factor == pytest.approx(2.0, rel=0.01)


def test_a_remedy_that_fails_does_not_keep_the_next_from_being_tried(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: "no socket" if remedy == "memory.malloc" else 2000)
    ill(finding("a", 1, 1, "memory.malloc"), finding("b", 0.5, 0.5, "gc.thresholds")).prove(job)
    first, second = outcome(tmp_path).single
    assert (first.verdict, first.reason) == (Verdict.NOT_MEASURED, "no socket")
    assert second.verdict is Verdict.NO_DIFFERENCE


def test_a_job_that_ends_meanwhile_leaves_what_was_measured(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 1000 if remedy else 2000, dies_at=14)
    cut_short = "memory.malloc"
    conducted = ill(finding("a", 1, 1, "gc.thresholds"), finding("b", 0.5, 0.5, "memory.malloc", "threads=2"))
    assert conducted.prove(job) == cut_short
    conducted.close()
    done, cut, never = outcome(tmp_path).single
    assert done.verdict is Verdict.HELPED and never.verdict is Verdict.NOT_TRIED
    assert never.reason == "not reached within the time budget"
    assert (cut.verdict, cut.reason) == (Verdict.NOT_MEASURED, "the job ended while it was tried")


def test_without_time_nothing_is_begun(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    ill(finding("a", 1, 1, "gc.thresholds"), seconds=0.01).prove(job)
    assert job.orders == []
    (trial,) = outcome(tmp_path).single
    assert trial.verdict is Verdict.NOT_TRIED and "--trial-seconds" in trial.reason


def test_what_is_read_when_a_process_starts_waits_for_launches(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    ill(finding("a", 1, 1, "vector-extensions.all", "threads.passive")).prove(job)
    (first, second) = outcome(tmp_path).single
    assert "launches" in first.reason and "launches" in second.reason and job.orders == []


def test_a_job_of_several_nodes_is_not_launched_from_one(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    job.has_other_nodes = True
    conducted = ill(finding("a", 1, 1, "threads.passive"))
    conducted.prove(job)
    (trial,) = outcome(tmp_path).single
    assert trial.reason == "it needs launches of its own, and one node cannot launch a job of several"
    assert not conducted.for_launches and not job.orders


def test_ranks_that_no_order_reaches_are_left_alone_and_it_is_said_why(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    job.out_of_reach = "trials are made on another node"
    conducted = ill(finding("a", 1, 1, "gc.thresholds"))
    conducted.prove(job)
    conducted.close()
    assert outcome(tmp_path).problem == "trials are made on another node" and not job.orders


def test_a_compiled_model_is_an_opportunity_that_no_finding_need_name(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 1000 if remedy else 2000)
    job.start_us = 2_000_000
    ill(finding("a", 1, 1, "gc.thresholds"), model=True).prove(job)
    trials = outcome(tmp_path).single
    assert [trial.remedy for trial in trials] == ["gc.thresholds", "compile.model"]
    assert trials[1].verdict is Verdict.HELPED and trials[1].findings == ()
    # The step takes 1 ms less, and the first block took 2 s longer to begin.
    assert trials[1].start_s == pytest.approx(2.0, rel=0.05)
    assert trials[1].pays_after_steps == pytest.approx(2000, rel=0.1)
    assert job.said[-1] == trials[1]


def test_nobody_misses_an_opportunity_for_which_there_is_no_time(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    ill(seconds=20, model=True).prove(job)
    assert outcome(tmp_path).problem == "no finding names a fix that can be tried" and job.orders == []


def test_blocks_of_a_remedy_that_pays_by_the_epoch_are_whole_epochs(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 1000 if remedy else 2000)
    conducted = ill(finding("a", 1, 1, "etl.persistent-workers"))
    conducted.epoch = Size(40, 0.002, epochs=1)
    conducted.prove(job)
    assert {(order["epochs"], order["steps"]) for order in job.orders} == {(1, 40)}
    assert outcome(tmp_path).single[0].verdict is Verdict.HELPED


def test_without_epochs_what_pays_by_the_epoch_is_not_tried(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    conducted = ill(finding("a", 1, 1, "etl.persistent-workers"))
    conducted._estimate = lambda evidence, size: None
    conducted.prove(job)
    assert "no two epochs" in outcome(tmp_path).single[0].reason and job.orders == []


def test_blocks_of_a_remedy_that_pays_by_the_save_reach_from_one_to_another(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 1000 if remedy else 2000)
    conducted = ill(finding("a", 1, 1, "checkpoint.background"))
    saves = Checkpoints(saves=4, steps=40, every=10.0, save_ms=5.0, most_ms=5.0, is_steady=False)
    evidence = with_(healthy_evidence(), checkpoints=saves)
    conducted._estimate(evidence, Size(24, 0.002))
    assert conducted.saves == Size(30, pytest.approx(0.0025), epochs=3, by_save=True)
    conducted._estimate = lambda evidence, size: None
    conducted.prove(job)
    assert {(order["epochs"], order["by_save"]) for order in job.orders} == {(3, True)}
    assert outcome(tmp_path).single[0].verdict is Verdict.HELPED


def test_without_two_saves_what_pays_by_the_save_is_not_tried(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    conducted = ill(finding("a", 1, 1, "checkpoint.background"))
    conducted._estimate(with_(healthy_evidence(), checkpoints=Missing("it was not seen")), Size(24, 0.002))
    conducted.prove(job)
    assert "no two saves" in outcome(tmp_path).single[0].reason and job.orders == []


def test_a_library_that_is_not_there_is_left_out_unless_it_is_asked_for(
    ill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "found_library", lambda libraries: "")
    conducted = ill(finding("a", 1, 1, "gc.thresholds", "memory.jemalloc"), also=("memory.tcmalloc",))
    conducted.prove(RunningJob(tmp_path, lambda remedy: 2000))
    conducted.launch_s = 0.001
    conducted.launch(Launcher(lambda changes: 10.0), lambda phase, trial: None)
    reasons = {trial.remedy: trial.reason for trial in outcome(tmp_path).single}
    assert reasons == {"gc.thresholds": "", "memory.tcmalloc": "this machine has no libtcmalloc_minimal"}


def test_seconds_are_kept_for_launches_that_fit(ill: Any, tmp_path: Path) -> None:
    conducted = ill(seconds=100)
    conducted.launch_s = 5.0
    assert conducted._for_launches(1) == 30.0 and conducted._for_launches(0) == 0.0
    assert conducted._for_launches(3) == 0.0, "more than half of the time"


def test_disturbed_pairs_are_made_up_for(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    job.delays_us = [900_000, 0, 0, 900_000]
    ill(also=("nothing",)).prove(job)
    (trial,) = outcome(tmp_path).single
    assert trial.gain is not None and (trial.gain.pairs, trial.gain.dropped) == (6, 2)
    assert len(job.orders) == 2 * 8


def test_a_healthy_job_has_nothing_to_try_but_what_is_asked_for(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 2000)
    ill().prove(job)
    assert outcome(tmp_path).problem == "no finding names a fix that can be tried"
    ill(also=("nothing",)).prove(job)
    (trial,) = outcome(tmp_path).single
    assert trial.verdict is Verdict.NO_DIFFERENCE and trial.predicted is None


def test_a_job_that_ended_too_early_says_so(ill: Any, tmp_path: Path) -> None:
    conducted = ill(finding("a", 1, 1, "gc.thresholds"))
    conducted.close()
    RunningJob(tmp_path, lambda remedy: 2000)
    assert "before enough of it was seen" in outcome(tmp_path).problem


def test_predictions_and_trials_are_remembered(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: 1000 if remedy else 2000)
    conducted = ill(finding("a", 0.9, 1.1, "gc.thresholds"))
    conducted.prove(job)
    conducted.close()
    (line,) = (tmp_path / "state/perfdoctor/predictions.jsonl").read_text().splitlines()
    assert json.loads(line)["remedy"] == "gc.thresholds" and json.loads(line)["measured"] == pytest.approx(2, rel=0.01)


# -- launches ---------------------------------------------------------------------------------------------


class Launcher:
    """Takes no time."""

    def __init__(self, step_ms: Callable[[Mapping[str, str]], float | None]) -> None:
        self.step_ms = step_ms


def test_launches_take_turns_and_their_pairs_are_kept(ill: Any, tmp_path: Path) -> None:
    conducted = ill(finding("a", 1, 1, "threads.passive"))
    conducted.prove(RunningJob(tmp_path, lambda remedy: 2000))
    conducted.launch_s = 0.001
    said: list[Trial | None] = []
    conducted.launch(Launcher(lambda changes: 10.0 if changes else 20.0), lambda phase, trial: said.append(trial))
    (trial,) = outcome(tmp_path).single
    assert trial.gain is not None and trial.gain.factor == pytest.approx(2.0) and trial.gain.pairs == 6
    assert said[-1] is not None and said[-1].verdict is Verdict.HELPED


def test_launches_that_do_not_fit_say_what_they_would_take(ill: Any, tmp_path: Path) -> None:
    conducted = ill(finding("a", 1, 1, "threads.passive"), seconds=30)
    conducted.prove(RunningJob(tmp_path, lambda remedy: 2000))
    conducted.launch_s = 20.0
    conducted.launch(Launcher(lambda changes: 10.0), lambda phase, trial: None)
    assert outcome(tmp_path).single[0].reason == "it needs about 120 s of launches (--trial-seconds)"


def test_a_launch_without_steps_ends_that_trial(ill: Any, tmp_path: Path) -> None:
    conducted = ill(finding("a", 1, 1, "threads.passive"))
    conducted.prove(RunningJob(tmp_path, lambda remedy: 2000))
    conducted.launch_s = 0.001
    conducted.launch(Launcher(lambda changes: None if changes else 20.0), lambda phase, trial: None)
    assert outcome(tmp_path).single[0].verdict is Verdict.NOT_MEASURED


# -- time -------------------------------------------------------------------------------------------------


class Slow(RunningJob):
    """Its blocks take the time that they say."""

    def __init__(self, directory: Path, wall_us: Callable[[str], int | str], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(directory, wall_us)
        self.clock_s = 0.0
        self.pauses_s: Mapping[int, float] = {}
        """After so many blocks."""
        monkeypatch.setattr(conductor, "time", SimpleNamespace(monotonic=lambda: self.clock_s))

    def order(self, *commands: Mapping[str, Any]) -> None:
        super().order(*commands)
        self.clock_s += sum(command["steps"] * STEP_US / 1e6 for command in commands)
        self.clock_s += self.pauses_s.get(len(self.orders), 0.0)


def test_blocks_get_shorter_until_a_trial_fits_into_its_share() -> None:
    size = Size(steps=200, step_s=0.005)
    assert size.within(60).steps == 200
    shorter = size.within(5)
    assert 12 <= shorter.steps < 200 and shorter.least_s <= 5
    assert size.within(0.1).steps == 12, "never below 60 ms"
    assert Size(steps=10, step_s=2.0).within(1).steps == 4


def test_what_was_disturbed_goes_on_with_the_seconds_that_others_left(
    ill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Slow(tmp_path, lambda remedy: 1000 if remedy else 2000, monkeypatch)
    job.pauses_s = {2 * LEAST_PAIRS: 8.0}  # the first trial comes to the end of its share
    # Every third pair of the first trial: however the draw falls, few enough of each kind that it stays unusual.
    job.delays_us = [0, 0, 60_000, 0, 0, 0] * (LEAST_PAIRS // 3)
    conducted = ill(finding("a", 0.9, 1.1, "gc.thresholds"), finding("b", 0.9, 1.1, "gc.freeze"), seconds=20.0)
    conducted.prove(job)
    conducted.close()
    first, second = outcome(tmp_path).single
    tried = [order["trial"] for order in job.orders]
    assert tried == sorted(tried[: 4 * LEAST_PAIRS]) + tried[4 * LEAST_PAIRS :] and tried.index(2) < len(tried) - 1
    assert tried[4 * LEAST_PAIRS] == 1, "after the others"
    assert first.gain is not None and (first.gain.pairs, first.gain.dropped) == (6, 2) and second.gain is not None
    blocks = [order["block"] for order in job.orders if order["trial"] == 1]
    assert blocks == list(range(len(blocks))), "one number for each"
    assert [trial.remedy for trial in job.said[:2]] == ["gc.freeze", "gc.thresholds"], "told once it is known"


def test_seconds_are_kept_for_what_helped_together(ill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial needs 0.81 s at least, and steps that scatter so much are not known by then. 1.65 s are left when the
    first one, slower than was thought, is done: the second could go on, and leaves the third what it needs."""
    usual = itertools.cycle([1800, 2400])
    monkeypatch.setattr(random.Random, "randint", lambda self, low, high: low)  # blocks of one length
    job = Slow(tmp_path, lambda remedy: 1000 if remedy else next(usual), monkeypatch)
    job.pauses_s = {2 * LEAST_PAIRS: 1.63}
    ill(finding("a", 0.9, 1.1, "gc.thresholds"), finding("b", 0.9, 1.1, "gc.freeze"), seconds=4.0).prove(job)
    tried = [order["trial"] for order in job.orders]
    assert [tried.count(trial) for trial in (1, 2, 3)] == [2 * LEAST_PAIRS] * 3
    together = outcome(tmp_path).together
    assert together is not None and together.gain is not None


def test_nothing_is_kept_for_what_does_not_fit_beside_the_single_trials(
    ill: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Slow(tmp_path, lambda remedy: 1000 if remedy else 2000, monkeypatch)
    ill(finding("a", 0.9, 1.1, "gc.thresholds"), finding("b", 0.9, 1.1, "gc.freeze"), seconds=1.6).prove(job)
    assert [order["trial"] for order in job.orders] == [1] * 2 * LEAST_PAIRS + [2] * 2 * LEAST_PAIRS


def test_a_remedy_that_failed_is_not_tried_again(ill: Any, tmp_path: Path) -> None:
    job = RunningJob(tmp_path, lambda remedy: "RuntimeError: no" if remedy else 2000)
    conducted = ill(finding("a", 0.9, 1.1, "gc.thresholds"))
    conducted.prove(job)
    conducted.close()
    (trial,) = outcome(tmp_path).single
    assert (trial.verdict, trial.reason) == (Verdict.NOT_MEASURED, "RuntimeError: no")
    assert len(job.orders) <= 2
