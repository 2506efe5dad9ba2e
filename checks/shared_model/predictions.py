"""What is left of so many requests once a batch or processes answer them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfdoctor.api.findings import Fix
from perfdoctor.api.quantities import Missing, RequestTiming

from . import fixes
from .case import Forwards

_HANDOVER_MS = (0.02, 0.1)
"""A request's way through a queue and a future: 0.08 ms measured on two cores with four clients. It is a judgement
how much less an idle machine takes."""
_QUEUED_MS = (0.003, 0.03)
"""The same where requests wait already: nobody has to be woken, and a batch is drawn and stacked at once."""
_LARGEST_BATCH = 32
"""Of queued requests, in a prediction: as many are timed, and answers should not wait for more."""
_BATCH_PREFERRED = 0.6
"""A judgement: processes hold a model each and need CPUs of their own, so they must save that much more."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is left of the time that forwards take now."""

    fix: Fix
    best_ms: float
    worst_ms: float
    method: str

    def saves(self, now_ms: float) -> float:
        """Share of `now_ms`, the middle of the range."""
        return max(0.0, 1 - (self.best_ms + self.worst_ms) / 2 / max(1e-9, now_ms))


def for_requests(case: Forwards, requests: float, now_ms: float) -> Prediction | None:
    """For so many requests that take `now_ms` together: a batch, unless processes would save far more."""
    processes, timing = _processes(case, requests), case.seen.timing
    if not case.seen.shared or isinstance(timing, Missing) or not timing.timed:
        return processes
    batch = _batch(case, timing, requests)
    if processes is None or batch.saves(now_ms) >= _BATCH_PREFERRED * processes.saves(now_ms):
        return batch
    return processes


def queued(case: Forwards, under_way: float) -> float:
    """Requests that one batch could take: those under way and those that wait in the queue behind them."""
    backlog = case.seen.backlog
    if isinstance(backlog, Missing):
        return under_way
    return max(under_way, min(_LARGEST_BATCH, under_way + backlog))


def _batch(case: Forwards, timing: RequestTiming, requests: float) -> Prediction:
    """Time until a batch of all requests under way is done: its operators, Python once, a hand-over for each."""
    seen, alone = case.seen, case.seen.cpu_ms or case.seen.wall_ms
    known = timing.timed / max(1, timing.ops)
    least = max(0.0, (seen.least_cpu_ms or alone) - timing.one_ms)
    mean = max(0.0, alone - timing.one_ms)
    operators = timing.of(requests)
    backlog = seen.backlog
    each = _HANDOVER_MS if isinstance(backlog, Missing) or backlog < 1 else _QUEUED_MS
    return Prediction(
        fixes.batch(case.evidence.job),
        best_ms=(operators + least) / case.running[0] + requests * each[0],
        worst_ms=(operators + mean * (known + (1 - known) * requests)) / case.running[1] + requests * each[1],
        method="the operators of one forward pass timed in the job for one request and for {copies} as a batch, "
        "Python's share once per batch, and "
        + ("0.02 to 0.1 ms" if each is _HANDOVER_MS else "3 to 30 us")
        + " per request for the queue",
    )


def _processes(case: Forwards, requests: float) -> Prediction | None:
    """As many forwards at once as there are CPUs, each with an interpreter of its own."""
    count = min(math.ceil(requests), int(case.usable))
    if count < 2 or not case.seen.cpu_ms:
        return None
    rounds = max(1.0, requests / count)
    return Prediction(
        fixes.processes(count),
        best_ms=case.seen.least_cpu_ms * rounds / case.running[0] + _HANDOVER_MS[0],
        worst_ms=case.seen.cpu_ms * rounds / case.running[1] + _HANDOVER_MS[1],
        method="the CPU time of the fastest and of the mean measured forward pass, on {usable:CPU}",
    )
