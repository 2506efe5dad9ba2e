"""Pauses of threads beside the loop: told where everybody waits for them, and only then."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.windows.pauses import Pauses

LOOKS = 60


class Server:
    def __init__(self) -> None:
        self.requests: queue.Queue[int] = queue.Queue()
        self.over = threading.Event()
        self.total = 0

    def collects(self) -> None:
        while not self.over.is_set():
            try:
                self.total += self.requests.get(timeout=0.02)
            except queue.Empty:
                continue

    def paces(self) -> None:
        while not self.over.is_set():
            self.over.wait(0.02)

    def computes(self) -> None:
        while not self.over.is_set():
            self.total += sum(range(20_000))

    def asks_whoever_comes(self) -> None:
        while not self.over.is_set():
            self.requests.put(1)
            self.requests.get(timeout=5.0)
            self.over.wait(None if self.over.is_set() else 0.001)


def looked_at(*tasks: Callable[[Server], None], idle: bool = True) -> list[dict[str, Any]]:
    """What looks say of threads that do this, while the loop's thread, this one, waits or not."""
    server, pause = Server(), threading.Event()
    pauses = Pauses(UsersFile(__file__).is_library, threading.get_ident())
    threads = [threading.Thread(target=task, args=(server,)) for task in tasks]
    for thread in threads:
        thread.start()
    pauses.begin()
    try:
        for _ in range(LOOKS):
            pause.wait(0.005)
            frames = sys._current_frames()
            pauses.look({thread.ident: frames[thread.ident or 0] for thread in threads}, threading.get_ident(), idle)
        return pauses.rows(UsersFile(__file__), LOOKS)
    finally:
        pauses.end()
        server.over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(("task", "line"), [(Server.collects, 3), (Server.paces, 2)])
def test_a_wait_whose_time_runs_out_is_told_with_its_line(task: Callable[[Server], None], line: int) -> None:
    (row,) = looked_at(task)
    assert row["site"] == (task.__name__, line)
    assert row["ran_out"] >= 5 and row["awaited"] > 0.5 and 15 < row["ms"] < 60


def test_where_the_loop_does_not_wait_nobody_is_awaited() -> None:
    assert looked_at(Server.collects, idle=False) == []


def test_nor_while_another_thread_computes() -> None:
    rows = looked_at(Server.collects, Server.computes)
    assert sum(row["awaited"] for row in rows) < 0.1, "but for a look at which it had no CPU"


def test_a_limit_that_is_not_reached_has_run_out_for_nobody() -> None:
    assert 3 not in {row["site"][1] for row in looked_at(Server.asks_whoever_comes)}


def test_a_sleep_is_told_by_where_it_stands(tmp_path: Any) -> None:
    file = tmp_path / "actor.py"
    file.write_text("import time\n\ndef act(over):\n    while not over.is_set():\n        time.sleep(0.05)\n")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    over, pause = threading.Event(), threading.Event()
    thread = threading.Thread(target=names["act"], args=(over,))
    thread.start()
    users = UsersFile(str(file))
    pauses = Pauses(users.is_library, threading.get_ident())
    for _ in range(20):
        pause.wait(0.003)
        pauses.look({thread.ident: sys._current_frames()[thread.ident or 0]}, threading.get_ident(), True)
    over.set()
    thread.join()
    (row,) = pauses.rows(users, 20)
    assert row["site"] == ("act", 2) and row["ran_out"] == 0 and row["awaited"] > 0.5


def test_conditions_are_as_they_were() -> None:
    before = threading.Condition.wait
    pauses = Pauses(lambda file: True, threading.get_ident())
    pauses.begin()
    assert threading.Condition.wait is not before
    pauses.end()
    assert threading.Condition.wait is before
