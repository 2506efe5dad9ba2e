"""Requests that wait in a queue, read from the frames of the thread that takes them."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perfdoctor.injected._perfdoctor_probe.hooks.backlog import Backlog


class Service:
    """Takes requests from its own queue and puts answers into another."""

    def __init__(self, kind: type) -> None:
        self.inbox, self.outbox = kind(), kind()
        self.seen = Backlog()

    def answer(self) -> None:
        self.seen.look(1)

    def work(self, requests: int) -> None:
        for _ in range(requests):
            self.inbox.get()
            self.answer()
            self.outbox.put(None)


@pytest.mark.parametrize("kind", [queue.Queue, queue.SimpleQueue, queue.LifoQueue])
def test_the_queue_that_shrinks_is_the_one_that_requests_come_from(kind: type) -> None:
    service = Service(kind)
    for number in range(10):
        service.inbox.put(number)
    service.work(5)
    assert service.seen.mean() == (9 + 8 + 7 + 6 + 5) / 5


def test_the_queue_of_a_thread_pool_is_found() -> None:
    seen, all_there = Backlog(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(all_there.wait)
        answers = [pool.submit(seen.look, 1) for _ in range(50)]
        all_there.set()
        assert all(answer.exception() is None for answer in answers), "before the pool puts its end into the queue"
    assert seen.mean() == sum(range(50)) / 50


def test_a_queue_that_only_grows_holds_answers() -> None:
    answers: queue.Queue[int] = queue.Queue()
    seen = Backlog()
    for number in range(5):
        answers.put(number)
        seen.look(1)
    assert seen.mean() is None
