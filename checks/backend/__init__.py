"""Backend: what the job really computes on, and with which libraries.

What it looks at
----------------
Where the optimizer's parameters are; GPUs that NVML, device files or the PCI bus show; the CUDA that torch was built
for, that the driver runs, and the architectures in the build; the BLAS library, oneDNN and the vector extensions of
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
each (DistributedDataParallel), not nn.DataParallel. Under Spark: one GPU for each task
(`spark.task.resource.gpu.amount=1`), a core of the executor for each of its GPUs, and
`TorchDistributor(num_processes=...)` with as many processes as there are GPUs. Its ranks are those of
DistributedDataParallel, which averages gradients in every step: the modern form of averaging parameters every few
batches.

When it stays silent
--------------------
When CUDA_VISIBLE_DEVICES is "" or -1, which is a choice. When a step does less than 1e9 floating-point operations: the
CPU had a speed-up of 1.2x over the GPU for a reinforcement-learning network. When a GPU is on the bus but not handed to
this container. When oneDNN is off only inside the forward pass: that is PD02's. Batches that loaders make on the CPU
are normal: copying them is no fault of the backend.

Limits
------
What a GPU would give is a published range, not a measurement, so confidence is low. How many tasks an executor of
Spark's runs at a time follows from its settings, not from what ran. A tensor made on the CPU inside the step cannot be
told from an ordinary copy of the batch; what copies cost is in the data-loading check. Parameters that a framework
keeps on the CPU on purpose (offloading) look like forgotten ones.

References
----------
- Deeplearning4j, "How to debug performance issues", step 1
- Gao et al., ICSE 2024: CUDA_VISIBLE_DEVICES emptied by a copied script, 481 minutes on the CPU
- pytorch#106565: a CPU-only wheel on a GPU machine
- vwxyzjn/cleanrl#20: a small network slower on the GPU
- PyTorch performance tuning guide: DistributedDataParallel instead of DataParallel
- Deeplearning4j, "Running Deep Learning on Distributed GPUs With Spark": GPUs by executor, parameter averaging
- Spark, "Custom Resource Scheduling": the amounts of an executor and of a task
"""

from __future__ import annotations

from perfdoctor.api.findings import (
    Check,
    Finding,
    Measurement,
    Outcome,
    cannot_tell,
    clear,
    found,
    not_applicable,
    present,
)
from perfdoctor.api.quantities import Evidence, Missing

from .._shared.onednn import onednn_off
from .case import Case, Limits
from .gpus import data_parallel, idle_gpus, part_on_cpu
from .slow_blas import slow_blas
from .spark import idle_under_spark
from .unused_gpu import is_hidden, not_handed_over, unused, unused_gpu


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The device first, then the CPU's libraries."""
    step, backend = evidence.step, evidence.backend
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(backend, Missing):
        return cannot_tell(f"what torch computes with was not read: {backend}")
    case = Case(evidence, step, backend, limits)
    if case.on_gpu:
        findings = present(part_on_cpu(case), data_parallel(case) or idle_under_spark(case) or idle_gpus(case))
        return found(*findings, measurements=case.used()) if findings else clear(case.told, *case.used())
    findings = present(_onednn_off(case), slow_blas(case))
    there, ops = unused(evidence.machine, backend), evidence.ops
    if there is None:
        findings = present(*findings, idle_under_spark(case))
    hidden = there is not None and is_hidden(backend)
    if there is not None and backend.devices and not hidden:
        if isinstance(ops, Missing):
            return cannot_tell(f"{there.name} is not used, but how much a step computes is not known: {ops}")
        if ops.flops() >= limits.min_flops:
            return found(unused_gpu(case, ops, there), *findings, measurements=case.used())
    if findings:
        return found(*findings, measurements=case.used())
    if there is not None and hidden:
        return not_applicable(
            f"CUDA_VISIBLE_DEVICES hides {there.name} on purpose; the job computes on the CPU with torch "
            f"{evidence.job.torch_version}, BLAS {backend.blas or 'unknown'}, vector extensions {backend.capability}"
        )
    if there is not None and not isinstance(ops, Missing):
        small = Measurement("flops", ops.flops(), "flops", "floating-point operations per step")
        return clear(
            case.told + f"; {there.name} is not used, and {{flops}} per step do not need it", *case.used(), small
        )
    if not_handed_over(evidence.machine):
        return clear(case.told + "; the machine's GPU is not handed to this container", *case.used())
    return clear(case.told, *case.used())


def _onednn_off(case: Case) -> Finding | None:
    """In the whole process; a switch inside the forward pass is PD02's."""
    if case.backend.onednn_between_steps:
        return None
    return onednn_off(
        "PD01.onednn-off",
        case.evidence,
        case.step,
        case.backend,
        min_share=case.limits.min_share,
        error_share=case.limits.error_share,
        message="oneDNN is off in the whole process",
        reasoning="`torch.backends.mkldnn.enabled` was False also between the steps, so torch's own kernels do the "
        "convolutions, matrix products and recurrent layers",
        at=case.backend.onednn_off_at,
        more=case.used(),
    )


CHECK = Check(code="PD01", name="backend", title="wrong or unused device", limits=Limits(), examine=examine)
