"""The program that was observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...recording.base import Site

EndKind = Literal["finished", "stopped", "crashed", "killed", "interrupted", "timeout", "unknown"]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How the job ended."""

    kind: EndKind
    """`stopped`: by perfdoctor, with enough evidence. `crashed`: exit code other than 0. `killed`: by a signal
    that perfdoctor did not send. `timeout`: no step, or no progress, for `--patience` seconds."""
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    """More about it, such as the kernel's out-of-memory count."""
    exception: str = ""
    """What nobody caught, by its type and the first line of its message; "" where nothing was seen."""


@dataclass(frozen=True, slots=True)
class Job:
    """The program that was observed."""

    command: tuple[str, ...]
    """Secrets masked."""
    cwd: str
    python_version: str
    torch_version: str
    torch_build: str
    """`cpu`, `cu126`, ..."""
    started: str
    """ISO 8601, UTC."""
    end: JobEnd
    world_size: int
    local_ranks: int
    """Ranks seen on this machine."""
    workers: int
    """Data-loader worker processes seen."""
    helpers: int
    """Python processes that were neither rank nor worker."""
    frameworks: tuple[str, ...]
    """`lightning`, `transformers`, `accelerate`, ... as far as imported."""
    environment: tuple[tuple[str, str], ...]
    """The variables of the allow-list that were set."""
    compiled: bool = False
    """torch.compile was used."""
    compile_lacks: str | None = None
    """What it would need here and the machine lacks, "" where it has all; None where nobody looked."""
    trainer: str = ""
    """Whose training loop it is: `lightning`, `transformers`, `accelerate`, or "" for the job's own."""
    accumulation_at: Site | None = None
    """The line that tells a trainer how many batches to accumulate."""
    traced: bool = False
    """Nobody observed it: what is known of it is a profiler's trace, whose file stands for the command."""
    batch_at: Site | None = None
    """The line that tells a trainer the size of a batch."""


@dataclass(frozen=True, slots=True)
class DebuggingAid:
    """Something that helps to find errors and costs time in every step."""

    name: str
    """As a noun: "Python's development mode"."""
    off: str
    """A shell line that switches it off."""
