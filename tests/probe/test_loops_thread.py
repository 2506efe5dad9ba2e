"""When another thread takes the place of the loop's."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe.hooks import concurrency
from perfdoctor.injected._perfdoctor_probe.hooks.concurrency import _LOST, _PATIENCE_NS, Concurrency


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> tuple[Concurrency, SimpleNamespace]:
    """The counts, and a clock."""
    clock = SimpleNamespace(ns=0)
    monkeypatch.setattr(concurrency, "_clock", lambda: clock.ns)
    seen = Concurrency(recorder=None, sites=SimpleNamespace(here=lambda depth: 0))
    seen.loop_entered(threading.get_ident())
    return seen, clock


def _lost_after(seen: Concurrency, most: int) -> int:
    """Forwards of other threads until the loop's counts as lost; `most` where it does not."""
    return next((count for count in range(1, most) if seen.has_lost(threading.get_ident())), most)


def test_a_thread_that_calls_no_model_while_others_do_has_lost_the_loop(forwards) -> None:
    seen, _ = forwards
    assert _lost_after(seen, 1000) == _LOST


def test_one_that_a_window_watches_has_longer(forwards) -> None:
    """Eight threads by turns: what a dispatch mode costs the loop's, the others use."""
    seen, clock = forwards
    seen.is_watched = lambda: True
    assert _lost_after(seen, 1000) == 1000
    clock.ns = _PATIENCE_NS + 1
    assert _lost_after(seen, 1000) == 1


def test_one_that_has_ended_has_lost_it_at_once(forwards) -> None:
    seen, _ = forwards
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    assert seen.has_lost(ended.ident)
