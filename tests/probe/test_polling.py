"""Threads that ask again and again whether there is something to do: found by their CPU time and where they stand."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.polling import Polling


class Sites:
    def at(self, code: object, line: int) -> int:
        return line


class Journal:
    def __init__(self) -> None:
        self.box: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.over = threading.Event()
        self.total = 0

    def asks(self) -> None:
        while not self.over.is_set():
            try:
                self.total += self.box.get_nowait()
            except queue.Empty:
                continue

    def spins(self) -> None:
        while not self.over.is_set():
            pass

    def waits(self) -> None:
        while not self.over.is_set():
            if self.box.empty():
                self.over.wait(0.01)

    def works(self) -> None:
        while not self.over.is_set():
            self.total += sum(range(20_000))


def looked_at(task: Callable[[Journal], None]) -> list[dict]:
    """What half a second of looks says of a thread that does this."""
    journal, polling, pause = Journal(), Polling(lambda file: file != __file__), threading.Event()
    thread = threading.Thread(target=task, args=(journal,))
    thread.start()
    try:
        polling.begin()
        for _ in range(60):
            pause.wait(0.008)
            ident = thread.ident or 0
            polling.look({ident: sys._current_frames()[ident]}, threading.get_ident())
        return polling.rows(Sites())
    finally:
        journal.over.set()
        thread.join()


@pytest.mark.parametrize("task", [Journal.asks, Journal.spins])
def test_a_thread_that_asks_without_end_is_named_with_its_cpu(task: Callable[[Journal], None]) -> None:
    (row,) = looked_at(task)
    first = task.__code__.co_firstlineno
    assert first < row["site"] <= first + 5
    assert row["cpus"] > 0.05 and row["asks"] > 0.7


def test_one_that_waits_or_works_is_not() -> None:
    assert looked_at(Journal.waits) == []
    assert all(row["asks"] < 0.5 for row in looked_at(Journal.works))


def test_the_thread_of_the_loop_is_none_of_them() -> None:
    polling = Polling(lambda file: file != __file__)
    polling.begin()
    ident = threading.get_ident()
    polling.look({ident: sys._getframe()}, ident)
    assert polling.rows(Sites()) == []
