"""Steps take turns with what is traced and without, and it is traced on as it was, with no trace lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.injected import _perfdoctor_probe

INJECTED = Path(_perfdoctor_probe.__file__ or "").parent.parent
START = f"import sys; sys.path.insert(0, {str(INJECTED)!r})\n"
SETUP = """
import tracemalloc, types
from _perfdoctor_probe.windows import tracing
from _perfdoctor_probe.sites import Sites
from _perfdoctor_probe.windows.tracing import TracingWindow
from _perfdoctor_probe.windows.untraced import UntracedAllocations, UntracedCalls

def allocations():
    return TracingWindow("tracing", UntracedAllocations())

now_ns = 0
clocks = dict.fromkeys(("perf_counter_ns", "thread_time_ns"), lambda: now_ns)
tracing.time = types.SimpleNamespace(**clocks)

def step():  # takes a millisecond, and three where its allocations are traced
    global now_ns
    now_ns += 1_000_000 if tracemalloc.get_object_traceback(object()) is None else 3_000_000
    return [(number, [number]) for number in range(20_000)]
"""
"""In a process of its own: the allocators are the whole interpreter's."""
CALLS = """
import cProfile, pstats
sites = Sites(types.SimpleNamespace(record=lambda *a, **b: None))
heard = 0

def called(frame, event, argument):
    global heard
    heard += event == "call" and frame.f_code is ours.__code__
    return called

def work():  # takes a millisecond, and two where somebody hears of it
    global now_ns
    before = count()
    now_ns += 1_000_000
    ours()
    now_ns += 1_000_000 * (count() > before)

def ours():
    pass

def count():
    return heard

def watched(steps):
    window = TracingWindow("traced_calls", UntracedCalls(sites))
    assert window.obstacle() == "", window.obstacle()
    window.open()
    done = 0
    for done in range(1, steps + 1):
        work()
        if not window.stays(done):
            break
    return window.close(done)
"""
calls_wait = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot let a trace function wait")


def _said(body: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", START + SETUP + body], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_steps_without_are_cheaper_and_all_that_was_traced_before_is_traced_on() -> None:
    said = _said("""
tracemalloc.start(5)
kept = [object() for _ in range(1000)]
window = allocations()
assert window.obstacle() == ""
before = tracemalloc.get_traced_memory()[0]
window.open()
steps = 0
while True:
    step()
    steps += 1
    if not window.stays(steps):
        break
found = window.close(steps)
print(found["frames"], found["traced_ms"] == [3.0] * 5, found["untraced_ms"] == [1.0] * 5)
print(abs(tracemalloc.get_traced_memory()[0] - before) < 20_000, tracemalloc.is_tracing())
print(tracemalloc.get_object_traceback(kept[0]) is not None)
late = [(number,) for number in range(1000, 2000)]
print(tracemalloc.get_object_traceback(late[500]) is not None)
""")
    assert said == ["5", "True", "True", "True", "True", "True", "True"]


def test_memory_that_is_given_back_meanwhile_loses_its_trace_and_what_is_kept_has_none() -> None:
    said = _said("""
tracemalloc.start()
traced = [(number, number) for number in range(10_000)]
full = tracemalloc.get_traced_memory()[0]
untraced = UntracedAllocations()
untraced.begin()
del traced
kept = [(number, number) for number in range(10_000)]
less = tracemalloc.get_traced_memory()[0]
print(less < full / 2, tracemalloc.get_object_traceback(kept[5_000]))
untraced.end()
del kept
print(tracemalloc.get_traced_memory()[0] <= less + 5_000)
""")
    assert said == ["True", "None", "True"]


def test_a_job_that_ends_the_tracing_in_such_a_step_is_left_alone() -> None:
    said = _said("""
tracemalloc.start()
window = allocations()
window.open()
step(); window.stays(1)
tracemalloc.stop()
step()
print(window.stays(2), "missing" in window.close(2), tracemalloc.is_tracing())
tracemalloc.start(3)
step()
print(tracemalloc.get_traced_memory()[1] > 0)
""")
    assert said == ["False", "True", "False", "True"]


@pytest.mark.parametrize(
    ("body", "environment", "why"),
    [
        ("", {}, "nobody"),
        ("tracemalloc.start()", {"PYTHONMALLOC": "debug"}, "allocator"),
    ],
    ids=["nobody traces", "another allocator behind it"],
)
def test_where_it_cannot_be_done_it_says_why(body: str, environment: dict[str, str], why: str) -> None:
    assert why in " ".join(_said(f"{body}\nprint(allocations().obstacle())", **environment))


@calls_wait
def test_a_trace_function_is_not_called_in_every_other_turn_and_called_again_afterwards() -> None:
    said = _said(
        CALLS
        + """
sys.settrace(called)
found = watched(20)
print(found["tracer"], found["frames"], found["traced_ms"] == [2.0] * 5, found["untraced_ms"] == [1.0] * 5, heard)
work()
print(heard, sys.gettrace() is called)
"""
    )
    assert said == ["called", "0", "True", "True", "5", "6", "True"]


@calls_wait
def test_a_profiler_counts_all_other_steps_and_the_functions_around_them() -> None:
    said = _said(
        CALLS
        + """
def train(steps):
    watched(steps)
    work()
    return steps

profile = cProfile.Profile()
profile.enable()
train(20)
ours()
profile.disable()
found = {name: numbers for (_, _, name), numbers in pstats.Stats(profile).stats.items()}
print(*(found[name][0] for name in ("work", "train", "watched", "ours")))
for name in ("watched", "work"):
    print(*sorted(caller for _, _, caller in found[name][4]))
"""
    )
    assert said == ["6", "1", "1", "7", "train", "train", "watched"]


@calls_wait
def test_a_job_that_stops_its_tracer_in_such_a_step_is_left_alone() -> None:
    said = _said(
        CALLS
        + """
sys.settrace(called)
window = TracingWindow("traced_calls", UntracedCalls(sites))
window.open()
work(); window.stays(1)
sys.settrace(None)
work()
print(window.stays(2), "missing" in window.close(2), sys.gettrace())
heard = 0
sys.settrace(called)
work()
print(heard)
"""
    )
    assert said == ["False", "True", "None", "1"]


def test_where_nobody_traces_calls_it_says_so() -> None:
    said = _said(
        CALLS
        + """
print(TracingWindow("traced_calls", UntracedCalls(sites)).obstacle())"""
    )
    assert "nobody" in said
