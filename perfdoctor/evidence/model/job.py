"""The program that was observed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from ...recording.base import Site
from ...recording.settings import TrainerOption

EndKind = Literal["finished", "stopped", "crashed", "killed", "interrupted", "timeout", "running", "unknown"]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How the job ended."""

    kind: EndKind
    """`stopped`: by perfdoctor, with enough evidence. `crashed`: exit code other than 0. `killed`: by a signal
    that perfdoctor did not send. `timeout`: no step, or no progress, for `--patience` seconds. `running`: it was still
    being recorded when this was read. `unknown`: perfdoctor ended before it, with its machine perhaps."""
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    """More about it, such as the kernel's out-of-memory count."""
    exception: str = ""
    """What nobody caught, by its type and the first line of its message; "" where nothing was seen."""


@dataclass(frozen=True, slots=True)
class JobNode:
    """What was recorded on one of several nodes of a job."""

    name: str
    ranks: tuple[int, ...]
    """That took steps there, in the job's last attempt."""
    end: JobEnd
    python_version: str
    torch_version: str
    torch_build: str
    cpu_model: str
    """"" where nobody watched the machine."""
    usable_cpus: float


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
    """Ranks seen on the machine of this one."""
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
    options: tuple[TrainerOption, ...] = ()
    """What the job's files decide: for a trainer, for other libraries, for its ranks."""
    nodes: tuple[JobNode, ...] = ()
    """Of which there are recordings, where there are several."""
    node: str = ""
    """By name, the one that this rank ran on; "" where there is one only."""

    def option(self, *names: str) -> Site | None:
        """The line of the first of these that the job's files decide."""
        return option(self.options, *names)

    @property
    def seen_ranks(self) -> int:
        """On all machines."""
        return sum(len(node.ranks) for node in self.nodes) or self.local_ranks


def option(options: Sequence[TrainerOption], *names: str) -> Site | None:
    """The line of the first of these keywords that is given."""
    lines = {one.name: one.site for one in options}
    return next((lines[name] for name in names if name in lines), None)


_MOST_RUNS = 4
"""Of consecutive numbers that are listed."""


def ranks_in_words(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 0 to 7 and 12`; of ranks that are scattered the first ones, and how many more there are."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown, left = runs[:_MOST_RUNS], sum(map(len, runs[_MOST_RUNS:]))
    words = [word for run in shown for word in (_span(run) if len(run) != 2 else map(str, run))]
    words += [f"{left} more"] if left else []
    listed = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed}"


def _span(run: list[int]) -> list[str]:
    return [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0])]


@dataclass(frozen=True, slots=True)
class DebuggingAid:
    """Something that helps to find errors and costs time in every step."""

    name: str
    """As a noun: "Python's development mode"."""
    off: str
    """A shell line that switches it off."""
    kind: Literal["", "allocator", "tracing", "traced_calls"] = ""
    """By what of `Evidence` its cost is told; "" where one run cannot tell it."""
