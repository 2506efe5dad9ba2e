"""Runs in which a profiler, deterministic algorithms or tests of tensors were left on."""

from __future__ import annotations

from typing import Any

from samples import HOT_LINES, healthy, step, with_

from perfdoctor.evidence.model import (
    AllocatorTiming,
    CallSite,
    DebuggingAid,
    Deterministic,
    DeterministicTiming,
    Evidence,
    Line,
    Mode,
    Modes,
    Parts,
    Profiled,
    ProfilerTiming,
    Site,
    TracingTiming,
)

PROFILER_LINE = Site("train.py", 30, "main")
DETERMINISTIC_LINE = Site("train.py", 8, "main")
TRACED_LINE = Site("train.py", 11, "main")
MODE_LINE = Site("train.py", 60, "main")
ASSERT_LINE = Site("train.py", 47, "main")


def searched(ms: float = 8.0) -> Evidence:
    """transformers looks at 100 calls of modules in each step, of 25 ms."""
    return with_(healthy(), searched_modules=(CallSite("debug.frame", MODE_LINE, 100.0, ms),))


def profiled(**changes: Any) -> Evidence:
    """Every step, of 25 ms, with 1,500 operators that take 2.5 us longer each."""
    found = Profiled(
        share=1.0,
        ending_share=0.0,
        site=PROFILER_LINE,
        options=("record_shapes",),
        ops_per_step=1500.0,
        timing=ProfilerTiming(ops=100, off_ms=0.30, on_ms=0.55),
    )
    return with_(healthy(), profiled=with_(found, **changes))


def deterministic(now_ms: float = 20.0, off_ms: float = 15.0, unfilled_ms: float | None = 15.5) -> Evidence:
    """Passes that take 22 ms in the job."""
    return with_(
        healthy(), deterministic=Deterministic(DETERMINISTIC_LINE, DeterministicTiming(now_ms, off_ms, unfilled_ms))
    )


def tracing(untraced_ms: float = 12.0, rounds: int = 5) -> Evidence:
    """Steps of 25 ms of CPU time; one round was disturbed."""
    timing = TracingTiming(25, (25.0,) * rounds, (untraced_ms,) * (rounds - 1) + (24.9,), TRACED_LINE)
    return with_(healthy(), tracing=timing)


def profiled_calls(untraced_ms: float = 18.0) -> Evidence:
    """Steps of 25 ms of CPU time under cProfile."""
    timing = TracingTiming(0, (25.0,) * 5, (untraced_ms,) * 5, PROFILER_LINE, "cProfile")
    return with_(healthy(), traced_calls=timing)


def debug_allocator(allocating: float = 2.5, calling: float = 1.25, operators_ms: float = 10.0) -> Evidence:
    """Of 24.6 ms of work 14.6 are Python's own."""
    aid = DebuggingAid("a debugging allocator of Python", "unset PYTHONMALLOC", "allocator")
    return with_(
        healthy(),
        debugging=(aid,),
        allocator=AllocatorTiming(allocating, calling),
        ops__self_ms_per_step=operators_ms,
    )


def asserting(ms: float = 3.0, purpose: str = "assert", header: str = "") -> Evidence:
    """A line that tests twelve gradients, between the passes."""
    call = CallSite("scalar_read", ASSERT_LINE, 12.0, 0.02, "other", purpose=purpose)
    line = Line(ASSERT_LINE, "other", 60.0, ms, ms / 2, 0.6, 0.6, 12.0)
    parts = Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=2.0, other=4.7)
    return with_(healthy(), step=step(parts), call_sites=(call,), hot_lines=(line, *HOT_LINES))


def mode_left_on(ms: float = 10.0, share: float = 1.0, **changes: Any) -> Evidence:
    """Steps of 25 ms, with 400 operators whose FLOPs are counted."""
    mode = Mode("FlopCounterMode", "torch.utils.flop_counter", "dispatch", 400.0, (0.9 * ms, ms, 1.2 * ms), MODE_LINE)
    return with_(healthy(), modes=Modes(share, (with_(mode, **changes),)))


def default_device(ms: float = 3.0, site: Site | None = MODE_LINE) -> Evidence:
    """Steps of 25 ms, with 2,500 calls of torch."""
    mode = Mode("DeviceContext", "torch.utils._device", "device", 2_500.0, (ms,), site)
    return with_(healthy(), modes=Modes(1.0, (mode,)))
