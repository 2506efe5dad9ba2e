"""What the two windows saw: operators by type and shape, and telling lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..recording.model import OpsWindow, ProcessRecording, SitesWindow
from .model import (
    BatchTiming,
    BatchTimings,
    CallSite,
    DeviceWork,
    DtypeTiming,
    Missing,
    Op,
    OpProfile,
    ThreadTiming,
    UpdateTiming,
)
from .model.operators import NOT_TIMED
from .places import Places

_REMEDY = "let the job run for 20 steps or more"


def profile(process: ProcessRecording) -> OpProfile | Missing:
    """The operator window, per step."""
    window: OpsWindow | None = process.ops
    if window is None:
        return Missing("the operator window was not reached", _REMEDY)
    if window.missing:
        return Missing(f"the operator window could not open: {window.missing}")
    steps = max(1, window.steps)
    copies = {name: us for name, us in window.device.items() if "HtoD" in name}
    kernels = window.device.get("kernels") if window.busy_us is None else window.busy_us
    return OpProfile(
        steps=steps,
        ops=tuple(
            Op(
                name=row.name.removeprefix("aten::"),
                dtype=row.dtype,
                shapes=shown_shapes(row.shapes),
                device="cpu",
                calls_per_step=row.calls / steps,
                self_ms_per_step=row.self_us / 1000 / steps,
                total_ms_per_step=row.total_us / 1000 / steps,
                flops_per_step=row.flops / steps,
            )
            for row in window.ops
        ),
        ops_per_step=window.aten / steps,
        self_ms_per_step=sum(window.self_us.values()) / 1000 / steps,
        self_ms_by_dtype=tuple((dtype, us / 1000 / steps) for dtype, us in sorted(window.self_us.items())),
        timings=tuple(
            DtypeTiming(
                timing.name.removeprefix("aten::"),
                shown_shapes(timing.shapes),
                timing.dtype,
                timing.us / 1000,
                timing.float32_us / 1000,
            )
            for timing in window.timings
        ),
        thread_timings=_thread_timings(process.thread_rounds),
        device_copies_ms=sum(copies.values()) / 1000 / steps,
        pageable_copies_ms=sum(us for name, us in copies.items() if "Pageable" in name) / 1000 / steps,
        device_busy_ms=None if kernels is None else kernels / 1000 / steps,
        pauses_ms=None if window.pauses_us is None else window.pauses_us / 1000 / steps,
        devices=tuple(
            DeviceWork(
                row.index,
                row.streams,
                row.kernels_us / 1000 / steps,
                row.busy_us / 1000 / steps,
                row.active_us / 1000 / steps,
            )
            for row in window.devices
        ),
        batch_timings=_batch_timings(window, steps),
        update=_update(window),
        stray_ms=window.stray_us / 1000 / steps,
    )


def _batch_timings(window: OpsWindow, steps: int) -> BatchTimings | Missing:
    if not window.timed:
        return NOT_TIMED
    if window.batch is None or not window.batch.ops:
        return Missing(
            "no operator of this job could be timed with another batch", "compare two runs with different batches"
        )
    return BatchTimings(
        ops=tuple(
            BatchTiming(
                name=row.name.removeprefix("aten::"),
                shapes=shown_shapes(row.shapes),
                calls_per_step=row.calls / steps,
                milliseconds=row.us / 1000,
                factor=max(2, row.factor),
                larger_milliseconds=row.larger_us / 1000,
                smaller_milliseconds=None if row.smaller_us is None else row.smaller_us / 1000,
            )
            for row in window.batch.ops
        ),
        smaller=max(2, window.batch.smaller),
        peak_gflops=window.batch.peak_gflops,
        floor_ms=window.batch.floor_us / 1000,
    )


def _update(window: OpsWindow) -> UpdateTiming | Missing:
    if not window.timed:
        return NOT_TIMED
    row = window.update
    if row is None:
        return Missing("the optimizer's update was not timed: there is none, it is compiled, or it is not on the CPU")
    if row.missing:
        return Missing(f"the optimizer's update could not be timed: {row.missing}")
    foreach, fused = (None if us is None else us / 1000 for us in (row.foreach_us, row.fused_us))
    return UpdateTiming(row.optimizer, row.made, row.tensors, row.now_us / 1000, foreach, fused, row.part)


def _thread_timings(rounds: Sequence[Mapping[int, float]]) -> tuple[ThreadTiming, ...]:
    """Means over the rounds that timed every number of threads: they lie seconds apart, and neighbours come and go."""
    counts = sorted({threads for one in rounds for threads in one})
    whole = [one for one in rounds if len(one) == len(counts)]
    return tuple(
        ThreadTiming(threads, sum(one[threads] for one in whole) / len(whole) / 1000, len(whole))
        for threads in counts
        if whole
    )


def call_sites(process: ProcessRecording, places: Places) -> tuple[CallSite, ...] | Missing:
    """The call-site window, per step, the most expensive line first."""
    window: SitesWindow | None = process.call_sites
    if window is None:
        return Missing("the call-site window was not reached", _REMEDY)
    if window.missing:
        return Missing(f"the call-site window could not open: {window.missing}")
    steps = max(1, window.steps)
    found = [
        CallSite(call.kind, site, call.count / steps, call.us / 1000 / steps, call.detail, call.by_library)
        for call in window.calls
        if (site := places.find(call.site)) is not None
    ]
    return tuple(sorted(found, key=lambda call: -call.ms_per_step))


def shown_shapes(shapes: tuple[tuple[int, ...], ...]) -> str:
    """`[64, 256] [256, 512]`; scalars and absent arguments are left out."""
    return " ".join(str(list(shape)) for shape in shapes if shape)
