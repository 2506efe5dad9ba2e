"""Run directories of the nodes of a job, as two launchers that know nothing of each other leave them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from recordings import MACHINE, Record, process, settings, steps, torch, write, write_run

from perfdoctor.monitor.machine import write_machine
from perfdoctor.recording.directory import RunDirectory

STARTED = "2024-03-01T12:00:00+00:00"
STEPS = 60
STEP_US = 30_000
RANK_PID = 1000
"""Of rank 0; that of rank 1 is the next."""
AGENT = 900
MEETING = {"MASTER_ADDR": "gpu-a", "MASTER_PORT": "29500"}


def rank_environment(rank: int, world: int = 2, **more: str) -> dict[str, str]:
    """As torchrun sets it, two nodes with as many ranks each."""
    local = world // 2
    place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local}
    told = {**place, "GROUP_RANK": rank // local, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": 0}
    return {**{name: str(value) for name, value in told.items()}, **MEETING, **more}


def write_rank(
    directory: Path,
    rank: int,
    waits_us: int = 1_000,
    *,
    header: Mapping[str, Any],
    **variables: str,
) -> None:
    """A rank of steps of 30 ms that waits for the others in each; one that waits longer than that has taken none."""
    world = int(variables.pop("world", "2"))
    environment = rank_environment(rank, world, **variables)
    pid = RANK_PID + rank
    records: list[Record] = [process(**{"pid": pid, "ppid": AGENT, **header}), torch(environment=environment)]
    if waits_us <= STEP_US:
        records += [
            settings(environment=environment, rank=rank, world_size=world),
            steps(STEP_US, STEPS, communication_us=waits_us, forward_us=STEP_US - waits_us),
        ]
    write(directory, *records, pid=pid, t=int(header.get("t", 1)))


def write_node(
    runs: Path,
    host: str,
    ranks: Mapping[int, int],
    *,
    boot: str = "",
    over: bool = True,
    facts: Mapping[str, Any] | None = None,
    **variables: str,
) -> RunDirectory:
    """The directory of one node: its ranks by what they wait per step, us. Of one that is not `over` nobody wrote down
    the end, and nothing has been written since 15 s after the start."""
    directory = runs / f"run-{host}"
    directory.mkdir(parents=True)
    boot = boot or f"boot-{host}"
    for rank, waits_us in ranks.items():
        write_rank(directory, rank, waits_us, header={"host": host, "boot": boot}, **variables)
    write_machine(MACHINE, directory / "machine.json")
    (directory / "host.jsonl").write_text('{"k":"format","version":2}\n')
    ended = {"end": "finished", "exit_code": 0, "elapsed_s": 20.0} if over else {}
    run = write_run(directory, **{"started": STARTED, "host": host, "boot": boot, **ended, **(facts or {})})
    if not over:
        last_written(directory, datetime.fromisoformat(STARTED).timestamp() + 15.0)
    return run


def last_written(directory: Path, when_s: float) -> None:
    """As if its files had been written then, seconds since 1970."""
    for path in directory.iterdir():
        os.utime(path, (when_s, when_s))
