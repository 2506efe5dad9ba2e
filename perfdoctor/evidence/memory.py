"""Memory of the training process: page faults and the C allocator, torch's CUDA allocator, useless graphs."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..recording.model import ProcessRecording
from ..recording.process import Call
from .model import CallSite, CudaMemory, EvalWithGrad, HostMemory, Missing, Site
from .steady import Selection

_PAGE_KB = 4
"""Where pages are larger, growth takes off more faults than it caused: those that are left are there."""
_ALLOCATOR_VARIABLES = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "THP_MEM_ALLOC_ENABLE")


def host(process: ProcessRecording, selection: Selection) -> HostMemory | Missing:
    """Counters of the C side, per steady step."""
    faults, system, user = (selection.per_step(name) for name in ("minflt", "stime_us", "utime_us"))
    if faults is None or system is None or user is None or process.settings is None:
        return Missing("too few counter samples in the steady span", "let the job run longer")
    # Pages by which the process only grew were touched for the first time: nobody gave them back.
    grown = min(faults, (selection.per_step("maxrss_kb") or 0.0) / _PAGE_KB)
    peak = max((sample.maxrss_kb for sample in process.samples), default=0) * 1024
    environment = process.settings.environment
    return HostMemory(
        minor_faults=faults - grown,
        system_cpu_ms=system / 1000,
        user_cpu_ms=user / 1000,
        peak_rss_bytes=peak or Missing("the process wrote no counters"),
        allocator=process.settings.allocator,
        malloc_settings=tuple(
            (name, value) for name, value in sorted(environment.items()) if name.startswith(_ALLOCATOR_VARIABLES)
        ),
        eval_with_grad=_eval_with_grad(process, selection),
        empty_cache=calls(process, selection, "empty_cache"),
    )


def calls(process: ProcessRecording, selection: Selection, kind: str) -> tuple[CallSite, ...]:
    """Calls of one wrapped function in the steady span, by line."""
    totals: dict[Site, list[int]] = defaultdict(lambda: [0, 0])
    for call in process.calls:
        if call.kind == kind and call.site is not None and call.step > selection.first:
            totals[call.site][0] += call.count
            totals[call.site][1] += call.us
    found = [
        CallSite(kind, site, count / selection.span, us / 1000 / selection.span) for site, (count, us) in totals.items()
    ]
    return tuple(sorted(found, key=lambda call: -call.ms_per_step))


def calls_of_each_step(process: ProcessRecording, selection: Selection, kind: str) -> tuple[CallSite, ...]:
    """The same of a function that every step calls, as it is in the middle: where a window watches it takes several
    times as long, and an evaluation between two steps calls it as well."""
    told: dict[Site, list[Call]] = defaultdict(list)
    for call in process.calls:
        if call.kind == kind and call.site is not None and call.step > selection.first:
            told[call.site].append(call)
    found = []
    for site, some in told.items():
        steps = np.diff([selection.first, *(call.step for call in some)])
        count = np.array([call.count for call in some])
        each_ms = np.array([call.us for call in some]) / count / 1000
        per_step = float(np.median(np.repeat(count / np.maximum(steps, 1), steps)))
        found.append(CallSite(kind, site, per_step, per_step * float(np.median(np.repeat(each_ms, count)))))
    return tuple(sorted(found, key=lambda call: -call.ms_per_step))


def _eval_with_grad(process: ProcessRecording, selection: Selection) -> EvalWithGrad | None:
    seen = [record for record in process.eval_with_grad if record.step > selection.first]
    if not seen:
        return None
    spent: dict[Site | Missing, int] = defaultdict(int)
    for record in seen:
        spent[record.site] += record.us
    return EvalWithGrad(
        site=max(spent, key=lambda site: spent[site]),
        forwards=sum(record.count for record in seen),
        forward_ms=sum(record.us for record in seen) / 1000 / selection.span,
    )


def cuda(process: ProcessRecording, selection: Selection) -> CudaMemory | Missing:
    """Torch's CUDA caching allocator over the steady span."""
    device = process.settings.cuda if process.settings else None
    if device is None:
        return Missing("the job does not use CUDA")
    if selection.samples is None:
        return Missing("too few counter samples in the steady span", "let the job run longer")
    first, last = (sample.cuda for sample in selection.samples)
    if first is None or last is None:
        return Missing("the CUDA allocator gave no statistics")
    span = selection.samples[1].step - selection.samples[0].step
    environment = process.settings.environment if process.settings else {}
    return CudaMemory(
        backend=device.allocator,
        caching=environment.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") in ("", "0"),
        alloc_retries_per_step=(last.alloc_retries - first.alloc_retries) / span,
        device_allocs_per_step=(last.device_allocs - first.device_allocs) / span,
        peak_allocated_bytes=last.peak_allocated_bytes,
        peak_reserved_bytes=last.peak_reserved_bytes,
        total_bytes=device.total_bytes,
    )
