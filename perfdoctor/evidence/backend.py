"""Devices and libraries, from torch's settings and the prices taken after the job."""

from __future__ import annotations

from collections.abc import Mapping

from ..recording.model import CapPrices as CapPricesRecord
from ..recording.model import ProcessRecording
from .model import Backend, CapPrice, CapPrices, LibraryPrice, Missing
from .model.backend import NO_CAP
from .operators import shown_shapes
from .places import Places

_READ_AT_IMPORT = ("ATEN_CPU", "ONEDNN_MAX", "DNNL_MAX", "MKL_")


def build(process: ProcessRecording, places: Places, cap_prices: CapPricesRecord | None) -> Backend | Missing:
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
        onednn_prices=_library_prices(process),
        cap_prices=_cap_prices(cap_prices),
        # A `with` around the whole step is still open when the optimizer has stepped, but not when a batch comes.
        onednn_between_steps=settings.mkldnn or any(seen.onednn for seen in process.batches_seen),
        onednn_off_at=places.find(settings.onednn_site),
    )


def _variables(now: Mapping[str, str], at_import: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """At the second step; those that libraries read when torch is imported as they were then."""
    kept = {name: value for name, value in now.items() if not name.startswith(_READ_AT_IMPORT)}
    kept |= {name: value for name, value in at_import.items() if name.startswith(_READ_AT_IMPORT)}
    return tuple(sorted(kept.items()))


def _library_prices(process: ProcessRecording) -> tuple[LibraryPrice, ...]:
    if process.ops is None:
        return ()
    return tuple(
        LibraryPrice(
            price.name.removeprefix("aten::"),
            shown_shapes(price.shapes),
            price.dtype,
            price.native_us / 1000,
            price.onednn_us / 1000,
        )
        for price in process.ops.onednn
    )


def _cap_prices(record: CapPricesRecord | None) -> CapPrices | Missing:
    if record is None:
        return NO_CAP
    if record.missing or not record.ops:
        return Missing(f"what the cap costs was not timed: {record.missing or 'no operator could be replayed'}")
    return CapPrices(
        variables=tuple(sorted(record.variables.items())),
        prices=tuple(
            CapPrice(
                price.name.removeprefix("aten::"),
                shown_shapes(price.shapes),
                price.dtype,
                float(price.calls),
                price.capped_us / 1000,
                price.free_us / 1000,
            )
            for price in record.ops
        ),
        rounds=record.rounds,
        free_capability=record.free_capability,
    )
