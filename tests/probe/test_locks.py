"""Threads that wait for a lock of the job's own: found by where they stand, and where its holder does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.locks import Locks
from perfdoctor.recording.base import Missing
from perfdoctor.recording.locks import LockWaits


class Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.other = threading.Lock()
        self.entered, self.over = threading.Event(), threading.Event()

    def hold(self) -> None:
        with self.lock:
            self.entered.set()
            self.over.wait()

    def hold_by_hand(self) -> None:
        self.lock.acquire()
        self.entered.set()
        self.over.wait()
        self.lock.release()

    def take(self) -> None:
        with self.lock:
            pass

    def take_by_hand(self) -> None:
        self.lock.acquire()
        self.lock.release()

    def take_another(self) -> None:
        with self.other:
            self.over.wait()


def inside(ident: int) -> bool:
    """Whether a thread comes to the first statement of a `Shared`'s, where those that take a held lock stay."""
    for _ in range(1000):
        frame = sys._current_frames().get(ident)
        while frame is not None:
            code = frame.f_code
            if code.co_name in vars(Shared) and frame.f_lineno > code.co_firstlineno:
                return True
            frame = frame.f_back
        threading.Event().wait(0.01)
    return False


@contextmanager
def running(shared: Shared, *tasks: Callable[[], None]) -> Iterator[list[int]]:
    """The numbers of threads that do these, the first of them before the others, all where they stay."""
    threads = [threading.Thread(target=task) for task in tasks]
    try:
        for thread in threads:
            thread.start()
            assert shared.entered.wait(10)
        assert all(inside(thread.ident or 0) for thread in threads)
        yield [thread.ident or 0 for thread in threads]
    finally:
        shared.over.set()
        for thread in threads:
            thread.join()


def waiting(idents: list[int]) -> list[tuple]:
    frames = sys._current_frames()
    locks = Locks(lambda file: file != __file__)
    return locks.waiting({ident: frames[ident] for ident in idents})


@pytest.mark.parametrize("hold", ["hold", "hold_by_hand"])
@pytest.mark.parametrize("take", ["take", "take_by_hand"])
def test_a_thread_waits_where_another_holds_its_lock(hold: str, take: str) -> None:
    shared = Shared()
    with running(shared, getattr(shared, hold), getattr(shared, take)) as (_, waiter):
        found = waiting([_, waiter])
    assert [(row[0], row[1].co_name, row[3].co_name, row[5]) for row in found] == [(waiter, take, hold, "self.lock")]


def test_a_thread_with_another_lock_waits_for_nobody() -> None:
    shared = Shared()
    with running(shared, shared.hold, shared.take_another) as idents:
        assert waiting(idents) == []


def test_a_lock_of_the_same_name_is_not_the_same_lock() -> None:
    one, other = Shared(), Shared()
    with running(one, one.hold) as (holder,), running(other, other.hold, other.take) as (_, waiter):
        assert waiting([holder, waiter]) == [], "the one that holds it is not looked at"


def test_what_somebody_traces_is_left_alone() -> None:
    shared = Shared()

    def traced() -> None:
        sys.settrace(lambda *_: lambda *_: None)
        shared.take()

    with running(shared, shared.hold, traced) as idents:
        frame = sys._current_frames()[idents[1]]
        frame.f_trace = lambda *_: None
        assert waiting(idents) == []


def test_a_training_loop_behind_a_lock_is_seen_to_wait_for_its_threads(observe) -> None:
    found = observe("threads.py", "behind_a_lock", windows="locks").named("behind_a_lock").lock_waits
    assert isinstance(found, LockWaits)
    assert found.looks > 0
    assert {row.site.function for row in found.rows} <= {"infer", "behind_a_lock"}
    assert any(row.by_loop and row.held_at.function == "infer" for row in found.rows)
    assert found.loop_waits > 0


def test_a_job_of_one_thread_has_nobody_to_look_at(observe) -> None:
    found = observe("loops.py", "plain", windows="locks").named("plain").lock_waits
    assert isinstance(found, Missing)
    assert "no other thread" in found.reason
