"""A running job to make trials on: what the conductor of trials may ask of the observation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..diagnosis.measured import Trial
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

    def wait(self) -> bool:
        """Let a moment pass. False when the job has ended."""
        self.server.poll(POLL_S)
        return self.alive()

    def order(self, *commands: Mapping[str, object]) -> None:
        """The same commands for all ranks; blocks begin at the same step on each."""
        together = {"from": common_step(self.server.ranks, margin=True)} if len(self.server.ranks) > 1 else {}
        for index, command in enumerate(commands):
            for rank in list(self.server.ranks):
                self.server.send(rank, {**command, **(together if index == 0 else {})})

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


def common_step(ranks: Sequence[Rank], margin: bool) -> int:
    """A step that no rank has passed when it is told of it."""
    slowest = max((step_s(rank) for rank in ranks), default=0.0)
    last = max((rank.step for rank in ranks), default=0)
    if not margin or slowest <= 0:
        return last
    # A rank's own count since its last beat is unknown: half a second's worth lies between.
    ahead_s = MARGIN_S + max(rank.lag_s for rank in ranks)
    return last + math.ceil(0.5 / slowest) + math.ceil(ahead_s / slowest) + 1
