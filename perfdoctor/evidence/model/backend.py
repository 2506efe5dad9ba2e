"""What torch computed with: device, libraries, instruction sets."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing, Site

NO_CAP = Missing("no variable caps the instruction set")


@dataclass(frozen=True, slots=True)
class LibraryTiming:
    """One of the job's own operators, timed in its process on ones of its shapes with oneDNN off and on."""

    name: str
    shapes: str
    dtype: str
    native_milliseconds: float
    onednn_milliseconds: float


@dataclass(frozen=True, slots=True)
class CapTiming:
    """One of the job's own operators, timed after the job with the capping variables and without."""

    name: str
    shapes: str
    dtype: str
    calls: float
    """In the profiled steps."""
    capped_milliseconds: float
    free_milliseconds: float
    """One call."""


@dataclass(frozen=True, slots=True)
class CapTimings:
    """What variables that cap the instruction set cost on this machine."""

    variables: tuple[tuple[str, str], ...]
    timings: tuple[CapTiming, ...]
    rounds: int
    """The two interpreters took turns so often; timings are medians."""
    free_capability: str
    """What torch's own kernels use without the variables."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Libraries and devices of one rank, at its second step."""

    cuda: str
    """Version of CUDA that torch was built for; "" in a build without."""
    hip: str
    arch_list: tuple[str, ...]
    """CUDA architectures the build has code for: `sm_80`, and `compute_90` for later ones."""
    blas: str
    """`mkl`, `open`, `nvpl`, `accelerate`, ...; "generic" is the reference BLAS, "" unknown."""
    onednn_built: bool
    onednn_enabled: bool
    """As seen at the end of a forward, because `torch.backends.mkldnn.flags()` switches it off just there."""
    acl: bool
    """oneDNN has Arm's Compute Library."""
    capability: str
    """Instruction set of torch's own kernels: `DEFAULT`, `AVX2`, `AVX512`, `SVE256`, ..."""
    xpu_built: bool
    mps_available: bool
    data_parallel: bool
    """A root module was an `nn.DataParallel`."""
    parameters_by_device: tuple[tuple[str, int], ...]
    """Elements that the optimizers hold, by device, most first; empty without an optimizer."""
    batch_devices: tuple[str, ...]
    """Devices of the tensors that the loaders deliver."""
    variables: tuple[tuple[str, str], ...]
    """Allow-listed variables as the job had them at its second step."""
    onednn_timings: tuple[LibraryTiming, ...] = ()
    """Empty where oneDNN was on."""
    cap_timings: CapTimings | Missing = NO_CAP
    onednn_between_steps: bool = True
    """False: it is off in the whole process, not only inside some `with`."""
    onednn_off_at: Site | None = None
    """The line that switched it off; None where none did, or nobody noted it."""

    def variable(self, name: str) -> str | None:
        return dict(self.variables).get(name)

    @property
    def devices(self) -> tuple[str, ...]:
        """Of the parameters."""
        return tuple(device for device, _ in self.parameters_by_device)
