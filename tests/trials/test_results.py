"""Trials judged again from what is on disk, and what they do to the advice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from diagnosis_samples import EXPLICIT_GC, WORKERS, two_findings

from perfdoctor.diagnosis.findings import Alternative, Severity
from perfdoctor.diagnosis.measured import Gain, Trial, Trials, Verdict
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import Recording
from perfdoctor.recording.reader import read
from perfdoctor.trials.results import results, with_trials

PID, T = 100, 1_000_000_000


def recording(directory: Path, trials: list[dict], *blocks: dict, **plan: object) -> Recording:
    """A run with a plan and one rank's blocks."""
    (directory / "run.json").write_text(json.dumps({"schema": "perfdoctor.run/2"}))
    (directory / "trials.json").write_text(json.dumps({"schema": "perfdoctor.trials/1", "trials": trials, **plan}))
    lines = [{"k": "process", "version": 2, "pid": PID, "ppid": 1, "t": T}, *blocks]
    (directory / f"process-{PID}-{T}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read(RunDirectory(directory))


def blocks(trial: int, remedy: str, us: int, treated_us: int, pairs: int = 8, **more: object) -> list[dict]:
    made = []
    for number in range(2 * pairs):
        wall = (us, treated_us)[number % 2] + 10 * (number // 2)
        name = (None, remedy)[number % 2]
        made.append(
            {"k": "block", "trial": trial, "block": number, "remedy": name, "n": 5, "wall_us": [wall] * 5, **more}
        )
    return made


def planned(trial: int, remedy: str, **more: object) -> dict:
    return {"trial": trial, "remedy": remedy, "findings": ["f" * 32], "predicted": [1.5, 2.5], **more}


def test_a_run_without_trials_has_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema": "perfdoctor.run/2"}))
    assert results(read(RunDirectory(tmp_path))) is None


def test_a_cut_plan_is_none(tmp_path: Path) -> None:
    made = recording(tmp_path, [planned(1, "gc.freeze")])
    assert results(made) is not None
    (tmp_path / "trials.json").write_text('{"trials": [')
    assert results(read(RunDirectory(tmp_path))) is None


def test_blocks_and_plan_make_a_trial(tmp_path: Path) -> None:
    found = results(
        recording(tmp_path, [planned(1, "memory.malloc")], *blocks(1, "memory.malloc", 20_000, 10_000), seconds=9.5)
    )
    assert found is not None and found.seconds == 9.5
    (trial,) = found.single
    assert trial.verdict is Verdict.HELPED and trial.gain is not None
    assert trial.gain.factor == pytest.approx(2.0, rel=0.01)
    assert (trial.language, trial.findings, trial.numerics) == ("bash", ("f" * 32,), False)
    assert "MALLOC_MMAP_THRESHOLD_" in trial.keep and "glibc" in trial.text


def test_what_was_not_tried_says_why(tmp_path: Path) -> None:
    found = results(recording(tmp_path, [planned(1, "threads=2", why_not="it needs about 300 s")]))
    assert found is not None
    assert (found.single[0].verdict, found.single[0].reason) == (Verdict.NOT_TRIED, "it needs about 300 s")
    assert found.single[0].keep == "torch.set_num_threads(2)"


def test_a_job_that_ended_meanwhile_keeps_what_was_measured(tmp_path: Path) -> None:
    first, second = blocks(1, "gc.freeze", 20_000, 15_000), blocks(2, "threads=1", 20_000, 15_000, pairs=2)
    found = results(recording(tmp_path, [planned(1, "gc.freeze"), planned(2, "threads=1")], *first, *second))
    assert found is not None
    assert [trial.verdict for trial in found.single] == [Verdict.HELPED, Verdict.NOT_MEASURED]
    assert "only 2 of at least 6" in found.single[1].reason


def test_everything_together_is_a_trial_of_its_own(tmp_path: Path) -> None:
    name = "memory.malloc+gc.freeze"
    plan = [planned(1, "memory.malloc"), planned(2, "gc.freeze"), planned(3, name, findings=[])]
    found = results(recording(tmp_path, plan, *blocks(3, name, 30_000, 10_000), together=3))
    assert found is not None and found.together is not None
    assert len(found.single) == 2 and found.together.verdict is Verdict.HELPED
    assert "MALLOC" in found.together.keep and "gc.freeze()" in found.together.keep


def test_launches_are_pairs_of_their_own(tmp_path: Path) -> None:
    launches = [[20.0, 10.0], [21.0, 10.4], [19.5, 9.9]]
    found = results(recording(tmp_path, [planned(1, "threads.passive", launches=launches)]))
    assert found is not None and found.single[0].gain is not None
    assert found.single[0].gain.steps == 0 and found.single[0].gain.factor == pytest.approx(2.0, rel=0.02)
    few = results(recording(tmp_path, [planned(1, "threads.passive", launches=launches[:2])]))
    assert few is not None and few.single[0].verdict is Verdict.NOT_MEASURED


def test_a_batch_with_other_samples_is_said_to_be(tmp_path: Path) -> None:
    made = blocks(1, "batch.larger=2", 10_000, 11_000)
    for block in made:
        block["work"] = 2.0 if block["remedy"] else 1.0
    found = results(recording(tmp_path, [planned(1, "batch.larger=2")], *made))
    assert found is not None and found.single[0].per_sample
    assert found.single[0].gain is not None and found.single[0].gain.factor == pytest.approx(20 / 11, rel=0.01)


# -- advice -----------------------------------------------------------------------------------------------


def trials(*gains: tuple[float, float, float] | None) -> Trials:
    made = []
    for number, gain in enumerate(gains):
        measured = Gain(*gain, pairs=8) if gain else None
        verdict = Verdict.NOT_MEASURED if measured is None else Verdict.HELPED if measured.low > 1 else Verdict.HURT
        made.append(Trial(f"threads={number}", verdict, measured, findings=(WORKERS.fingerprint,)))
    return Trials(tuple(made))


def after(*gains: tuple[float, float, float] | None):
    diagnosis = with_trials(two_findings(), trials(*gains))
    return next(f for f in diagnosis.ranked if f.id == WORKERS.id), diagnosis


def test_measured_harm_takes_the_advice_back() -> None:
    finding, diagnosis = after((0.8, 0.75, 0.85))
    assert finding.severity is Severity.NOTE and finding.fix.code == "" and finding.savings.high_ms == 0
    assert finding.fix.text.startswith("Leave it as it is")
    in_checks = [f for result in diagnosis.checks for f in result.outcome.findings if f.id == WORKERS.id]
    assert in_checks == [finding], "the list of checks says the same"


def test_a_fix_that_cannot_help_is_not_recommended() -> None:
    finding, _ = after((0.97, 0.94, 1.01))
    assert finding.fix.text.startswith("Not recommended here") and finding.severity is Severity.NOTE


@pytest.mark.parametrize("gain", [(0.8, 0.75, 0.85), (1.5, 1.4, 1.6)])
def test_what_another_way_measured_changes_nothing_about_the_fix(gain: tuple[float, float, float]) -> None:
    fix = replace(WORKERS.fix, alternatives=(Alternative("threads=0", 0.0, 1.0),))
    diagnosis = two_findings()
    with_other = replace(
        diagnosis,
        checks=tuple(
            result.changed(lambda f: replace(f, fix=fix) if f == WORKERS else f) for result in diagnosis.checks
        ),
    )
    tried = with_trials(with_other, trials(gain))
    assert next(f for f in tried.ranked if f.id == WORKERS.id) == replace(WORKERS, fix=fix)


@pytest.mark.parametrize(
    "gains",
    [((1.5, 1.4, 1.6),), ((1.0, 0.9, 1.2),), ((0.8, 0.7, 0.9), (1.5, 1.4, 1.6)), (None,), ((0.8, 0.7, 0.9), None)],
)
def test_advice_stays_where_it_may_still_be_good(gains: tuple) -> None:
    assert after(*gains)[0] == WORKERS


def test_other_findings_are_left_alone() -> None:
    _, diagnosis = after((0.8, 0.75, 0.85))
    assert [f for f in diagnosis.ranked if f.id == EXPLICIT_GC.id] == [EXPLICIT_GC]


def test_no_trials_no_change() -> None:
    diagnosis = two_findings()
    assert with_trials(diagnosis, None) is diagnosis


def test_what_was_measured_before_the_job_ended_counts_if_it_is_enough(tmp_path: Path) -> None:
    enough = recording(tmp_path, [planned(1, "gc.freeze", broke=True)], *blocks(1, "gc.freeze", 20_000, 10_000))
    found = results(enough)
    assert found is not None
    assert (found.single[0].verdict, found.single[0].reason) == (Verdict.HELPED, "")
    few = recording(tmp_path, [planned(1, "gc.freeze", broke=True)], *blocks(1, "gc.freeze", 20_000, 10_000, pairs=2))
    found = results(few)
    assert found is not None
    assert (found.single[0].verdict, found.single[0].reason) == (
        Verdict.NOT_MEASURED,
        "the job ended while it was tried",
    )
