"""What `perfdoctor env` prints: the machine, perfdoctor, and torch as a job's interpreter would see it.

The block is meant to be pasted into an issue: it holds no host name and no variable. Another process imports
torch, never this one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..monitor.machine import read_machine
from ..recording.decoding import Decoder
from ..recording.machine import Machine
from ..version import VERSION

TORCH_PATIENCE_S = 60.0
"""A first import of torch from a network disk takes tens of seconds."""

_MARK = "perfdoctor-env:"

# Prints what it finds as it goes, because anything about torch may fail or print for itself.
_QUESTIONS = f"""
import json, platform, sys
answers = {{"python_version": platform.python_version()}}
try:
    import torch
except Exception as error:
    answers["error"] = type(error).__name__ + ": " + str(error)
else:
    def ask(name, question):
        try:
            answers[name] = question()
        except Exception:
            pass
    ask("version", lambda: str(torch.__version__))
    ask("cuda", lambda: torch.version.cuda or "")
    ask("hip", lambda: torch.version.hip or "")
    ask("blas", lambda: torch.__config__.show().split("BLAS_INFO=", 1)[1].split(",")[0])
    ask("onednn", lambda: bool(torch.backends.mkldnn.is_available()))
    ask("cpu_capability", lambda: torch.backends.cpu.get_cpu_capability())
    ask("threads", lambda: torch.get_num_threads())
    ask("interop_threads", lambda: torch.get_num_interop_threads())
    ask("cuda_devices", lambda: torch.cuda.device_count())
print()
print("{_MARK}" + json.dumps(answers), flush=True)
"""


@dataclass(frozen=True, slots=True)
class TorchReading:
    """torch in one interpreter; "unknown" or None for what it would not tell."""

    version: str = "unknown"
    cuda: str = ""
    """Version it was built for; "" in a build without CUDA."""
    hip: str = ""
    blas: str = "unknown"
    onednn: bool | None = None
    cpu_capability: str = "unknown"
    """Instruction set that its own kernels use: `AVX2`, `AVX512`, `DEFAULT`, ..."""
    threads: int | None = None
    interop_threads: int | None = None
    cuda_devices: int | None = None
    """Devices that it can use, which may be fewer than NVML lists."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a job would run."""

    perfdoctor_version: str
    python: str
    """The interpreter asked, as it was given."""
    python_version: str
    """Its version; "" when it could not be asked."""
    torch: TorchReading | None
    torch_absent: str
    """Why there is none, as a clause; "" when there is one."""
    machine: Machine

    def as_text(self) -> str:
        """One line per fact, for an issue."""
        rows = [
            ("perfdoctor", self.perfdoctor_version),
            ("python", f"{self.python_version or 'unknown'} ({self.python})"),
            *self._torch_rows(),
            *self._machine_rows(),
        ]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)

    def _torch_rows(self) -> list[tuple[str, str]]:
        if self.torch is None:
            return [("torch", f"none: {self.torch_absent}")]
        build = f"CUDA {self.torch.cuda}" if self.torch.cuda else "CPU only"
        build = f"ROCm {self.torch.hip}" if self.torch.hip else build
        onednn = {True: "with oneDNN", False: "without oneDNN", None: "oneDNN unknown"}[self.torch.onednn]
        return [
            ("torch", f"{self.torch.version} ({build})"),
            ("torch math", f"BLAS {self.torch.blas}, {onednn}, kernels for {self.torch.cpu_capability}"),
            (
                "torch threads",
                f"{_or_unknown(self.torch.threads)} intra-op, {_or_unknown(self.torch.interop_threads)} inter-op",
            ),
            ("torch devices", f"{_or_unknown(self.torch.cuda_devices)} CUDA"),
        ]

    def _machine_rows(self) -> list[tuple[str, str]]:
        machine = self.machine
        fault = "unknown" if machine.page_fault_ns is None else f"{machine.page_fault_ns:.0f} ns"
        cards = [f"{c.name}, {_gibibytes(c.memory_bytes)}, driver {c.driver}" for c in machine.gpus]
        return [
            ("cpu", machine.cpu_model),
            (
                "cpus",
                f"{machine.logical_cpus} logical, {_or_unknown(machine.physical_cores)} physical, "
                f"{machine.affinity_cpus} allowed, "
                + ("no quota" if machine.quota_cpus is None else f"quota {machine.quota_cpus:g}"),
            ),
            ("memory", f"{_gibibytes(machine.memory_bytes)}, swap {_gibibytes(machine.swap_bytes)}"),
            ("page fault", fault),
            ("kernel", f"{machine.kernel}, {machine.libc}"),
            *((f"gpu {index}", card) for index, card in enumerate(cards)),
            *(() if cards else (("gpu", f"none: {machine.gpus_absent}"),)),
        ]


def read_environment(
    python: str = sys.executable, *, timeout_s: float = TORCH_PATIENCE_S, root: Path = Path("/")
) -> Environment:
    """Reads the machine and asks `python` about torch. Raises nothing: what fails is said in the result."""
    answers, absent = _ask_interpreter(python, timeout_s)
    return Environment(
        perfdoctor_version=VERSION,
        python=python,
        python_version=str(answers.get("python_version", "")),
        torch=None if absent else Decoder().decode(TorchReading, answers),
        torch_absent=absent,
        machine=read_machine(root),
    )


def _ask_interpreter(python: str, timeout_s: float) -> tuple[dict[str, object], str]:
    """Its answers, and why there is no torch ("" when there is)."""
    try:
        done = subprocess.run(
            [python, "-c", _QUESTIONS],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}, f"{python} did not answer within {timeout_s:g} s"
    except OSError as error:
        return {}, f"{python} cannot be run: {error.strerror or error}"
    marked = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not marked:
        said = done.stderr.strip().splitlines()
        return {}, f"{python} ended with code {done.returncode}" + (f": {said[-1]}" if said else "")
    answers: dict[str, object] = json.loads(marked[-1].removeprefix(_MARK))
    failure = answers.get("error")
    return answers, f"torch cannot be imported: {failure}" if failure else ""


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
