"""What a launch ran on, and how it was set up: numbers compare only where these are equal. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from ..evidence.model import Evidence, Gpu, Missing

Fingerprint = dict[str, str]

LOSS_MARGIN = 1e-3
"""Relative. The order of a sum moves a loss by 1e-6 in ten steps; another model, or other data, by more than this."""


def configuration(evidence: Evidence) -> Fingerprint:
    """How the job is set up: batch, workers, threads, device, types, ranks."""
    found = {"ranks": str(evidence.job.world_size), "compiled": str(evidence.job.compiled).lower()}
    if not isinstance(evidence.step, Missing) and not isinstance(evidence.step.samples, Missing):
        found["samples per step"] = f"{evidence.step.samples:.4g}"
    if not isinstance(evidence.loaders, Missing):
        found["batch size"] = _listed(loader.batch_size for loader in evidence.loaders)
        found["loader workers"] = _listed(loader.num_workers for loader in evidence.loaders)
    if not isinstance(evidence.threads, Missing):
        found["intra-op threads"] = str(evidence.threads.intra_op)
    if not isinstance(evidence.precision, Missing):
        precision = evidence.precision
        found["device"] = _listed(precision.parameter_devices)
        found["parameter types"] = _listed(name for name, _ in precision.parameter_dtypes)
        found["autocast"] = precision.autocast_dtype or "off"
    return found


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values})) or "none"


def machine(evidence: Evidence) -> Fingerprint:
    """What it ran on, without anything that changes from one minute to the next."""
    here = evidence.machine
    found = {
        "cpu": here.cpu_model,
        "cpu flags": hashlib.sha256(" ".join(sorted(here.cpu.flags)).encode()).hexdigest()[:12],
        "cpus": str(here.affinity_cpus),
        "cpu quota": "none" if here.quota_cpus is None else f"{here.quota_cpus:g}",
        "memory": f"{here.memory_bytes / 2**30:.0f} GiB",
        "kernel": here.kernel,
        "libc": here.libc,
        "container image": here.container,
        "python": evidence.job.python_version,
        "torch": f"{evidence.job.torch_version} {evidence.job.torch_build}",
        "gpus": ", ".join(map(_gpu, here.gpus)) or "none",
    }
    if not isinstance(evidence.backend, Missing):
        found["blas"] = evidence.backend.blas
        found["instruction set"] = evidence.backend.capability
    if not isinstance(evidence.threads, Missing):
        found["inter-op threads"] = str(evidence.threads.inter_op)
        found["thread pools"] = _listed(evidence.threads.openmp_runtimes)
        found["thread variables"] = _listed(f"{name}={value}" for name, value in evidence.threads.variables)
    # What nobody could tell is left out.
    return {name: value for name, value in found.items() if value}


def _gpu(gpu: Gpu) -> str:
    """The clock that it may reach is part of how it is set up."""
    clock = f", up to {gpu.max_sm_clock_mhz} MHz" if gpu.max_sm_clock_mhz else ""
    return f"{gpu.name} (driver {gpu.driver}{clock})"


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """`batch size 64, then 32`, for what both arms know."""
    return tuple(
        f"{name} {value}, then {after[name]}"
        for name, value in before.items()
        if name in after and after[name] != value
    )


def torch_minor(fingerprint: Mapping[str, str]) -> str:
    """`2.13` of `2.13.0 cpu`: another one may call other operators for the same program."""
    return ".".join(fingerprint.get("torch", "").split(" ")[0].split(".")[:2])


def losses_differ(before: Evidence, after: Evidence) -> str:
    """Says so when the two compute something else: their losses in the steps that were counted; "" when not."""
    one, other = before.counters, after.counters
    if isinstance(one, Missing) or isinstance(other, Missing) or one.first_step != other.first_step:
        return ""
    for old, new in zip(one.losses, other.losses, strict=False):
        if abs(old - new) > LOSS_MARGIN * max(abs(old), abs(new), 1e-12) or (old != old) != (new != new):
            return f"loss {old:.6g}, then {new:.6g} in the same early step"
    return ""
