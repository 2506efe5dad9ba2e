"""Short launches of the same command with other variables, for remedies that are read when a process starts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ..evidence import steady
from ..evidence.model import Missing
from ..evidence.stats import trimmed_mean
from ..launch.command import Command
from ..launch.environment import changed
from ..launch.job import start
from ..recording.directory import RunDirectory
from ..recording.reader import read
from .enough import Goal
from .observed_job import observed
from .watch import observe

STEPS = 20
"""Steady steps of a launch, and two seconds of them."""
_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Launcher:
    """Launches one command, again and again."""

    command: Command
    directory: RunDirectory
    """Of the run; each launch has a directory in it for as long as it lasts."""
    base: Mapping[str, str]
    """The environment of the job as it is."""
    patience_s: float

    def step_ms(self, changes: Mapping[str, str]) -> float | None:
        """The steady step with these variables ("" unsets one); None where it took too few steps."""
        environment = changed(self.base, changes)
        directory = RunDirectory.create(self.directory.path / "launches", self.command.name)
        try:
            launch = partial(start, self.command, directory, windows=(), output="file", environment=environment)
            with observed(directory, launch) as job:
                observe(job, Goal(STEPS, _SECONDS, self.patience_s, False, ()), lambda progress: None)
            ranks = read(directory).ranks
        finally:
            shutil.rmtree(directory.path.parent, ignore_errors=True)
        steps = [selection for process in ranks if not isinstance(selection := steady.select(process), Missing)]
        return max((trimmed_mean(selection.series("wall_us") / 1000) for selection in steps), default=None)
