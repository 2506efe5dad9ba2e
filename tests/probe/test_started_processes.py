"""Processes that a loop starts, and programs that it asks, are timed at their lines; a loader's workers are not."""

from __future__ import annotations

import functools
import multiprocessing.pool
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader
from users_file import IdleLoop

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.changes import Changes
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks import processes
from perfdoctor.injected._perfdoctor_probe.hooks.calls import Calls
from perfdoctor.injected._perfdoctor_probe.hooks.processes import Processes

FORK = multiprocessing.get_context("fork")


class Loop(IdleLoop):
    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def on_training_thread(self) -> bool:
        return threading.get_ident() == self.thread


class Records(list[dict[str, Any]]):
    """Of processes that were started."""

    def record(self, kind: str, **fields: Any) -> None:
        assert kind == "started"
        self.append(fields)


def _fails(hook: str, error: Exception) -> None:
    raise error


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def calls(loop: Loop) -> Any:
    """Of the job, with stand-ins in place."""

    def at(code: Any, line: int) -> int:
        return line

    guard, changes = Guard(_fails), Changes()
    sites = SimpleNamespace(here=lambda depth: 4, at=at, is_library=lambda name: name != __file__)
    counted = Calls(Records(), loop, sites, guard)
    Processes(counted, loop, sites, guard).watch(changes)
    yield counted
    changes.take_back()


def _seen(calls: Calls) -> dict[str, int]:
    """How many calls of each kind; each took time."""
    assert all(took_ns > 0 for _, took_ns, _ in calls.totals.values())
    return {kind: count for (kind, _), (count, _, _) in calls.totals.items()}


def test_nothing_is_loaded_for_it_and_what_is_loaded_later_is_timed_then(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, guard = Changes(), Guard(_fails)
    watch = Processes(Calls(None, loop, None, guard), loop, None, guard).watch
    for name in ("multiprocessing.pool", "concurrent.futures.process"):
        monkeypatch.delitem(sys.modules, name)
    watch(changes)
    assert "multiprocessing.pool" not in sys.modules
    places = len(changes.made)
    monkeypatch.undo()
    watch(changes)
    assert len(changes.made) == places + 4, "three of pools and one of executors"
    changes.take_back()


def test_a_pool_is_timed_as_it_is_made_and_ended(calls: Calls) -> None:
    with FORK.Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    assert _seen(calls) == {"process": 2}


def test_a_process_is_timed_as_it_starts_and_its_work_is_not(calls: Calls) -> None:
    process = FORK.Process(target=os.getpid)
    process.start()
    process.join()
    assert _seen(calls) == {"process": 1} and process.exitcode == 0


def test_an_executor_starts_its_processes_as_it_is_given_work(calls: Calls) -> None:
    with ProcessPoolExecutor(1, mp_context=FORK) as executor:
        assert executor.submit(abs, -3).result() == 3
    assert _seen(calls) == {"process": 2}


def _echo(pipe: Any) -> None:
    while (message := pipe.recv()) is not None:
        pipe.send(message)


def test_messages_to_a_process_are_timed_with_the_wait_for_its_answers(calls: Calls) -> None:
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=_echo, args=(theirs,))
    process.start()
    for number in range(3):
        ours.send(number)
        assert ours.recv() == number
    ours.send(None)
    process.join()
    assert _seen(calls) == {"process": 1, "message": 7}


def test_what_a_manager_holds_is_asked_for_by_messages(calls: Calls) -> None:
    with FORK.Manager() as manager:
        shared = manager.list([7])
        assert shared[0] == 7, "which makes a connection first"
        before = _seen(calls)["message"]
        assert shared[0] == 7
        assert _seen(calls)["message"] == before + 2


def test_a_program_is_timed_until_it_has_answered(calls: Calls) -> None:
    assert subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, check=True).stdout == b"7\n"
    assert os.system("true") == 0
    assert _seen(calls) == {"program": 2}


def test_a_program_that_is_asked_by_hand_is_timed_too(calls: Calls) -> None:
    with subprocess.Popen([sys.executable, "-c", "print(7)"], stdout=subprocess.PIPE) as program:
        assert program.communicate()[0] == b"7\n"
    assert _seen(calls).keys() == {"program"}


@pytest.mark.parametrize("part", [timeline.INPUT, timeline.CHECKPOINT, timeline.LOGGING])
def test_what_a_loader_a_checkpoint_or_a_logger_starts_is_theirs(calls: Calls, loop: Loop, part: int) -> None:
    loop.timeline.enter(part)
    process = FORK.Process(target=os.getpid)
    process.start()
    process.join()
    loop.timeline.leave(part)
    assert _seen(calls) == {}


def test_what_another_thread_starts_keeps_nobody_waiting(calls: Calls) -> None:
    beside = threading.Thread(target=subprocess.run, args=([sys.executable, "-c", ""],))
    beside.start()
    beside.join()
    assert _seen(calls) == {}


def test_a_call_that_fails_fails_as_it_would(calls: Calls) -> None:
    with pytest.raises(FileNotFoundError):
        subprocess.run(["no-such-program-here"])
    assert _seen(calls) == {"program": 1}


def polls(times: int) -> None:
    """What a helper does."""
    found = None
    while found is None and times:
        times -= 1


LOOP = polls.__code__.co_firstlineno + 3


class Poller(multiprocessing.Process):
    def run(self) -> None:
        polls(2)


def _started_and_ended(process: multiprocessing.Process) -> multiprocessing.Process:
    process.start()
    process.join()
    return process


def test_who_starts_a_process_and_which_loop_it_runs_is_told(calls: Calls) -> None:
    helper = _started_and_ended(FORK.Process(target=functools.partial(polls, 2)))
    of_a_class = _started_and_ended(Poller())
    by_a_library = _started_and_ended(FORK.Process(target=os.getpid))
    with subprocess.Popen([sys.executable, "-c", ""]) as program:
        pass
    assert calls.recorder == [
        {"pid": helper.pid, "site": 4, "does": LOOP},
        {"pid": of_a_class.pid, "site": 4, "does": Poller.run.__code__.co_firstlineno},
        {"pid": by_a_library.pid, "site": 4, "does": -1},
        {"pid": program.pid, "site": 4, "does": -1},
    ]


def test_a_pools_processes_are_told_and_a_loaders_workers_are_not(calls: Calls) -> None:
    with FORK.Pool(2):
        assert len(calls.recorder) == 2
    loader = DataLoader([0, 1], num_workers=1, multiprocessing_context="fork")
    assert len(list(loader)) == 2 and len(calls.recorder) == 2


def test_no_more_are_told_than_a_recording_has_room_for(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_MOST", 1)
    for _ in range(2):
        _started_and_ended(FORK.Process(target=os.getpid))
    assert len(calls.recorder) == 1
