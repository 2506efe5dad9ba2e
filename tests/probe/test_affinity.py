"""CPUs that a thread chooses for itself, and the line that did."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from perfdoctor.injected._perfdoctor_probe import affinity


@pytest.fixture
def watched() -> Iterator[None]:
    """The watch, and afterwards all as it was."""
    original, before = os.sched_setaffinity, os.sched_getaffinity(0)
    affinity.watch()
    yield
    os.sched_setaffinity = original
    os.sched_setaffinity(0, before)
    affinity.PLACES.clear()


@pytest.mark.usefixtures("watched")
def test_the_place_is_kept_for_the_thread_that_chose() -> None:
    os.sched_setaffinity(0, {affinity.cpus()[0]})
    file, line, function, _ = affinity.PLACES[threading.get_ident()]
    code = test_the_place_is_kept_for_the_thread_that_chose.__code__
    assert (file, function) == (__file__, code.co_name) and line == code.co_firstlineno + 2
    assert len(affinity.cpus()) == 1


@pytest.mark.usefixtures("watched")
def test_another_process_and_another_thread_are_their_own_concern() -> None:
    here = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        os.sched_setaffinity(other.pid, here)
        other.communicate(b"\n")
    thread = threading.Thread(target=os.sched_setaffinity, args=(0, here))
    thread.start()
    thread.join()
    assert threading.get_ident() not in affinity.PLACES


@pytest.mark.usefixtures("watched")
def test_what_it_raises_is_raised() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        os.sched_setaffinity(0, set())
    assert affinity.PLACES == {}
