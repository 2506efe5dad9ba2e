"""Devices and libraries, from torch's settings and the timings taken after the job."""

from __future__ import annotations

from collections.abc import Mapping

from ..recording.model import CapTimings as CapTimingsRecord
from ..recording.model import ProcessRecording
from .model import Backend, CapTiming, CapTimings, LibraryTiming, Missing
from .model.backend import NO_CAP
from .operators import shown_shapes
from .places import Places

_READ_AT_IMPORT = ("ATEN_CPU", "ONEDNN_MAX", "DNNL_MAX", "MKL_")


def build(process: ProcessRecording, places: Places, cap_timings: CapTimingsRecord | None) -> Backend | Missing:
    """What one rank computed with."""
    settings, torch = process.settings, process.torch
    if settings is None or torch is None:
        return Missing("the job ended before its second step")
    libraries = settings.libraries
    if libraries is None:
        return Missing("this recording does not say what torch was built with", "record the job again")
    parameters = settings.parameters
    # A device without a count comes from a recording that has none.
    elements = dict.fromkeys(parameters.devices, 0) | dict(parameters.device_elements) if parameters else {}
    return Backend(
        cuda=torch.cuda or "",
        hip=torch.hip or "",
        arch_list=libraries.arch_list,
        blas=libraries.blas,
        onednn_built=libraries.onednn is not False,
        onednn_enabled=settings.mkldnn and settings.onednn_in_forward is not False,
        acl=bool(libraries.acl),
        capability=settings.capability,
        xpu_built=libraries.xpu,
        mps_available=libraries.mps,
        data_parallel=settings.data_parallel,
        parameters_by_device=tuple(sorted(elements.items(), key=lambda item: (-item[1], item[0]))),
        batch_devices=tuple(sorted({device for seen in process.batches_seen for device in seen.devices})),
        variables=_variables(settings.environment, torch.environment),
        onednn_timings=_library_timings(process),
        cap_timings=_cap_timings(cap_timings),
        # A `with` around the whole step is still open when the optimizer has stepped, but not when a batch comes.
        onednn_between_steps=settings.mkldnn or any(seen.onednn for seen in process.batches_seen),
        onednn_off_at=places.find(settings.onednn_site),
    )


def _variables(now: Mapping[str, str], at_import: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """At the second step; those that libraries read when torch is imported as they were then."""
    kept = {name: value for name, value in now.items() if not name.startswith(_READ_AT_IMPORT)}
    kept |= {name: value for name, value in at_import.items() if name.startswith(_READ_AT_IMPORT)}
    return tuple(sorted(kept.items()))


def _library_timings(process: ProcessRecording) -> tuple[LibraryTiming, ...]:
    if process.ops is None:
        return ()
    return tuple(
        LibraryTiming(
            timing.name.removeprefix("aten::"),
            shown_shapes(timing.shapes),
            timing.dtype,
            timing.native_us / 1000,
            timing.onednn_us / 1000,
        )
        for timing in process.ops.onednn
    )


def _cap_timings(record: CapTimingsRecord | None) -> CapTimings | Missing:
    if record is None:
        return NO_CAP
    if record.missing or not record.ops:
        return Missing(f"what the cap costs was not timed: {record.missing or 'no operator could be replayed'}")
    return CapTimings(
        variables=tuple(sorted(record.variables.items())),
        timings=tuple(
            CapTiming(
                timing.name.removeprefix("aten::"),
                shown_shapes(timing.shapes),
                timing.dtype,
                float(timing.calls),
                timing.capped_us / 1000,
                timing.free_us / 1000,
            )
            for timing in record.ops
        ),
        rounds=record.rounds,
        free_capability=record.free_capability,
    )
