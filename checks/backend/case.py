"""What every finding about the backend needs, and from where on one is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Measurement
from perfdoctor.api.quantities import Backend, Communication, Evidence, Missing, Step, Threads


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


USED = (
    "backend used: {device}, torch {torch}, BLAS {blas}, oneDNN {onednn}, vector extensions {capability}, intra-op "
    "threads: {threads}"
)
"""The "Loaded backend" line of the guide, for which PyTorch has no log of its own."""
_UNDER_SPARK = (
    "; Spark gives {executor_gpus:GPU} to an executor and {task_gpus} to a task; DistributedDataParallel {averaged}"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step and what torch computes it with."""

    evidence: Evidence
    step: Step
    backend: Backend
    limits: Limits

    @property
    def on_gpu(self) -> bool:
        """Whether any of the optimizer's parameters are on an accelerator."""
        return any(device.startswith(("cuda", "mps", "xpu")) for device in self.backend.devices)

    @property
    def told(self) -> str:
        """What the job computes with, in words that `used` fills."""
        return USED if isinstance(self.evidence.spark, Missing) else USED + _UNDER_SPARK

    @property
    def gpus_of_rank(self) -> int:
        """GPUs that hold parameters of this rank."""
        return sum(device.startswith("cuda") for device in self.backend.devices)

    def used(self) -> tuple[Measurement, ...]:
        """What fills `told`."""
        job, backend = self.evidence.job, self.backend
        names = {gpu.index: gpu.name for gpu in self.evidence.machine.gpus}
        devices = [
            f"{device} ({names[int(device[5:])]})" if device[5:].isdecimal() and int(device[5:]) in names else device
            for device in backend.devices
        ]
        version = job.torch_version
        build = f"{version} for {job.torch_build}" if job.torch_build not in ("", "cpu") else version
        onednn = "on" if backend.onednn_enabled else "off"
        if not backend.onednn_built:
            onednn = "not built"
        elif backend.onednn_between_steps and not backend.onednn_enabled:
            onednn = "off in the forward pass (see PD02)"
        return (
            Measurement("device", ", ".join(devices) or "no parameters seen", "text", "device of the parameters"),
            Measurement("torch", build or "of an unnamed version", "text", "torch build"),
            Measurement("blas", backend.blas or "not named", "text", "BLAS"),
            Measurement("onednn", onednn, "text", "oneDNN in the forward pass"),
            Measurement(
                "capability", backend.capability or "not named", "text", "vector extensions of torch's own kernels"
            ),
            _threads(self.evidence.threads),
            Measurement("batch_devices", ", ".join(backend.batch_devices) or "not seen", "text", "batches are made on"),
            *self._under_spark(),
        )

    def _under_spark(self) -> tuple[Measurement, ...]:
        spark, together = self.evidence.spark, self.evidence.communication
        if isinstance(spark, Missing):
            return ()
        with_ddp = isinstance(together, Communication) and together.model is not None
        return (
            Measurement("executor_gpus", round(spark.executor_gpus or 0), "count", "GPUs of an executor of Spark's"),
            Measurement("task_gpus", f"{spark.task_gpus or 0:g}", "text", "GPUs of a task of Spark's"),
            Measurement(
                "averaged",
                "averages gradients in every step" if with_ddp else "was not seen",
                "text",
                "DistributedDataParallel",
            ),
        )


def _threads(threads: Threads | Missing) -> Measurement:
    if isinstance(threads, Missing):
        return Measurement("threads", "not counted", "text", "intra-op threads")
    return Measurement("threads", threads.intra_op, "count", "intra-op threads")
