"""A GPU that is there while the parameters are on the CPU: why, and what that may cost."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Backend, Machine, OpProfile

from .._shared.lines import model_place
from .case import Case

_GPU_SAVES = (0.8, 0.99)
"""A speed-up of 5x to 100x for matrix work, the range that vendors and users publish; not measured here."""
_HIDDEN = ("", "-1", "none", "nodevfiles")
"""Values of CUDA_VISIBLE_DEVICES that say "no GPU"."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What the machine has, and why torch does not compute on it."""

    name: str
    fault: str
    """Name of the finding: `cpu-only-build`, `no-driver`, ..."""
    message: str
    reasoning: str
    fix: Fix


def is_hidden(backend: Backend) -> bool:
    """Whether the job was told to leave GPUs alone."""
    value = backend.variable("CUDA_VISIBLE_DEVICES")
    return value is not None and value.strip().lower() in _HIDDEN


def unused(machine: Machine, backend: Backend) -> Accelerator | None:
    """The accelerator that this job could use, or could with another driver or build; None without one."""
    if backend.mps_available:
        return _available("the Mac's GPU (MPS)", "mps")
    intel = any(gpu.vendor == "intel" for gpu in machine.pci_gpus)
    if backend.xpu_built and intel:
        return _available("the Intel GPU (XPU)", "xpu")
    return _nvidia(machine, backend)


def not_handed_over(machine: Machine) -> bool:
    """The PCI bus shows an NVIDIA GPU with its driver, but there is no device file: other containers have it."""
    bound = any(gpu.vendor == "nvidia" and gpu.driver == "nvidia" for gpu in machine.pci_gpus)
    return bound and not machine.gpus and not machine.gpu_nodes


def _nvidia(machine: Machine, backend: Backend) -> Accelerator | None:
    # A card that is bound to vfio-pci belongs to a virtual machine.
    without_driver = [gpu for gpu in machine.pci_gpus if gpu.vendor == "nvidia" and gpu.driver in ("", "nouveau")]
    if not machine.gpus and not machine.gpu_nodes and not without_driver:
        return None
    name = machine.gpus[0].name if machine.gpus else "an NVIDIA GPU"
    if not backend.cuda:
        wheel = _wheel(machine)
        return Accelerator(
            name,
            "cpu-only-build",
            "torch is built without CUDA, and {accelerator} is idle",
            "torch {build} cannot use a GPU, whatever the driver: `torch.version.cuda` is None",
            Fix(
                text="Install a build with CUDA that the driver supports.",
                code=f"pip install torch --index-url https://download.pytorch.org/whl/{wheel} --force-reinstall",
                language="bash",
                risk="A package that pins the CPU build may bring it back.",
            ),
        )
    if not machine.gpus:
        return Accelerator(
            name,
            "no-driver",
            "the driver of {accelerator} cannot be used",
            "NVML lists no GPU although " + ("device files" if machine.gpu_nodes else "the PCI bus") + " show one",
            Fix(
                text="Install or repair the NVIDIA driver; in a container, start it with the NVIDIA runtime.",
                code="nvidia-smi  # must list the GPU first\ndocker run --gpus all ...",
                language="bash",
            ),
        )
    built = _version(backend.cuda)
    # CUDA's minor versions are compatible within a major one since 11: only an older major is too old.
    if machine.cuda_driver is not None and built is not None and machine.cuda_driver[0] < built[0]:
        return Accelerator(
            name,
            "driver-too-old",
            "the driver runs CUDA {driver} at most, but torch is built for CUDA {cuda}",
            "torch.cuda.is_available() is False with a driver of an older major version",
            Fix(
                text="Update the driver, or install a build for the CUDA that it runs.",
                code=f"pip install torch --index-url https://download.pytorch.org/whl/{_wheel(machine)}",
                language="bash",
            ),
        )
    capability = machine.gpus[0].capability
    if capability is not None and backend.arch_list and not is_supported(capability, backend.arch_list):
        return Accelerator(
            name,
            "architecture-not-built",
            "torch has no code for {accelerator}",
            "the GPU has compute capability {capability}; the build holds {architectures}",
            Fix(
                text="Install a build that holds this architecture: older GPUs need the wheels for an older CUDA "
                "(cu126 for Volta and Pascal), new ones a newer torch.",
                code="pip install torch --index-url https://download.pytorch.org/whl/cu126",
                language="bash",
            ),
        )
    return _available(name, "cuda")


def _available(name: str, device: str) -> Accelerator:
    return Accelerator(
        name,
        "model-on-cpu" if device == "cuda" else "accelerator-unused",
        "the model is on the CPU, and {accelerator} is idle",
        "the optimizer's parameters were on the CPU in the second step",
        Fix(
            text="Move the model before the optimizer is made, and each batch in the loop.",
            code=f"device = torch.device({device!r})\nmodel = model.to(device)\n"
            "for batch in loader:\n    batch = batch.to(device, non_blocking=True)",
            risk="Small batches may be faster on the CPU: compare.",
        ),
    )


def is_supported(capability: tuple[int, int], architectures: tuple[str, ...]) -> bool:
    """Machine code runs on the same major version from its minor on, PTX on everything later."""
    for architecture in architectures:
        kind, _, digits = architecture.partition("_")
        digits = digits.rstrip("af")  # sm_90a: for that architecture alone, but of it
        if not digits.isdecimal() or len(digits) < 2:
            continue
        version = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and version[0] == capability[0] and version[1] <= capability[1]:
            return True
        if kind == "compute" and version <= capability:
            return True
    return False


def _version(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _wheel(machine: Machine) -> str:
    """The newest wheel of today whose CUDA the driver runs."""
    newest = machine.cuda_driver
    return "cu130" if newest is not None and newest >= (13, 0) else "cu126"


def unused_gpu(case: Case, ops: OpProfile, there: Accelerator) -> Finding:
    """Its cost is the computing part of the step, of which a GPU would leave little."""
    machine, step = case.evidence.machine, case.step
    capability = machine.gpus[0].capability if machine.gpus else None
    matrix_ms = in_step(step, ops, sum(op.self_ms_per_step for op in ops.ops if op.flops_per_step > 0))
    cost = Cost(step, step.parts.compute or step.working_ms)
    low, high = _GPU_SAVES
    return Finding(
        id=f"PD01.{there.fault}",
        severity=cost.severity(0.05, case.limits.error_share),
        confidence=Confidence.LOW,
        message=there.message + ": the CPU computes for {cost_ms} per step",
        reasoning=there.reasoning,
        evidence=(
            Measurement("accelerator", there.name, "text", "accelerator"),
            *cost.measured("forward, backward and optimizer on the CPU per step"),
            milliseconds("matrix_ms", matrix_ms, "of it in matrix products and convolutions"),
            Measurement("flops", ops.flops(), "flops", "floating-point operations per step"),
            Measurement("build", case.evidence.job.torch_version or "unnamed version", "text", "torch"),
            Measurement("cuda", case.backend.cuda or "none", "text", "CUDA of the build"),
            Measurement("driver", _dotted(machine.cuda_driver), "text", "newest CUDA of the driver"),
            Measurement("capability", _dotted(capability), "text", "compute capability"),
            Measurement(
                "architectures", " ".join(case.backend.arch_list) or "none", "text", "architectures in the build"
            ),
        ),
        location=location(model_place(case.evidence)) if there.fault in _OF_THE_JOB else None,
        fix=there.fix,
        savings=savings(
            step,
            low * min(matrix_ms, cost.ms),
            high * cost.ms,
            "not measured here: a published speed-up of 5x to 100x for matrix work; the lower bound counts only that "
            "work",
            ceiling=cost.ms,
        ),
    )


_OF_THE_JOB = ("model-on-cpu", "accelerator-unused")
"""What the program does; the others are the installation's."""


def _dotted(version: tuple[int, int] | None) -> str:
    return "unnamed" if version is None else f"{version[0]}.{version[1]}"
