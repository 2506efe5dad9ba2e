"""What an operator takes longer while a profiler is on, timed after the job's last step on a small network of our own.

Its operators are so small that they take what Python, the dispatcher and autograd take, to which a profiler adds.
"""

import time
from _thread import get_ident

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..rows import milliseconds
from . import replay

_LAYERS, _WIDTH, _BATCH = 8, 16, 4
_PASSES = 20
"""In a row: what starting a profiler takes is not counted, but its first records are dearer."""
_ROUNDS = 5
_LIMIT_NS = 1_000_000_000
"""The round in which it is reached is the last: a profiler with stacks takes long to stop."""


def timings(profilers, options: "dict[str, bool]") -> dict:
    """Milliseconds of the network's passes with such a profiler and without, and how many operators they have; nothing
    where this cannot be told now. A profiler of the job's that is on is left on, and does not hear of half of the
    passes; one that is not is stood in for by one of ours."""
    theirs = torch.autograd._profiler_enabled()
    # A profiler of ours would complain on another thread; and hooks of the job's are around every module.
    if profilers.home != get_ident() or not replay.alone() or torch.nn.modules.module._has_any_global_hook():
        return {}
    state = torch.get_rng_state()
    try:
        passes = _Passes()
        measure = _beside_theirs if theirs else _with_ours
        began, rounds = time.perf_counter_ns(), []
        while len(rounds) < 1 + _ROUNDS and (len(rounds) < 2 or time.perf_counter_ns() - began < _LIMIT_NS):
            rounds.append(measure(passes, profilers, options))
        off, on = (min(times) for times in zip(*rounds[1:]))
        return {"ops": passes.ops(), "off_ms": milliseconds(off), "on_ms": milliseconds(on)}
    finally:
        torch.set_rng_state(state)


class _Passes:
    """Forward and backward of the network."""

    def __init__(self) -> None:
        layers = [(torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU()) for _ in range(_LAYERS)]
        self.network = torch.nn.Sequential(*(one for pair in layers for one in pair)).float().to("cpu")
        self.inputs = torch.ones(_BATCH, _WIDTH, dtype=torch.float32, device="cpu")
        self.weights = tuple(self.network.parameters())

    def run(self) -> None:
        """Once."""
        with torch.enable_grad():
            total = self.network(self.inputs).square().mean()
            replay.run_backward(total, torch.ones_like(total), self.weights)

    def ops(self) -> int:
        """Operators of one run, as the call-site window counts them."""
        with _Count() as count:
            self.run()
        return count.ops

    def cpu_ns(self) -> int:
        """Of the thread's CPU time, in one run of a row."""
        began = time.thread_time_ns()
        for _ in range(_PASSES):
            self.run()
        return (time.thread_time_ns() - began) // _PASSES


class _Count(TorchDispatchMode):
    ops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch imports Dynamo, a second for a job without it.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops += 1
        return func(*args, **(kwargs or {}))


def _with_ours(passes: _Passes, profilers, options: "dict[str, bool]") -> "tuple[int, int]":
    from torch.autograd.profiler import profile

    from ..windows.operators import QuietKineto

    off = passes.cpu_ns()
    ours = profile(use_device=None, **options)
    profilers.start_ours(ours, QuietKineto())
    try:
        return off, passes.cpu_ns()
    finally:
        with QuietKineto():
            ours.__exit__(None, None, None)


def _beside_theirs(passes: _Passes, profilers, options: "dict[str, bool]") -> "tuple[int, int]":
    """Python's calls, which one with stacks hears of as well, are in both."""
    torch._C._autograd._enable_record_function(False)
    try:
        off = passes.cpu_ns()
    finally:
        torch._C._autograd._enable_record_function(True)
    return off, passes.cpu_ns()
