"""Which ranks belong together under Ray: trials of Ray Tune are jobs of their own, and a failed attempt is over."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .base import Missing

if TYPE_CHECKING:
    from .model import ProcessRecording

_UNSEEN = {
    "client": Missing(
        "the driver reaches Ray through Ray Client (ray://), which no probe can follow: its workers were not observed",
        "start it on a node of the cluster, or with `ray job submit -- perfdoctor check ...`",
        code="no-worker",
    ),
    "uv": Missing(
        "under `uv run` Ray makes the workers' environment without asking anybody else: they were not observed",
        "start the driver with the Python of an activated environment instead",
        code="no-worker",
    ),
    "submitted": Missing(
        "`ray job submit` starts the driver on the cluster, where perfdoctor is not its parent: it was not observed",
        "name perfdoctor behind it instead: `ray job submit -- perfdoctor check ...`",
        code="no-worker",
    ),
}


def of_one_attempt(stepped: Sequence[ProcessRecording]) -> list[ProcessRecording]:
    """Of the training that has taken most steps, the last attempt; all where Ray is not in it."""
    run = _most_steps(stepped)
    of_run = [process for process in stepped if process.ray is None or process.ray.run == run]
    last = _last_group(of_run)
    return [process for process in of_run if process.ray is None or process.ray.group == last]


def notes(processes: Sequence[ProcessRecording]) -> Iterator[str]:
    """What a report is not about, and why."""
    stepped = [process for process in processes if process.role == "rank" and process.ray is not None]
    names = {process.ray.run for process in stepped if process.ray is not None}
    run = _most_steps(stepped)
    if len(names) > 1:
        yield (
            f"{len(names)} trainings ran under Ray, each a job of its own: this report is about {run}, which took the "
            f"most steps, and not about {', '.join(sorted(names - {run})[:3])}{', ...' * (len(names) > 4)}"
        )
    groups = {process.ray.group for process in stepped if process.ray is not None and process.ray.run == run}
    if len(groups) > 1:
        yield f"Ray started the ranks of this training {len(groups)} times: the report is about the last attempt"


def unseen(processes: Sequence[ProcessRecording]) -> Missing | None:
    """Why the workers of a driver were not seen, where that is known."""
    ways = {process.ray.unseen for process in processes if process.ray is not None}
    return next((_UNSEEN[how] for how in sorted(ways - {""})), None)


def _most_steps(stepped: Sequence[ProcessRecording]) -> str:
    """The name of the training whose ranks have taken most steps; "" without one."""
    steps: Counter[str] = Counter()
    for process in stepped:
        if process.ray is not None:
            steps[process.ray.run] += len(process.steps)
    return max(sorted(steps), key=lambda name: steps[name], default="")


def _last_group(stepped: Sequence[ProcessRecording]) -> str:
    """The placement group whose ranks started last, on the machine that has seen most groups, and of those most ranks:
    clocks of two machines do not compare."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for process in sorted(stepped, key=lambda one: one.header.t):
        if process.ray is not None:
            groups[process.header.boot].append(process.ray.group)
    seen = max((groups[boot] for boot in sorted(groups)), key=lambda one: (len(set(one)), len(one)), default=[""])
    return seen[-1]
