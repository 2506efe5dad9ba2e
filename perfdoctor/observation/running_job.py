"""A running job to make trials on: what the conductor of trials may ask of the observation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..diagnosis.measured import Trial
from ..injected._perfdoctor_probe.control import period_ns
from ..launch.control import ControlServer, Rank
from ..launch.job import Job
from ..recording.reader import ProcessFile
from ..recording.trials import Block

POLL_S = 0.05
MARGIN_S = 0.4
"""How far ahead a step is set that several ranks have in common."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """The job, its control channel, and the lead rank's file."""

    job: Job
    server: ControlServer
    read: Callable[[], ProcessFile | None]
    """Reads on in the lead rank's file; None when there is none."""
    say: Callable[[str, Trial | None], None]
    """What is going on, for a live view; and a trial that has just ended."""

    def alive(self) -> bool:
        """Whether the job still runs and can be reached."""
        return self.job.poll() is None and bool(self.server.ranks)

    @property
    def out_of_reach(self) -> str:
        """Why no order reaches all its ranks; "" where one does."""
        if self.server.ranks_obey or not self.server.ranks:
            return ""
        if self.server.lead is None:
            return "trials are made by the perfdoctor that observes rank 0, on another node"
        return "it has ranks that no perfdoctor observes, or that met in no store which perfdoctor can use"

    @property
    def has_other_nodes(self) -> bool:
        """Whether other launchers have started some of its ranks."""
        return not self.server.hears_each and any(rank.here < rank.world for rank in self.server.ranks)

    def wait(self) -> bool:
        """Let a moment pass. False when the job has ended."""
        self.server.poll(POLL_S)
        return self.alive()

    def order(self, *commands: Mapping[str, object]) -> None:
        """The same commands for all ranks; blocks begin at the same step on each."""
        ranks = list(self.server.ranks)
        first = {"from": common_step(ranks, margin=True)} if len(ranks) > 1 else {}
        each: Mapping[str, object] = {}
        lead = None if self.server.hears_all else self.server.lead
        if lead is not None:
            # It passes on what is for ranks that others hear from; they look for that from time to time.
            seen_s = 2 * period_ns(lead.world) / 1e9
            first = {"from": common_step(ranks, margin=True, more_s=seen_s)}
            ranks, each = [lead], {"all": True}
        for index, command in enumerate(commands):
            for rank in ranks:
                self.server.send(rank, {**command, **each, **(first if index == 0 else {})})

    def blocks(self, trial: int) -> Sequence[Block]:
        """The blocks of one trial on disk."""
        file = self.read()
        return [block for block in file.blocks() if block.trial == trial] if file is not None else []

    def timed(self, patience_s: float) -> bool:
        """Have the job's operators timed now. False when it did not happen in time."""
        self.order({"do": "timings"})
        deadline = time.monotonic() + patience_s
        while not all(rank.timed for rank in self.server.ranks):
            if not self.wait() or time.monotonic() > deadline:
                return False
        return self.alive()


def step_s(rank: Rank) -> float:
    """The mean step that a rank has told of; 0 before any."""
    return rank.total.wall_us / rank.total.steps / 1e6 if rank.total.steps else 0.0


def common_step(ranks: Sequence[Rank], margin: bool, more_s: float = 0.0) -> int:
    """A step that no rank has passed when it is told of it; `more_s`: for a margin that is wider than usual."""
    slowest = max((step_s(rank) for rank in ranks), default=0.0)
    last = max((rank.step for rank in ranks), default=0)
    if not margin or slowest <= 0:
        return last
    # A rank's own count since its last beat is unknown: half a second's worth lies between.
    ahead_s = MARGIN_S + more_s + max(rank.lag_s for rank in ranks)
    return last + math.ceil(0.5 / slowest) + math.ceil(ahead_s / slowest) + 1
