"""What happened once remedies were tried is no evidence about the job."""

from __future__ import annotations

from pathlib import Path

import recordings
from recordings import MACHINE, Record

from perfdoctor.evidence import steady
from perfdoctor.evidence.build import build
from perfdoctor.evidence.model import Missing
from perfdoctor.evidence.steady import untouched
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.host import HostRecording
from perfdoctor.recording.reader import read

TRIAL_T = recordings.START_NS + 5_000_000_000
BEGAN: Record = {"k": "trials", "step": 60, "t": TRIAL_T}
BLOCK: Record = {
    "k": "block",
    "trial": 1,
    "block": 0,
    "remedy": None,
    "step": 62,
    "n": 2,
    "wall_us": [5, 6],
    "odd": [1],
}
RECORDS: tuple[Record, ...] = (
    recordings.torch(),
    recordings.settings(),
    recordings.boundary("optimizer"),
    recordings.loader(),
    recordings.iterator(0),
    recordings.iterator(70),
    recordings.ended_iterator(50, us=30_000),
    recordings.ended_iterator(80, us=30_000),
    recordings.steps([10_000] * 60 + [2_000] * 60),
    recordings.batches(range(120), 300),
    recordings.full_collection(30, 500),
    recordings.full_collection(90, 500),
    recordings.sample(10),
    recordings.sample(59),
    recordings.sample(110),
)


def test_the_steady_step_is_that_of_the_job_alone(tmp_path: Path) -> None:
    process = untouched(recordings.recorded(tmp_path, *RECORDS, BEGAN))
    step = steady.measure(process, recordings.selected(process))
    assert step.step_ms == 10.0 and step.count <= 60
    assert len(process.batches) == 60
    assert [sample.step for sample in process.samples] == [10, 59]
    assert [c.step for c in process.full_collections] == [30]
    assert [i.step for i in process.iterators] == [0]
    assert [i.step for i in process.iterators_ended] == [50]


def test_calls_forwards_and_graphs_of_the_trials_are_left_out_too(tmp_path: Path) -> None:
    late: list[Record] = []
    for step in (30, 90):
        late += [
            {"k": "call", "kind": "empty_cache", "site": 1, "count": 1, "us": 5, "step": step},
            {"k": "eval_with_grad", "site": 1, "count": 1, "us": 5, "step": step},
            {"k": "concurrency", "step": step},
        ]
    process = untouched(recordings.recorded(tmp_path, *RECORDS, *late, BEGAN))
    assert [record.step for record in process.calls] == [30]
    assert [record.step for record in process.eval_with_grad] == [30]
    assert [record.step for record in process.forwards_seen] == [30]


def test_a_recording_without_trials_stays_as_it_is(tmp_path: Path) -> None:
    process = recordings.recorded(tmp_path, *RECORDS)
    assert process.trials is None and process.blocks == () and untouched(process) is process


def test_blocks_are_read_as_they_were_written(tmp_path: Path) -> None:
    failed: Record = {"k": "block", "trial": 2, "block": 0, "remedy": "threads=1", "error": "already set"}
    applied: Record = {"k": "applied", "remedy": "gc.freeze", "step": 2, "error": ""}
    process = recordings.recorded(tmp_path, *RECORDS, BEGAN, BLOCK, failed, applied)
    first, second = process.blocks
    assert (first.wall_us, first.odd, first.work, first.error) == ((5, 6), (1,), 1.0, "")
    assert (second.trial, second.error, second.wall_us) == (2, "already set", ())
    assert process.applied[0].remedy == "gc.freeze"


def test_workers_that_a_remedy_started_are_not_the_jobs(tmp_path: Path) -> None:
    recordings.write_run(tmp_path)
    recordings.write(tmp_path, *RECORDS, BEGAN)
    for pid, t in ((200, recordings.START_NS + 1), (201, TRIAL_T + 1)):
        records = (recordings.process(pid, t=t), recordings.torch(), recordings.worker())
        recordings.write(tmp_path, *records, pid=pid, t=t)
    run = build(read(RunDirectory(tmp_path)), MACHINE, HostRecording((), (), ()))
    (evidence,) = run.ranks
    assert evidence.job.workers == 1
    assert not isinstance(evidence.step, Missing) and evidence.step.step_ms == 10.0


def test_batches_that_a_worker_made_meanwhile_are_left_out(tmp_path: Path) -> None:
    recordings.write_run(tmp_path)
    recordings.write(tmp_path, *RECORDS[:3], recordings.loader(num_workers=1), *RECORDS[4:], BEGAN)
    made = recordings.fetches([1_000] * 50 + [9_000] * 30, getitem_cpu_us=[0] * 80)
    samples = [recordings.worker_sample(50, t=TRIAL_T - 1), recordings.worker_sample(80, t=TRIAL_T + 1)]
    records = (recordings.process(200, ppid=recordings.PID), recordings.torch(), recordings.worker(), made, *samples)
    recordings.write(tmp_path, *records, pid=200)
    run = build(read(RunDirectory(tmp_path)), MACHINE, HostRecording((), (), ()))
    (evidence,) = run.ranks
    assert not isinstance(evidence.loaders, Missing)
    fetch = evidence.loaders[0].fetch
    assert not isinstance(fetch, Missing) and set(fetch.each_ms) == {1.0}
