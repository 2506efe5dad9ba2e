"""Forwards on several threads, from the probe's counters."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from ..recording.model import ProcessRecording
from ..recording.process import ForwardsSeen
from .model import NO_QUEUE, Concurrency, Missing, RequestTiming, Site
from .steady import Selection

_FEW = 5
"""Fewer measured forwards give no share."""
_NO_SITE = Missing("no overlapping forward was measured")


def build(process: ProcessRecording, selection: Selection) -> Concurrency | Missing:
    """The counters of the steady span."""
    fault = next((fault.error for fault in process.faults if fault.hook in ("concurrency", "forward")), "")
    if fault:
        return Missing(f"the hook that counts forwards failed: {fault}")
    if process.settings is None:
        return Missing("the job ended before its second step")
    seen = [record for record in process.forwards_seen if record.step > selection.first]
    calls = sum(record.calls for record in seen)
    threads = max((record.threads for record in seen), default=1)
    if not calls or threads < 2:
        return Concurrency(forwards=int(selection.column("micro").sum()))
    together, alone = _total(seen, "together"), _total(seen, "alone")
    busy_us = max(1, sum(record.busy_us for record in seen))
    least = [r.least_cpu_us for r in seen if r.together[0] + r.alone[0] >= _FEW and r.least_cpu_us]
    wall_us = max(1, together[1])
    # Behind a lock of the job's own there are none together.
    queued = [record.backlog for record in seen if record.backlog is not None]
    counted = together if together[0] >= _FEW else alone
    cpu_us = counted[2] / max(1, counted[0])
    return Concurrency(
        threads=threads,
        shared=any(record.shared for record in seen),
        forwards=calls,
        overlapped_share=sum(record.overlapped for record in seen) / calls,
        in_flight=1 + sum(record.others for record in seen) / calls,
        wall_ms=busy_us / calls / 1000,
        measured=together[0],
        cpu_ms=cpu_us / 1000,
        least_cpu_ms=(median(least) if least else cpu_us) / 1000,
        blocked_share=_blocked(together) / wall_us,
        delay_share=min(1.0, together[3] / wall_us),
        blocked_alone_share=(
            _blocked(alone) / max(1, alone[1])
            if alone[0] >= _FEW
            else Missing("hardly a forward ran while no other did")
        ),
        occupied_share=busy_us / max(1, sum(record.us for record in seen)),
        waiters=sum(record.waiters for record in seen) / max(1, together[0] + alone[0]),
        in_training=sum(record.in_training for record in seen),
        eval_with_grad=sum(record.eval_with_grad for record in seen),
        eval_with_grad_share=min(1.0, sum(record.eval_with_grad_us for record in seen) / busy_us),
        backwards=sum(record.backwards for record in seen),
        site=next((record.site for record in seen if isinstance(record.site, Site)), _NO_SITE),
        timing=_timing(process.request_rounds),
        backlog=median(queued) if queued else NO_QUEUE,
    )


def _total(seen: list[ForwardsSeen], name: str) -> tuple[int, ...]:
    """Forwards, wall, CPU and delay, microseconds."""
    return tuple(sum(column) for column in zip(*(getattr(record, name) for record in seen), strict=True))


def _blocked(total: tuple[int, ...]) -> int:
    return max(0, total[1] - total[2] - total[3])


def _timing(rounds: tuple[RequestTiming, ...]) -> RequestTiming | Missing:
    if not rounds:
        return Missing("no forward could be timed as a batch", "let the job run longer")
    return replace(
        rounds[0],
        # Other threads only ever make CPU time longer: caches and switches. Waits by the clock come and go.
        one_ms=min(one.one_ms for one in rounds),
        batch_ms=min(one.batch_ms for one in rounds),
        team_ms=median(one.team_ms for one in rounds),
        single_ms=median(one.single_ms for one in rounds),
        rounds=len(rounds),
    )
