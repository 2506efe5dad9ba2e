"""Backend: what the job really computes on, and with which libraries.

What it looks at
----------------
Where the optimizer's parameters are; GPUs that NVML, device files or the PCI bus show; the CUDA that torch was built
for, that the driver runs, and the architectures in the build; the BLAS library, oneDNN and the instruction set of
torch's own kernels. PyTorch logs none of this: the line that this check prints is its "Loaded backend" line.

Why it costs time
-----------------
A job on the CPU beside an idle GPU runs without any error, 5 to 100 times slower in its matrix work. oneDNN is the
CPU's cuDNN: without it float32 convolutions were measured 3.4 times slower, bfloat16 products 700 times. A BLAS
without kernels for the CPU multiplies at a tenth of the speed.

Example
-------
    torch.backends.mkldnn.set_flags(_enabled=False)   # for one comparison, and never taken back

How to fix
----------
Install the build for the machine, move the model with `.to(device)`, leave oneDNN on. Several GPUs: one process for
each (DistributedDataParallel), not nn.DataParallel.

When it stays silent
--------------------
When CUDA_VISIBLE_DEVICES is "" or -1, which is a choice. When a step does less than 1e9 floating-point operations:
a reinforcement-learning network was measured 1.2 times faster on the CPU. When a GPU is on the bus but not handed to
this container. When oneDNN is off only inside the forward pass: that is PD02's. Batches that loaders make on the CPU
are normal: copying them is no fault of the backend.

Limits
------
What a GPU would give is a published range, not a measurement, so confidence is low. A tensor made on the CPU inside the
step cannot be told from an ordinary copy of the batch; what copies cost is in the data-loading check. Parameters that
a framework keeps on the CPU on purpose (offloading) look like forgotten ones.

References
----------
- Deeplearning4j, "How to debug performance issues", step 1
- Gao et al., ICSE 2024: CUDA_VISIBLE_DEVICES emptied by a copied script, 481 minutes on the CPU
- pytorch#106565: a CPU-only wheel on a GPU machine
- vwxyzjn/cleanrl#20: a small network slower on the GPU
- PyTorch performance tuning guide: DistributedDataParallel instead of DataParallel
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import (
    Check,
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    not_applicable,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Backend, Evidence, Missing, Step, Threads

from .._shared import onednn
from .._shared.wording import in_words_of
from .unused_gpu import is_hidden, not_handed_over, unused, unused_gpu


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step that a library or a device costs: below, changing an installation is not worth it."""
    error_share: float = 0.25
    """A judgement: a quarter of the step is worth a new installation."""
    min_flops: float = 1e9
    """Floating-point operations of a step below which a GPU may be the slower device: at 10 us a kernel launch, a
    step of some hundred operators takes milliseconds there, and 1e9 operations take 10 ms on one CPU core."""
    min_gflops_per_thread: float = 8.0
    """Products that run slower have no kernel for this CPU: AVX2 cores reach 50 and more, NEON 20, the reference
    BLAS 1 to 3."""


_SLOW_BLAS = ("", "generic", "atlas", "flame", "blis")
"""Without kernels for today's CPUs, or not known to have them; `mkl`, `open`, `nvpl`, `accelerate`, `ssl2` have."""
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_BLAS_SAVES = (0.5, 0.9)
"""OpenBLAS and MKL are 5 to 20 times faster than the reference BLAS; half of the product time is a careful bound."""
_DATA_PARALLEL_SAVES = (0.05, 0.3)
"""Replicating the model, scattering and gathering in one process; not measured here."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The device first, then the CPU's libraries."""
    step, backend = evidence.step, evidence.backend
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(backend, Missing):
        return cannot_tell(f"what torch computes with was not read: {backend}")
    shared = _shared(evidence, backend)
    on_gpu = any(device.startswith(("cuda", "mps", "xpu")) for device in backend.devices)
    findings = (
        [
            *_part_on_cpu(evidence, step, backend, limits),
            *(_data_parallel(evidence, step, backend, limits) or _idle_gpus(evidence, step, backend, limits)),
        ]
        if on_gpu
        else [*_onednn_off(evidence, step, backend, limits), *_slow_blas(evidence, step, backend, limits)]
    )
    if on_gpu:
        return found(*findings, measurements=shared) if findings else clear(_LINE, *shared)
    there = unused(evidence.machine, backend)
    if there is not None and is_hidden(backend):
        if findings:
            return found(*findings, measurements=shared)
        return not_applicable(
            f"CUDA_VISIBLE_DEVICES hides {there.name} on purpose; the job computes on the CPU with torch "
            f"{evidence.job.torch_version}, BLAS {backend.blas or 'unknown'}, kernels for {backend.capability}"
        )
    ops = evidence.ops
    if there is not None and backend.devices:
        if isinstance(ops, Missing):
            return cannot_tell(f"{there.name} is not used, but how much a step computes is not known: {ops}")
        if ops.flops() >= limits.min_flops:
            gpu = unused_gpu(evidence, step, ops, backend, there, limits.error_share)
            return found(gpu, *findings, measurements=shared)
    if findings:
        return found(*findings, measurements=shared)
    if there is not None and not isinstance(ops, Missing):
        small = Measurement("flops", ops.flops(), "flops", "floating-point operations per step")
        return clear(_LINE + f"; {there.name} is not used, and with {{flops}} a step it need not be", *shared, small)
    if not_handed_over(evidence.machine):
        return clear(_LINE + "; the machine's GPU is not handed to this container", *shared)
    return clear(_LINE, *shared)


_LINE = (
    "backend used: {device}, torch {torch}, BLAS {blas}, oneDNN {onednn}, kernels for {capability}, intra-op threads: "
    "{threads}"
)


def _shared(evidence: Evidence, backend: Backend) -> tuple[Measurement, ...]:
    """The "backend used" line of the guide, for which PyTorch has no log of its own."""
    job = evidence.job
    names = {gpu.index: gpu.name for gpu in evidence.machine.gpus}
    devices = [
        f"{device} ({names[int(device[5:])]})" if device[5:].isdecimal() and int(device[5:]) in names else device
        for device in backend.devices
    ]
    build = f"{job.torch_version} for {job.torch_build}" if job.torch_build not in ("", "cpu") else job.torch_version
    onednn = "on" if backend.onednn_enabled else "off"
    if backend.onednn_between_steps and not backend.onednn_enabled:
        onednn = "off in the forward pass (see PD02)"
    return (
        Measurement("device", ", ".join(devices) or "no parameters seen", "text", "device of the parameters"),
        Measurement("torch", build or "of an unnamed version", "text", "torch build"),
        Measurement("blas", backend.blas or "not named", "text", "BLAS"),
        Measurement("onednn", onednn if backend.onednn_built else "not built", "text", "oneDNN in the forward pass"),
        Measurement("capability", backend.capability or "not named", "text", "instruction set of torch's kernels"),
        _threads(evidence.threads),
        Measurement("batch_devices", ", ".join(backend.batch_devices) or "not seen", "text", "batches are made on"),
    )


def _threads(threads: Threads | Missing) -> Measurement:
    if isinstance(threads, Missing):
        return Measurement("threads", "not counted", "text", "intra-op threads")
    return Measurement("threads", threads.intra_op, "count", "intra-op threads")


# -- the CPU's libraries ----------------------------------------------------------------------------------


def _onednn_off(evidence: Evidence, step: Step, backend: Backend, limits: Limits) -> list[Finding]:
    """In the whole process; a switch inside the forward pass is PD02's."""
    if backend.onednn_between_steps:
        return []
    saved = onednn.cost(evidence, step, backend)
    if not onednn.is_worth(saved, step, limits):
        return []
    return [
        onednn.finding(
            "PD01.onednn-off",
            step,
            saved,
            limits,
            message="oneDNN is off in the whole process, so {cost_ms} a step goes to torch's own convolutions, "
            "products and recurrent layers",
            reasoning="`torch.backends.mkldnn.enabled` was False also between the steps",
            more=_shared(evidence, backend),
            location=location(backend.onednn_off_at),
        )
    ]


def _slow_blas(evidence: Evidence, step: Step, backend: Backend, limits: Limits) -> list[Finding]:
    """A BLAS that is not known to be fast, and products that are measured to be slow."""
    ops, threads = evidence.ops, evidence.threads
    if isinstance(ops, Missing) or isinstance(threads, Missing) or backend.acl or backend.blas not in _SLOW_BLAS:
        return []
    products = [op for op in ops.ops if op.name in _PRODUCTS and op.dtype == "float32"]
    spent_ms = sum(op.self_ms_per_step for op in products)
    flops = sum(op.flops_per_step for op in products)
    cost = in_step(step, ops, spent_ms)
    rate = flops / max(spent_ms, 1e-9) / 1e6 / max(1, min(threads.intra_op, evidence.machine.usable_cpus))
    if cost / step.step_ms < limits.min_share or rate >= limits.min_gflops_per_thread:
        return []
    low, high = (part * cost for part in _BLAS_SAVES)
    return [
        Finding(
            id="PD01.slow-blas",
            severity=severity(high / step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="matrix products take {cost_ms} a step at {rate} a second and thread: torch was built with the "
            "BLAS {blas}",
            reasoning="a BLAS with kernels for this CPU (MKL, OpenBLAS, Arm Compute Library) reaches tens of GFLOP a "
            "second on one core",
            evidence=(
                milliseconds("cost_ms", cost, "float32 products per step"),
                Measurement("rate", rate * 1e9, "flops", "a second and thread, measured"),
                *_shared(evidence, backend),
            ),
            fix=Fix(
                text="Install the official wheel, or build torch with OpenBLAS or MKL.",
                code="python -c 'import torch; print(torch.__config__.show())'  # BLAS_INFO=",
                language="bash",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=cost,
                low=low,
                high=high,
                method="the measured time of the products; good libraries are 2 to 10 times faster, not measured here",
            ),
        )
    ]


# -- on a GPU ---------------------------------------------------------------------------------------------


def _part_on_cpu(evidence: Evidence, step: Step, backend: Backend, limits: Limits) -> list[Finding]:
    """Parameters on both sides: the device waits while the host computes."""
    elements = dict(backend.parameters_by_device)
    ops = evidence.ops
    if not elements.get("cpu") or isinstance(ops, Missing) or ops.device_busy_ms is None:
        return []
    idle_ms = max(0.0, step.working_ms - ops.device_busy_ms)
    if idle_ms / step.step_ms < limits.min_share:
        return []
    return [
        Finding(
            id="PD01.part-on-cpu",
            severity=severity(idle_ms / step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.LOW,
            message="{on_cpu} of the parameters are on the CPU, and the GPU stands idle for {idle_ms} a step",
            reasoning="the optimizer holds parameters on {device}; what is on the CPU is computed there, and copied",
            evidence=(
                share("on_cpu", elements["cpu"] / max(1, sum(elements.values())), "of the parameters on the CPU"),
                milliseconds("idle_ms", idle_ms, "without a kernel on the device, per step"),
                *_shared(evidence, backend),
            ),
            fix=Fix(
                text="Move the whole model; a module kept in a plain list or made after `.to()` is left behind.",
                code="model = model.to(device)  # before the optimizer; submodules in nn.ModuleList, not in a list",
                risk="If an offloading framework put them there, the GPU's memory may not hold them.",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=idle_ms,
                low=0.0,
                high=0.9 * idle_ms,
                method="the time without a kernel on the device; how much of it is due to those parameters was not "
                "measured",
            ),
        )
    ]


def _data_parallel(evidence: Evidence, step: Step, backend: Backend, limits: Limits) -> list[Finding]:
    host = evidence.host
    if isinstance(host, Missing) or not backend.data_parallel or len(host.gpus_in_use) < 2:
        return []
    low, high = (part * step.parts.compute for part in _DATA_PARALLEL_SAVES)
    return [
        Finding(
            id="PD01.data-parallel",
            severity=severity(high / step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.LOW,
            message="nn.DataParallel drives {gpus:GPU} from the threads of one process",
            reasoning="it copies the model to every GPU in each step, and its threads share one interpreter lock",
            evidence=(
                Measurement("gpus", len(host.gpus_in_use), "count", "GPUs in use"),
                *_shared(evidence, backend),
            ),
            fix=Fix(
                text="Use DistributedDataParallel, one process for each GPU.",
                code=in_words_of(
                    evidence.job,
                    "model = torch.nn.parallel.DistributedDataParallel(model)  # started by torchrun",
                    lightning=f"trainer = Trainer(..., devices={len(host.gpus_in_use)}, strategy='ddp')",
                    transformers=f"# torchrun --nproc-per-node {len(host.gpus_in_use)} train.py",
                ),
                risk="Batch norm statistics and random numbers are then those of each process.",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                method="not measured here: a judgement from PyTorch's tuning guide",
            ),
        )
    ]


def _idle_gpus(evidence: Evidence, step: Step, backend: Backend, limits: Limits) -> list[Finding]:
    """Beside the one that the job uses, unless somebody chose that one."""
    host = evidence.host
    if isinstance(host, Missing):
        return []
    visible = backend.variable("CUDA_VISIBLE_DEVICES")
    chosen = visible is not None and "," not in visible
    if not host.gpus_idle or len(host.gpus_in_use) != 1 or evidence.job.world_size > 1 or chosen:
        return []
    count = len(host.gpus_idle) + 1
    return [
        Finding(
            id="PD01.idle-gpus",
            severity=severity(0.0, limits.min_share, limits.error_share),
            confidence=Confidence.LOW,
            message="{idle:more GPU of this machine was|more GPUs of this machine were} not used by anybody",
            reasoning="the job has one rank on one GPU, and CUDA_VISIBLE_DEVICES does not confine it to that",
            evidence=(
                Measurement("idle", count - 1, "count", "GPUs that nobody used"),
                *_shared(evidence, backend),
            ),
            fix=Fix(
                text="With DistributedDataParallel each GPU takes a share of the batch; leave them if they are "
                "others' to use.",
                code=f"torchrun --nproc-per-node {count} train.py",
                language="bash",
                risk="A larger global batch changes the optimisation.",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=step.parts.compute * (1 - 1 / count),
                low=0.0,
                high=0.0,
                method="with the same global batch on all of them at best; not predicted",
            ),
        )
    ]


CHECK = Check(code="PD01", name="backend", title="wrong or unused device", limits=Limits(), examine=examine)
