"""What a running job may be asked for during trials."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.launch.control import Beat, ControlServer, Rank
from perfdoctor.observation.observed_job import left
from perfdoctor.observation.running_job import RunningJob, common_step, step_s


def rank(step: int, step_ms: float, **fields: Any) -> Rank:
    return Rank(socket.socket(), step=step, total=Beat(steps=100, wall_us=round(100_000 * step_ms)), **fields)


def test_a_step_in_common_is_one_that_no_rank_has_passed() -> None:
    ranks = [rank(40, 10), rank(43, 20)]
    # Half a second since the last beat and 0.4 s of margin, in steps of the slowest rank.
    assert common_step(ranks, margin=True) == 43 + 25 + 20 + 1
    assert common_step(ranks[:1], margin=False) == 40


def test_without_a_beat_there_is_no_step_to_add() -> None:
    silent = Rank(socket.socket(), step=3)
    assert step_s(silent) == 0.0 and common_step([silent], margin=True) == 3
    assert common_step([], margin=True) == 0


class Job:
    """A rank's end of the channel, as the probe has it."""

    def __init__(self, directory: Path, number: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(directory / "control.sock"))
        self.socket.settimeout(5)
        self.say(k="hello", pid=100 + number, rank=number)
        self.say(k="beat", step=10, steps=10, wall_us=100_000)

    def say(self, **message: Any) -> None:
        self.socket.send(json.dumps(message).encode())

    def heard(self) -> dict[str, Any]:
        return json.loads(self.socket.recv(65536))


@pytest.fixture
def server(tmp_path: Path) -> Any:
    server = ControlServer(tmp_path)
    yield server
    server.close()


def running(server: ControlServer, status: int | None = None) -> RunningJob:
    return RunningJob(SimpleNamespace(poll=lambda: status), server, lambda: None, lambda phase, trial: None)  # type: ignore[arg-type]


def test_one_rank_takes_a_block_at_once_and_several_at_the_same_step(server: ControlServer, tmp_path: Path) -> None:
    first = Job(tmp_path, 0)
    alone = running(server)
    while not (server.ranks and server.ranks[0].step):
        alone.wait()
    alone.order({"do": "block", "block": 0})
    assert first.heard() == {"do": "block", "block": 0}
    second = Job(tmp_path, 1)
    while len(server.ranks) < 2 or not server.ranks[1].step:
        alone.wait()
    alone.order({"do": "block", "block": 0}, {"do": "block", "block": 1})
    heard = [[job.heard(), job.heard()] for job in (first, second)]
    assert heard[0] == heard[1]
    assert heard[0][0]["from"] > 10 and "from" not in heard[0][1], "the second follows the first"


def test_timings_are_waited_for(server: ControlServer, tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    one = running(server)
    while not server.ranks:
        one.wait()
    assert not one.timed(patience_s=0.1)
    assert job.heard() == {"do": "timings"}
    job.say(k="timed", step=11)
    assert one.timed(patience_s=5)


def test_a_job_that_has_ended_or_cannot_be_reached_is_not_alive(server: ControlServer, tmp_path: Path) -> None:
    assert not running(server).alive()
    Job(tmp_path, 0)
    while not server.ranks:
        server.poll(0.1)
    assert not running(server, status=0).alive()


def test_a_look_at_the_channel_ends_when_the_job_does(tmp_path: Path) -> None:
    server = ControlServer(tmp_path)
    with subprocess.Popen(["sleep", "0.1"]) as job:
        server.wake_at_end(job.pid)
        server.poll(60)  # a minute, but for the end
        assert job.poll() == 0
        server.poll(60)  # nor is anything waited for after it
    server.close()


def test_the_end_of_an_unknown_process_wakes_nobody(tmp_path: Path) -> None:
    server = ControlServer(tmp_path)
    server.wake_at_end(2**22 + 1)  # beyond what a process's number can be
    server.poll(0.01)
    server.close()
    assert not server.path.exists()


def test_a_job_is_ended_with_its_engine_once_every_rank_waits_for_that(server: ControlServer, tmp_path: Path) -> None:
    killed: list[bool] = []
    ranks: list[Job] = []

    def kill() -> None:
        killed.append(True)
        ranks[0].socket.close()
        # The engine ends this one itself, once it misses the driver.
        threading.Timer(0.2, ranks[1].socket.close).start()

    job: Any = SimpleNamespace(poll=lambda: None, kill=kill)
    assert left(job, server) is None  # nobody is connected
    ranks += [Job(tmp_path, number) for number in range(2)]
    while len(server.ranks) < 2:
        server.poll(0.1)
    for number, rank in enumerate(ranks):
        assert left(job, server) is None and not killed
        rank.say(k="held", engine="Ray")
        while sum(bool(one.held) for one in server.ranks) <= number:
            server.poll(0.1)
    assert left(job, server) == "Ray was ended with it, all processes at once"
    assert killed == [True]
    assert server.ranks == [], "all of its workers have gone"


def test_a_job_that_has_left_by_itself_is_not_killed(server: ControlServer) -> None:
    assert left(SimpleNamespace(poll=lambda: 0), server) == ""  # type: ignore[arg-type]
