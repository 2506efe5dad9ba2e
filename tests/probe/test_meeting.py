"""What ranks agree on in their job's store: here several of them in one process, with a store of their own."""

from __future__ import annotations

import datetime
import os
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from perfdoctor.injected._perfdoctor_probe import control, meeting, stores
from perfdoctor.injected._perfdoctor_probe.meeting import Meeting


class Rank:
    """What a meeting knows of its process."""

    def __init__(self, number: int, world: int) -> None:
        self.probe = SimpleNamespace(stop_at=-1)
        self.control = SimpleNamespace(send=lambda message: self.told.append(message))
        self.told: list[dict[str, Any]] = []
        self.obeyed: list[dict[str, Any]] = []
        self.meeting: Any = Meeting(number, world, self)

    def obey(self, command: dict[str, Any], step: int) -> None:
        self.obeyed.append(command)

    def look(self, step: int) -> None:
        self.meeting.due_ns = 0
        self.meeting.look(step)


def met_in(store: dist.Store | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks' process group."""
    group = dist.PrefixStore("default_pg", dist.PrefixStore("attempt", store)) if store is not None else None
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: group)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(meeting, "_PATIENCE_NS", 60_000_000_000)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ranks that do not come; those that come may take their time on a busy machine."""
    monkeypatch.setattr(meeting, "_PATIENCE_NS", 200_000_000)


@pytest.fixture
def tcp(monkeypatch: pytest.MonkeyPatch) -> dist.TCPStore:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    met_in(store, monkeypatch)
    return store


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    met_in(dist.FileStore(str(tmp_path / "store"), -1), monkeypatch)
    return tmp_path / "store"


@pytest.fixture(params=["tcp", "file"])
def server(request: pytest.FixtureRequest) -> object:
    return request.getfixturevalue(request.param)


def ranks(world: int) -> list[Rank]:
    return [Rank(number, world) for number in range(world)]


def stepping(all_ranks: list[Rank], steps: range) -> None:
    for step in steps:
        for rank in all_ranks:
            rank.look(step)


def stand(*standing: Rank) -> list[bool]:
    with ThreadPoolExecutor(len(standing)) as pool:
        return list(pool.map(lambda rank: rank.meeting.stand(rank.probe.stop_at), standing))


@pytest.mark.usefixtures("server")
def test_all_leave_at_one_step_that_lies_ahead() -> None:
    three = ranks(3)
    stepping(three, range(10))
    three[0].meeting.ask("")
    stepping(three, range(10, 12))
    steps = {rank.probe.stop_at for rank in three}
    assert len(steps) == 1 and steps.pop() > 11
    assert stand(*three) == [True, True, True]
    with ThreadPoolExecutor(3) as pool:  # rank 0 keeps the store until the others have let go
        list(pool.map(lambda rank: rank.meeting.part(), reversed(three)))


@pytest.mark.usefixtures("server")
def test_a_rank_that_has_passed_the_step_holds_nobody_up_and_a_later_one_is_named() -> None:
    three = ranks(3)
    stepping(three, range(3))
    three[0].meeting.ask("")
    stepping(three[:2], range(3, 4))
    named = three[0].probe.stop_at
    three[2].look(named + 50)
    assert three[2].probe.stop_at == -1
    assert stand(*three[:2]) == [False, False]
    three[0].look(named)
    for rank in three[1:]:
        rank.look(named + 51)
    assert {rank.probe.stop_at for rank in three} == {three[0].probe.stop_at}
    assert three[0].probe.stop_at > named + 50
    assert stand(*three) == [True, True, True] and not three[0].told


@pytest.mark.usefixtures("server", "impatient")
def test_a_rank_that_stays_away_is_named_after_a_few_attempts_and_nobody_leaves() -> None:
    three = ranks(3)
    stepping(three, range(3))
    three[0].meeting.ask("")
    for attempt in range(3):
        stepping(three, range(3 + attempt, 4 + attempt))
        assert stand(*three[:2]) == [False, False]
    (told,) = three[0].told
    assert told == {"k": "cannot", "why": "rank 2 did not come to the step at which all others stood"}
    three[0].look(10)
    assert three[0].meeting.round == -1


@pytest.mark.usefixtures("server", "impatient")
def test_a_rank_that_comes_after_the_verdict_stays_too() -> None:
    two = ranks(2)
    stepping(two, range(3))
    two[0].meeting.ask("")
    stepping(two, range(3, 4))
    assert stand(two[0]) == [False]
    assert stand(two[1]) == [False]


@pytest.mark.usefixtures("server")
def test_ranks_that_nobody_observes_are_told_of_before_anybody_stands() -> None:
    first, second = Rank(0, 5), Rank(1, 5)
    first.meeting.ask("")
    first.meeting.asked_ns -= meeting._PATIENCE_NS
    stepping([first, second], range(3))
    assert [message["why"] for message in first.told] == ["perfdoctor does not observe ranks 2, 3, 4"]
    assert first.probe.stop_at == second.probe.stop_at == -1


@pytest.mark.usefixtures("server")
def test_a_rank_without_rank_0_says_so() -> None:
    alone = Rank(1, 2)
    alone.meeting.ask("")
    assert alone.told == [{"k": "cannot", "why": "perfdoctor does not observe rank 0"}]


@pytest.mark.usefixtures("server")
def test_any_rank_may_ask_with_a_reason_that_all_hear_of() -> None:
    two = ranks(2)
    stepping(two, range(3))
    two[1].meeting.ask("")
    stepping(two, range(3, 4))
    assert two[0].probe.stop_at == -1, "that enough was seen is for rank 0 to say"
    two[1].meeting.ask("somebody is in a hurry")
    stepping(two, range(4, 6))
    assert {rank.meeting.why for rank in two} == {"somebody is in a hurry"}
    assert stand(*two) == [True, True]


@pytest.mark.usefixtures("server")
def test_orders_reach_each_other_rank_once_and_in_order() -> None:
    two = ranks(2)
    two[0].meeting.post({"do": "block", "block": 0})
    two[0].meeting.post({"do": "block", "block": 1})
    stepping(two, range(3))
    assert [order["block"] for order in two[1].obeyed] == [0, 1] and not two[0].obeyed
    late = Rank(1, 2)
    late.look(1)
    assert not late.obeyed, "what was said before it came is not for it"


def test_ranks_whose_agents_count_the_restarts_differently_meet(
    tcp: dist.TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = []
    for number, count in enumerate(("0", "1")):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
        both.append(Rank(number, 2))
    both[0].meeting.ask("")
    stepping(both, range(3))
    assert both[0].probe.stop_at == both[1].probe.stop_at >= 0


def test_in_the_store_of_an_agent_the_orders_of_an_earlier_start_are_not_seen(
    tcp: dist.TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_PORT", str(tcp.port))
    first = [Rank(number, 2).meeting for number in range(2)]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = Rank(0, 2).meeting
    assert first[0].common.count("joined") == 2
    assert again.common.count("joined") == 1


@pytest.mark.usefixtures("tcp")
def test_rank_0_with_the_server_leaves_last() -> None:
    two = ranks(2)
    stepping(two, range(3))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(two[0].meeting.part)
        assert not first.done()
        two[1].meeting.part()
        first.result(timeout=60.0)
    assert [rank.meeting.common.store for rank in two] == [None] * 2


def test_looking_into_a_file_leaves_it_as_it_is(file: Path) -> None:
    two = ranks(2)
    stepping(two, range(3))
    before = file.read_bytes()
    stepping(two, range(3, 6))
    for rank in two:
        rank.meeting.part()
    assert file.read_bytes() == before


@pytest.mark.parametrize("gone", ["file", "group", "other group"])
def test_a_file_that_is_not_the_groups_any_more_is_not_waited_for(
    file: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    rank = Rank(1, 2)
    rank.look(1)
    if gone == "file":
        file.unlink()
    elif gone == "group":
        monkeypatch.setattr(dist, "is_initialized", lambda: False)
    else:
        met_in(dist.FileStore(f"{file}-2", -1), monkeypatch)
    with pytest.raises(RuntimeError, match="the job's store is gone"):
        rank.look(2)
    assert file.exists() is (gone != "file"), "nor made again"


@pytest.mark.usefixtures("file")
def test_a_file_that_is_slow_to_read_is_looked_into_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_SHARE", 10**9)
    assert Rank(1, 2).meeting.period_ns > control.period_ns(2)


@pytest.mark.usefixtures("tcp")
def test_a_server_that_is_gone_is_told_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    rank = Rank(1, 2)
    rank.look(1)
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    other = dist.TCPStore("127.0.0.1", own.port, is_master=False, wait_for_workers=False)
    fresh = stores._sockets()
    rank.meeting.common.store = dist.TCPStore(
        "127.0.0.1", own.port, is_master=False, wait_for_workers=False, timeout=datetime.timedelta(seconds=2)
    )
    (rank.meeting.common.descriptor,) = _outgoing(stores._sockets() - fresh, own.port)
    del own, other
    assert select.select([rank.meeting.common.descriptor], [], [], 60.0)[0], "its end has come to us"
    with pytest.raises(RuntimeError, match="the job's store is gone"):
        rank.look(2)
    assert capfd.readouterr().err == ""


def _outgoing(descriptors: set[int], port: int) -> list[int]:
    """Those connected to this port: the server's end of the same connection is in this process too."""
    found = []
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family != socket.AF_UNIX and one.getpeername()[1] == port:
                found.append(descriptor)
    return found


def test_a_store_that_cannot_be_reached_is_told_without_torchs_words(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    beside = dist.TCPStore("127.0.0.1", gone.port, is_master=False, wait_for_workers=False)
    met_in(beside, monkeypatch)
    del gone
    with pytest.raises(RuntimeError, match="cannot be reached"):
        Rank(1, 2)
    for other in (dist.HashStore(), None):
        met_in(other, monkeypatch)
        with pytest.raises(RuntimeError, match="no store over TCP, and in no file"):
            Rank(1, 2)
    assert capfd.readouterr().err == ""


def test_ranks_of_a_large_job_look_less_often() -> None:
    assert control.period_ns(2) == control.period_ns(64) == control.POLL_NS
    assert control.period_ns(4096) == 64 * control.POLL_NS
