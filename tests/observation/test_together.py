"""The leaving of a job whose ranks one launcher does not all hear from."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.launch.control import ControlServer
from perfdoctor.launch.job import Ending
from perfdoctor.observation import together
from perfdoctor.observation.running_job import RunningJob
from perfdoctor.observation.together import Together


class Rank:
    """A rank's end of the channel, as the probe has it."""

    def __init__(self, server: ControlServer, number: int, world: int, here: int = 0, **more: object) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(server.path))
        self.socket.setblocking(False)
        self.server = server
        self.say(k="hello", pid=100 + number, rank=number, world_size=world, here=here, **more)

    def say(self, **message: Any) -> None:
        self.socket.send(json.dumps(message).encode())
        for _ in range(3):  # one for the connection, one for what was said
            self.server.poll(0.01)

    def heard(self) -> list[dict[str, Any]]:
        found = []
        while True:
            try:
                found.append(json.loads(self.socket.recv(65536)))
            except BlockingIOError:
                return found


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlServer]:
    monkeypatch.setattr(together, "_GATHERING_S", 0.0)
    server = ControlServer(tmp_path)
    yield server
    server.close()


def test_a_launcher_that_hears_from_every_rank_has_nobody_meet(server: ControlServer) -> None:
    first, second = Rank(server, 0, 2), Rank(server, 1, 2)
    Together(server).look()
    assert server.hears_each and server.hears_all and server.ranks_obey
    assert first.heard() == second.heard() == []
    second.socket.close()
    server.poll(0.01)
    assert server.hears_all, "one that has left was heard from all the same"


def test_ranks_of_this_machine_that_are_still_to_come_are_waited_for_here(server: ControlServer) -> None:
    first = Rank(server, 0, 2, here=2)
    Together(server).look()
    assert server.hears_all and not server.hears_each
    assert first.heard() == []


def test_ranks_meet_others_that_are_elsewhere_and_rank_0_is_told_when_enough_was_seen(server: ControlServer) -> None:
    first, second = Rank(server, 0, 4, here=2), Rank(server, 1, 4, here=2)
    both = Together(server)
    for _ in range(2):
        both.look()
    assert first.heard() == second.heard() == [{"do": "meet"}], "once"
    assert both.phase == "" and not server.ranks_obey
    job: Any = SimpleNamespace(poll=lambda: None)
    running = RunningJob(job, server, lambda: None, lambda phase, trial: None)
    assert "no perfdoctor observes" in running.out_of_reach
    first.say(k="beat", step=10, steps=10, wall_us=100_000, met=True)
    assert server.ranks_obey and running.out_of_reach == ""
    both.ask("")
    assert first.heard() == [{"do": "leave", "why": ""}] and second.heard() == []
    assert "agree on a step" in both.phase
    assert both.ending(Ending("finished", 0)) == Ending("finished", 0), "by itself, before they did"
    first.say(k="stopping", step=40, why="")
    both.look()
    assert both.ending(Ending("finished", 0)).kind == "stopped"
    assert not both.overdue


def test_ranks_that_are_heard_from_late_agree_among_themselves(server: ControlServer) -> None:
    first, second = Rank(server, 0, 2, lag_s=1.0), Rank(server, 1, 2)
    Together(server).look()
    assert server.hears_each and server.hears_late and not server.hears_all
    assert first.heard() == second.heard() == [{"do": "meet"}]


def test_jobs_of_one_rank_each_have_nothing_to_agree_on(server: ControlServer) -> None:
    """Trials."""
    first, second = Rank(server, 0, 1, lag_s=1.0), Rank(server, 0, 1, lag_s=1.0)
    Together(server).look()
    assert server.hears_all and not server.hears_late
    assert first.heard() == second.heard() == []


def test_a_job_whose_ranks_cannot_leave_together_runs_on(server: ControlServer) -> None:
    first = Rank(server, 0, 2, here=1)
    both = Together(server)
    both.ask("")
    first.say(k="cannot", why="perfdoctor does not observe rank 1")
    both.look()
    assert both.phase == "enough was seen, but the job runs on to its end: perfdoctor does not observe rank 1"
    ending = both.ending(Ending("finished", 0))
    assert ending == Ending("finished", 0, detail="it was not ended early: perfdoctor does not observe rank 1")
    assert both.ending(Ending("crashed", 1)) == Ending("crashed", 1)


def test_ranks_that_are_started_anew_are_told_anew(server: ControlServer) -> None:
    first = Rank(server, 0, 2, here=1)
    both = Together(server)
    both.look()
    both.ask("")
    first.say(k="cannot", why="the job's store is gone")
    both.look()
    first.socket.close()
    server.poll(0.01)
    both.look()
    assert both.asked and both.cannot, "they may have come to the job's end"
    Rank(server, 0, 2, here=1)
    both.look()
    assert not both.asked and not both.cannot


def test_where_rank_0_is_elsewhere_its_perfdoctor_decides(server: ControlServer) -> None:
    second = Rank(server, 1, 2, here=1)
    both = Together(server)
    both.ask("")
    assert second.heard() == [{"do": "leave", "why": ""}], "it sees whether somebody observes rank 0"
    assert both.phase.startswith("enough was seen here")
    assert not server.ranks_obey, "no trials from here"
    job: Any = SimpleNamespace(poll=lambda: None)
    running = RunningJob(job, server, lambda: None, lambda phase, trial: None)
    assert running.out_of_reach == "trials are made by the perfdoctor that observes rank 0, on another node"
    assert running.has_other_nodes
    second.say(k="stopping", step=9, why="perfdoctor was interrupted on a")
    assert both.ending(Ending("finished", 0)) == Ending("stopped", detail="perfdoctor was interrupted on a")


def test_a_job_that_is_still_there_long_after_its_ranks_left_is_overdue(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Rank(server, 0, 2)
    both = Together(server)
    monkeypatch.setattr(together, "GRACE_S", -1.0)
    assert not both.overdue, "they are there"
    first.say(k="stopping", step=9, why="")
    both.look()
    assert both.overdue


def test_orders_for_ranks_elsewhere_are_passed_on_by_rank_0(server: ControlServer) -> None:
    first, second = Rank(server, 0, 4, here=2), Rank(server, 1, 4, here=2)
    first.say(k="beat", step=10, steps=10, wall_us=100_000, met=True)
    job: Any = SimpleNamespace(poll=lambda: None)
    RunningJob(job, server, lambda: None, lambda phase, trial: None).order({"do": "block", "block": 0}, {"do": "drop"})
    block, drop = first.heard()
    assert second.heard() == []
    assert block["all"] and drop == {"do": "drop", "all": True}
    # Half a second since the beat, 0.4 s of margin and two looks of 50 ms, in steps of 10 ms.
    assert block["from"] == 10 + 50 + 50 + 1
