"""Types and threads, from torch's settings."""

from __future__ import annotations

from collections.abc import Mapping

from ..recording.model import ProcessRecording
from .model import DebuggingAid, Missing, Precision, Threads
from .places import Places
from .steady import Selection

_NO_SETTINGS = Missing("the job ended before its second step")
_THREAD_VARIABLES = ("OMP_", "KMP_", "GOMP_", "MKL_NUM", "OPENBLAS_NUM", "NUMEXPR_")


def precision(process: ProcessRecording, places: Places) -> Precision | Missing:
    """Types in use and what the hardware does with them."""
    settings = process.settings
    if settings is None:
        return _NO_SETTINGS
    parameters = settings.parameters
    unknown = Missing("this build of torch does not say")
    return Precision(
        default_dtype=settings.default_dtype,
        parameter_dtypes=tuple(sorted(parameters.dtypes.items(), key=lambda item: -item[1])) if parameters else (),
        parameter_devices=parameters.devices if parameters else (),
        autocast_dtype=settings.autocast,
        grad_scaler=settings.scaler_site >= -1,
        bf16_native=unknown if settings.bf16_native is None else settings.bf16_native,
        fp16_native=unknown if settings.fp16_native is None else settings.fp16_native,
        compute_capability=settings.cuda.capability if settings.cuda else None,
        tf32_matmul=settings.cuda.tf32_matmul if settings.cuda else None,
        grad_scaler_site=places.find(settings.scaler_site),
        double_site=places.find(settings.double_site),
        batch_dtypes=tuple(sorted({dtype for seen in process.batches_seen for dtype in seen.dtypes})),
    )


_AIDS = (
    ("PYTHONDEVMODE", (), "Python's development mode"),
    ("PYTHONMALLOC", ("debug", "malloc_debug", "pymalloc_debug"), "a debugging allocator of Python"),
    ("PYTHONTRACEMALLOC", (), "tracing of Python's allocations"),
    ("CUDA_LAUNCH_BLOCKING", (), "a wait after every CUDA kernel"),
    ("TORCH_DISTRIBUTED_DEBUG", ("detail",), "checks of every collective"),
)
"""Variables, the values that switch something on (none: all but "" and 0), and what that is."""


def debugging(process: ProcessRecording) -> tuple[DebuggingAid, ...] | Missing:
    """Aids that a variable has switched on and that make every step dearer."""
    settings = process.settings
    if settings is None:
        return _NO_SETTINGS
    found = []
    for name, values, what in _AIDS:
        value = settings.environment.get(name, "").lower()
        if value in values or (not values and value not in ("", "0")):
            found.append(DebuggingAid(what, f"unset {name}"))
    return tuple(found)


def threads(
    process: ProcessRecording, places: Places, selection: Selection | None, launch_environment: Mapping[str, str]
) -> Threads | Missing:
    """Threads of a rank and the knobs that set them."""
    settings = process.settings
    if settings is None:
        return _NO_SETTINGS
    switches = selection.per_step("nivcsw") if selection else None
    environment = settings.environment
    return Threads(
        intra_op=settings.intra_op,
        inter_op=settings.inter_op,
        os_threads=settings.os_threads,
        job_affinity_cpus=settings.cpus,
        launch_affinity_cpus=process.header.cpus,
        openmp_runtimes=settings.pools,
        variables=tuple(
            (name, value) for name, value in sorted(environment.items()) if name.startswith(_THREAD_VARIABLES)
        ),
        torchrun_default=(
            environment.get("OMP_NUM_THREADS") == "1"
            and "TORCHELASTIC_RUN_ID" in environment
            and "OMP_NUM_THREADS" not in launch_environment
        ),
        switches_per_step=switches or 0.0,
        set_at=places.find(settings.threads_site),
    )
