"""Types, threads, libraries and devices: what was read once, joined with what other records say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from ..recording.base import NOT_TIMED
from ..recording.limits import limiting_variables
from ..recording.loading import ShapesSeen
from ..recording.model import ProcessRecording
from .model import (
    NO_LIMIT,
    Backend,
    Cudnn,
    DebuggingAid,
    Deterministic,
    Missing,
    Precision,
    ShapeVariety,
    Threads,
    VectorExtensionTimings,
)

_NO_SETTINGS = Missing("the job ended before its second step")
_THREAD_VARIABLES = ("OMP_", "KMP_", "GOMP_", "MKL_NUM", "OPENBLAS_NUM", "NUMEXPR_")
_READ_AT_IMPORT = ("ATEN_CPU", "ONEDNN_MAX", "DNNL_MAX", "MKL_")
_LEAST_SAMPLED = 20
"""Batches looked at, below which nothing is said of their variety."""


def precision(process: ProcessRecording) -> Precision | Missing:
    """Types in use and what the hardware does with them."""
    if process.settings is None:
        return _NO_SETTINGS
    dtypes = {dtype for seen in process.batches_seen for dtype in seen.dtypes}
    return replace(process.settings.precision, batch_dtypes=tuple(sorted(dtypes)))


def threads(process: ProcessRecording, launch_environment: Mapping[str, str]) -> Threads | Missing:
    """Threads of a rank and the knobs that set them."""
    if process.settings is None:
        return _NO_SETTINGS
    environment = process.settings.environment
    return replace(
        process.settings.threads,
        launch_affinity_cpus=process.header.cpus,
        variables=tuple(
            (name, value) for name, value in sorted(environment.items()) if name.startswith(_THREAD_VARIABLES)
        ),
        torchrun_default=(
            environment.get("OMP_NUM_THREADS") == "1"
            and "TORCHELASTIC_RUN_ID" in environment
            and "OMP_NUM_THREADS" not in launch_environment
        ),
    )


def backend(
    process: ProcessRecording, vector_extension_timings: VectorExtensionTimings | Missing | None
) -> Backend | Missing:
    """What one rank computed with."""
    settings, torch = process.settings, process.torch
    if settings is None or torch is None:
        return _NO_SETTINGS
    found = settings.backend
    return replace(
        found,
        batch_devices=tuple(sorted({device for seen in process.batches_seen for device in seen.devices})),
        variables=_variables(settings.environment, torch.environment, limiting_variables(process)),
        onednn_timings=process.timings.onednn if process.timings else (),
        vector_extension_timings=_limits(vector_extension_timings),
        # A `with` around the whole step is still open when the optimizer has stepped, but not when a batch comes.
        onednn_between_steps=found.onednn_between_steps or any(seen.onednn for seen in process.batches_seen),
    )


def _variables(
    now: Mapping[str, str], at_import: Mapping[str, str], limiting: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """At the second step; those that libraries read when torch is imported as they were then, and those of the
    `limiting` that came later and in time."""
    kept = {name: value for name, value in now.items() if not name.startswith(_READ_AT_IMPORT)}
    kept |= {name: value for name, value in at_import.items() if name.startswith(_READ_AT_IMPORT)}
    return tuple(sorted({**kept, **limiting}.items()))


def _limits(timings: VectorExtensionTimings | Missing | None) -> VectorExtensionTimings | Missing:
    if timings is None:
        return NO_LIMIT
    if isinstance(timings, Missing):
        return Missing(f"what the limit costs was not timed: {timings.reason}")
    return timings if timings.timings else Missing("what the limit costs was not timed: no operator could be replayed")


def cudnn(process: ProcessRecording) -> Cudnn | Missing:
    """cuDNN's settings, and how much the shapes vary that it tunes itself to."""
    if process.settings is None:
        return _NO_SETTINGS
    found, seen = process.settings.cudnn, process.shapes_seen
    if isinstance(found, Missing) or not seen or seen[-1].sampled < _LEAST_SAMPLED:
        return found
    return replace(found, shapes=_variety(seen))


def _variety(seen: tuple[ShapesSeen, ...]) -> ShapeVariety:
    last = seen[-1]
    half = max((row.distinct for row in seen if row.sampled <= last.sampled / 2), default=last.distinct)
    return ShapeVariety(last.sampled, last.distinct, last.distinct - half)


_AIDS = (
    ("PYTHONDEVMODE", (), "Python's development mode"),
    ("PYTHONMALLOC", ("debug", "malloc_debug", "pymalloc_debug"), "a debugging allocator of Python"),
    ("PYTHONTRACEMALLOC", (), "tracing of Python's allocations"),
    ("CUDA_LAUNCH_BLOCKING", (), "a wait after every CUDA kernel"),
    ("TORCH_DISTRIBUTED_DEBUG", ("detail",), "checks of every collective"),
    ("TORCH_LOGS", (), "logs of torch's own"),
    ("TORCH_SHOW_DISPATCH_TRACE", (), "a line for every operator that torch dispatches"),
    ("ONEDNN_VERBOSE", (), "a line for every operator of oneDNN"),
    ("MKL_VERBOSE", (), "a line for every call of MKL"),
    ("NCCL_DEBUG", ("info", "trace"), "logs of NCCL"),
)
"""Variables, the values that switch something on (none: all but "" and 0), and what that is. Of those that cost time in
steps: a line for every import (`-X importtime`) costs the start 20 us for each."""
_KINDS: Mapping[str, Literal["allocator", "tracing"]] = {
    "Python's development mode": "allocator",
    "a debugging allocator of Python": "allocator",
    "tracing of Python's allocations": "tracing",
}
"""Of aids whose cost is measured."""


def deterministic(process: ProcessRecording) -> Deterministic | Missing:
    """Where torch was told so."""
    if process.settings is None:
        return _NO_SETTINGS
    if not process.settings.deterministic:
        return Missing("torch was not told to be deterministic")
    timed = process.timings.deterministic if process.timings else NOT_TIMED
    return Deterministic(process.settings.deterministic_at, timed)


_OPTIONS = {
    "dev": "Python's development mode",
    "tracemalloc": "tracing of Python's allocations",
}
"""Of `python -X`, and what they switch on."""
_SANITIZERS = ("libasan", "libtsan", "libubsan", "liblsan", "libclang_rt")
"""In the names of libraries that check every access to memory, or every lock."""


def debugging(process: ProcessRecording) -> tuple[DebuggingAid, ...] | Missing:
    """Aids that are on and that make every step dearer."""
    if process.settings is None:
        return _NO_SETTINGS
    found = []
    for name, values, what in _AIDS:
        value = process.settings.environment.get(name, "").lower()
        if value in values or (not values and value not in ("", "0")):
            found.append(DebuggingAid(what, f"unset {name}", _KINDS.get(what, "")))
    named = {aid.name for aid in found}
    options = (name for name in process.settings.python_options if _OPTIONS.get(name, "") not in {"", *named})
    found += [
        DebuggingAid(_OPTIONS[name], f"python train.py, without -X {name}", _KINDS[_OPTIONS[name]]) for name in options
    ]
    if any(name in process.settings.environment.get("LD_PRELOAD", "").lower() for name in _SANITIZERS):
        found.append(DebuggingAid("a sanitizer of memory accesses", "unset LD_PRELOAD"))
    tracing, frames = _OPTIONS["tracemalloc"], process.settings.traced_frames
    if frames and not any(aid.name == tracing for aid in found):
        found.append(
            DebuggingAid(f"{tracing}, {frames} frames deep", "no `tracemalloc.start()` before the loop", "tracing")
        )
    tracer = process.settings.tracer
    if tracer:
        told = f"{tracer}, which Python calls for every line or call"
        found.append(DebuggingAid(told, f"python train.py, without {tracer}", "traced_calls"))
    return tuple(found)
