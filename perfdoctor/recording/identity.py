"""Which launch of a job processes belong to: what launchers tell all of its nodes alike, and no other job meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .decoding import Decoder, Undecodable, parsed
from .process import ProcessHeader

_TRIVIAL_IDS = ("", "0", "none")
"""torchrun's id of a rendezvous that nobody named, and that of older TorchDistributors."""
HEAD_BYTES = 1 << 18
"""Of a process's file: its settings, written at the second step, lie within the first few KB."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Of a job of several nodes; what its launcher does not tell is ""."""

    run: str
    """torchrun's rendezvous id, where somebody named it."""
    step: str
    """Slurm's numbers of the job and its step."""
    address: str
    """Where the ranks meet; on the machine's own loopback with the machine's boot id, which is another on each."""
    port: str

    def is_of(self, other: JobIdentity) -> bool:
        """Whether both are of one job. An id that users choose may serve many jobs, one after another and at once: the
        port at which the ranks meet then tells them apart."""
        if self.port and other.port and self.port != other.port:
            return False
        pairs = [(self.run, other.run), (self.step, other.step)]
        if any(mine and theirs and mine != theirs for mine, theirs in pairs):
            return False
        if any(mine and mine == theirs for mine, theirs in pairs):
            return True
        return bool(self.port and self.address) and (self.address, self.port) == (other.address, other.port)


@dataclass(frozen=True, slots=True)
class Place:
    """One process among those of its job."""

    identity: JobIdentity
    rank: int
    attempt: int
    """How often the launcher had started the job before."""
    has_local_rank: bool
    """Its launcher has numbered it on its node."""
    world: int = 0
    """Ranks of the job."""


def place(environment: Mapping[str, str], boot: str, rank: int | None = None, world: int | None = None) -> Place | None:
    """Of a process with these variables; `rank` and `world` as torch's process group has them. None where the whole job
    runs under one launcher, or nothing says which job it is."""
    rank = _number(environment, "RANK") if rank is None else rank
    world = _number(environment, "WORLD_SIZE") if world is None else world
    if rank is None or world is None or world < 2 or _number(environment, "LOCAL_WORLD_SIZE") == world:
        return None
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    slurm = [environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    address = environment.get("MASTER_ADDR", "")
    identity = JobIdentity(
        run="" if run in _TRIVIAL_IDS else run,
        step=".".join(slurm) if all(slurm) else "",
        address=f"{address} {boot}" if _is_loopback(address) else address,
        port=environment.get("MASTER_PORT", ""),
    )
    if not any((identity.run, identity.step, identity.port)):
        return None
    return Place(identity, rank, attempt(environment), "LOCAL_RANK" in environment, world)


def attempt(environment: Mapping[str, str]) -> int:
    """How often the launcher had started the job before: torchrun after a failure, Slurm after a requeue."""
    return max(_number(environment, name) or 0 for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))


def attempts(processes: Sequence[tuple[ProcessHeader, Mapping[str, str]]]) -> list[int]:
    """For each process of one launch: how often the job had been started before.

    An agent of torchrun counts the failures of its own ranks: one that starts them anew because a rank of another node
    failed passes on the count as it was. So the processes that an agent starts in one place are counted too.
    """
    keys = [(header.host, header.boot, header.pid) for header, _ in processes]
    launched = {key for key, (_, environment) in zip(keys, processes, strict=True) if "LOCAL_RANK" in environment}
    found: dict[int, int] = {}
    starts: dict[object, int] = {}
    of_pid: dict[object, int] = {}
    for number in sorted(range(len(processes)), key=lambda number: processes[number][0].t):
        header, environment = processes[number]
        parent = (header.host, header.boot, header.ppid)
        if parent in launched:
            count = of_pid.get(parent, attempt(environment))
        elif "TORCHELASTIC_RUN_ID" in environment:
            place = (parent, environment.get("LOCAL_RANK"))
            count = max(attempt(environment), starts.get(place, 0))
            starts[place] = starts.get(place, 0) + 1
        else:
            count = attempt(environment)
        found[number] = of_pid[keys[number]] = count
    return [found[number] for number in range(len(processes))]


def read_places(paths: Iterable[Path]) -> list[Place]:
    """Those of one launch's processes that have one, from the first records of their files."""
    read = [found for path in paths if (found := _read_place(path)) is not None]
    counts = attempts([(header, environment) for header, environment, _ in read])
    return [replace(place, attempt=count) for (_, _, place), count in zip(read, counts, strict=True)]


def _read_place(path: Path) -> tuple[ProcessHeader, Mapping[str, str], Place] | None:
    header, found = ProcessHeader(0, 0, 0), None
    for record in _head(path):
        try:
            if record["k"] == "process":
                header = Decoder().decode(ProcessHeader, record)
            elif record["k"] in ("torch", "settings"):
                environment = Decoder().decode(dict[str, str], record.get("environment", {}))
                told = [value if type(value) is int else None for value in map(record.get, ("rank", "world_size"))]
                known = place(environment, header.boot, *told)
                found = (header, environment, known) if known is not None else None
                if record["k"] == "settings":
                    break
            elif record["k"] == "worker":
                return None  # of data: it has its rank's variables, and there may be thousands
        except Undecodable:
            continue
    return found


def _head(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            lines = file.read(HEAD_BYTES).split(b"\n")
    except OSError:
        return
    for line in lines:
        try:
            record = parsed(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "k" in record:
            yield record


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


def _is_loopback(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")
