"""Events at the borders of a step's parts, with a fake device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from device_fake import FakeDevice, Job

from perfdoctor.evidence import device, steady
from perfdoctor.evidence.model import DeviceTimeline, Missing
from perfdoctor.injected._perfdoctor_probe import records
from perfdoctor.injected._perfdoctor_probe.hooks import device_clock

LATENCY_US = FakeDevice.LATENCY_NS / 1000


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    job = Job(monkeypatch)
    job.step()
    job.clock.run(job.device)
    return job


def _run(job: Job, steps: int, **parts: object) -> None:
    for _ in range(steps):
        job.step(**parts)  # type: ignore[arg-type]


def test_one_step_in_seven_is_marked_with_the_columns_of_the_format(job: Job) -> None:
    _run(job, 60)
    rows = job.device_rows()
    assert [row["step"] for row in rows] == [7, 14, 21, 28, 35, 42, 49, 56]
    assert tuple(rows[0]) == records.DEVICE_COLUMNS
    assert job.left_out() == {} and job.faults == []


def test_on_a_device_that_waits_for_the_host_its_borders_follow_those_of_the_host(job: Job) -> None:
    _run(job, 30, wait=4.0, forward=(6.0, 1.0), backward=(8.0, 2.0), optimizer=(2.0, 0.5))
    for row in job.device_rows():
        assert row["total_us"] == pytest.approx(20_000, abs=200)
        assert row["host_us"] == 20_050
        assert row["input_wait_us"] == pytest.approx(4_000, abs=200)
        assert row["forward_us"] == pytest.approx(6_000, abs=300)
        assert row["backward_us"] == pytest.approx(8_000, abs=300)
        # The host was ahead by no more than the last kernels and their launch; known to within the shortest part.
        assert row["ahead_low_us"] <= 500
        assert 500 <= row["ahead_high_us"] <= 2_500
        # It cannot be told how much of each part was work, so nearly all of it may have been idle.
        assert row["idle_most_us"] > 19_000


def test_on_a_device_that_is_behind_the_parts_are_its_own_and_it_is_never_idle(job: Job) -> None:
    _run(job, 12, wait=1.0, forward=(1.0, 10.0), backward=(1.0, 20.0), optimizer=(1.0, 5.0))
    job.device.synchronise()
    _run(job, 1)
    rows = job.device_rows()
    assert [row["step"] for row in rows] == [7]
    (row,) = rows
    assert row["forward_us"] == pytest.approx(10_000, abs=10)
    assert row["backward_us"] == pytest.approx(20_000, abs=10)
    assert row["optimizer_us"] == pytest.approx(5_000, abs=10)
    assert row["input_wait_us"] == 0
    assert row["idle_most_us"] == 0
    # Six steps of 35 ms were asked for in 4 ms each: by the end of the seventh the host is 217 ms ahead and more.
    truly = 7 * 35_000 - 7 * 4_050
    assert row["ahead_low_us"] <= truly + 100
    assert row["ahead_high_us"] >= truly


def test_a_wait_is_felt_only_once_the_device_has_run_dry(job: Job) -> None:
    # 12 ms of work were asked for by 6 ms; the host's wait of 8 ms outlasts the other 6 by two.
    _run(job, 40, wait=8.0, forward=(2.0, 4.0), backward=(2.0, 4.0), optimizer=(2.0, 4.0))
    for row in job.device_rows():
        assert row["input_wait_us"] == pytest.approx(2_000, abs=700)
        assert row["idle_most_us"] <= 5_000
        assert row["ahead_low_us"] <= 6_700 <= row["ahead_high_us"] + 700


def test_the_bounds_hold_whatever_host_and_device_do(job: Job) -> None:
    for read in (False, True):
        for host_ms, device_ms in ((1.0, 1.0), (3.0, 1.0), (1.0, 3.0), (0.2, 2.0)):
            _run(job, 20, wait=0.5, forward=(host_ms, device_ms), backward=(host_ms, 2 * device_ms), read=read)
            job.device.synchronise()
    rows = job.device_rows()
    assert len(rows) > 10
    for row in rows:
        parts = sum(row[f"{part}_us"] for part in ("input_wait", "forward", "backward", "optimizer"))
        assert parts <= row["total_us"] + 4
        assert 0 <= row["idle_most_us"] <= row["total_us"]
        assert 0 <= row["ahead_low_us"] <= row["ahead_high_us"]


def test_the_loss_belongs_to_the_forward_pass_as_on_the_host(job: Job) -> None:
    _run(job, 20, forward=(5.0, 1.0), loss=(3.0, 1.0))
    for row in job.device_rows():
        assert row["forward_us"] == pytest.approx(8_000, abs=300)


def test_every_micro_batch_counts(job: Job) -> None:
    _run(job, 20, wait=1.0, forward=(2.0, 0.01), backward=(1.0, 0.01), micro=4)
    for row in job.device_rows():
        assert row["input_wait_us"] == pytest.approx(4_000, abs=300)
        assert row["forward_us"] == pytest.approx(8_000, abs=300)


def test_the_hosts_own_parts_are_what_they_are_without_marks(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"wait": 1.0, "forward": (2.0, 1.0), "loss": (1.0, 1.0), "backward": (3.0, 1.0), "optimizer": (1.0, 1.0)}
    _run(job, 20, **parts)
    marked = job.loop.timeline.taken_rows()[1:]
    other = Job(monkeypatch)
    _run(other, 21, **parts)
    assert marked == other.loop.timeline.taken_rows()[1:]


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ({"wait": 2.0, "forward": (6.0, 1.0), "backward": (8.0, 2.0)}, "host"),
        ({"wait": 20.0, "forward": (1.0, 1.0), "backward": (1.0, 2.0)}, "host"),
        ({"wait": 2.0, "forward": (1.0, 6.0), "backward": (1.0, 12.0)}, "device"),
        ({"wait": 12.0, "forward": (1.0, 6.0), "backward": (1.0, 12.0)}, "device"),
        # A read in the forward pass, and then the device is behind: nobody is always the one who waits.
        ({"wait": 0.1, "forward": (4.0, 6.0), "backward": (2.0, 12.0), "read": True}, "both"),
    ],
    ids=["slow Python", "slow loader", "large model", "large model with a slow loader", "read every step"],
)
def test_host_and_device_are_told_apart(job: Job, tmp_path: Path, parts: dict[str, object], bound: str) -> None:
    for _ in range(80):
        job.step(**parts)  # type: ignore[arg-type]
        job.device.host_ns = max(job.device.host_ns, job.device.free_ns - 40_000_000)  # the queue is finite
    recording = job.recording(tmp_path)
    selection = steady.select(recording)
    assert not isinstance(selection, Missing)
    step = steady.measure(recording, selection)
    seen = device.timeline(recording, selection, step)
    assert isinstance(seen, DeviceTimeline)
    assert seen.bound == bound, seen
    assert seen.total_ms == pytest.approx(step.step_ms, rel=0.05)


def test_events_are_reused(job: Job) -> None:
    _run(job, 100)
    made = len(job.device.made)
    _run(job, 500)
    assert len(job.device.made) == made <= 4 * 10
    assert max(event.recorded for event in job.device.made) > 10


def test_a_device_far_behind_has_at_most_four_steps_outstanding(job: Job) -> None:
    _run(job, 45, forward=(0.1, 100.0))
    assert len(job.clock.waiting) == device_clock.OUTSTANDING
    borders = len(job.device.made)
    _run(job, 4, forward=(0.1, 100.0))
    assert len(job.device.made) == borders
    assert job.device_rows() == []


def test_a_step_that_the_device_does_not_reach_is_left_out_and_in_the_end_none_is_marked(job: Job) -> None:
    _run(job, 400, forward=(0.1, 100.0))
    assert job.left_out() == {"the device was too far behind": device_clock.HOPELESS}
    assert job.loop.device_boundary is None
    queries = job.device.queries
    _run(job, 20)
    assert job.device.queries == queries


def test_nothing_is_asked_of_an_event_while_a_graph_is_captured(job: Job) -> None:
    _run(job, 6)
    job.device.is_capturing = True
    queries, recorded = job.device.queries, sum(event.recorded for event in job.device.made)
    _run(job, 7)
    assert (job.device.queries, sum(event.recorded for event in job.device.made)) == (queries, recorded)
    job.device.is_capturing = False
    _run(job, 9)
    assert job.left_out() == {"a graph was captured": 1}
    assert [row["step"] for row in job.device_rows()] == [21]


def test_a_step_on_another_stream_is_left_out(job: Job) -> None:
    _run(job, 6)
    job.device.is_elsewhere = True
    _run(job, 20)
    assert job.left_out() == {"the loop used another stream": 1}
    assert job.loop.timeline.marks is None
    job.device.is_elsewhere = False
    _run(job, 12)
    assert [row["step"] for row in job.device_rows()] == [28, 35]


def test_a_step_of_too_many_parts_is_left_out(job: Job) -> None:
    _run(job, 15, micro=50)
    assert job.left_out() == {"it has too many parts": 2}
    assert job.device_rows() == []


def test_a_failure_switches_off_the_device_clock_and_nothing_else(job: Job) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("CUDA error")

    _run(job, 10)
    job.device.record = broken  # type: ignore[method-assign]
    _run(job, 20)
    assert job.faults == [("device clock", "CUDA error")]
    assert job.loop.timeline.step == 31
    assert len(job.loop.timeline.taken_rows()) == 31


def test_a_forked_child_marks_nothing(job: Job) -> None:
    _run(job, 8)
    job.loop.reset()
    job.clock.reset()
    queries = job.device.queries
    _run(job, 20)
    assert job.device.queries == queries
    assert job.device_rows() == []


@pytest.mark.parametrize(
    ("devices", "home", "why"),
    [
        (["cuda:1"], "cuda:1", ""),
        (["cpu", "cuda:0"], "cuda:0", ""),
        (["cpu"], "", "the model does not lie on a CUDA device"),
        (["cuda:0", "cuda:1"], "", "the model lies on several devices"),
    ],
)
def test_the_device_is_the_one_that_the_model_lies_on(devices: list[str], home: str, why: str) -> None:
    assert device_clock.home(devices) == (home, why)


@pytest.mark.slow
def test_in_a_whole_job_marks_are_recorded_and_nothing_else_changes(observe) -> None:  # type: ignore[no-untyped-def]
    seen = observe("marked.py", "120", windows="")
    seen.same()
    seen.healthy()
    rank = seen.rank
    marked = rank.device
    assert len(marked) >= 12
    assert (marked["step"] % device_clock.EVERY == 0).all()
    assert rank.device_left_out == {}
    assert rank.settings is not None and rank.settings.device_clock == ""
    # Each forward takes the device 2 ms, which the loop waits for before its next step.
    assert (marked["total_us"] >= 2_000).all()
    assert (marked["forward_us"] + marked["backward_us"] <= marked["total_us"]).all()
    assert (marked["ahead_low_us"] <= marked["ahead_high_us"]).all()
    assert all(len(worker.device) == 0 for worker in seen.workers)
    walls = dict(zip(rank.steps["step"].tolist(), rank.steps["wall_us"].tolist(), strict=True))
    for step, host_us in zip(marked["step"].tolist(), marked["host_us"].tolist(), strict=True):
        assert host_us <= walls[step]


@pytest.mark.slow
@pytest.mark.e2e
def test_a_job_without_cuda_starts_no_device_clock(tmp_path: Path) -> None:
    # Under the probe: whatever else it does, it must not initialise CUDA or write a record about it.
    injected = Path(__file__).parent.parent.parent / "perfdoctor" / "injected"
    code = (
        "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(30):\n    model(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(injected), "PERFDOCTOR_RUN": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = tmp_path.glob("process-*.jsonl")
    text = file.read_text()
    assert '"k":"settings"' in text
    assert '"k":"device"' not in text
    assert '"device_clock"' not in text
