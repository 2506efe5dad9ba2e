"""Blocks of steps in which remedies were tried, as the probe wrote them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialsBegan:
    """From here on the steps are not the job's alone."""

    step: int
    t: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive steps with a remedy in place, or with none."""

    trial: int
    """Number of the trial within the run."""
    block: int = 0
    remedy: str | None = None
    """None: the job as it is."""
    step: int = 0
    n: int = 0
    wall_us: tuple[int, ...] = ()
    """Of each step, without what perfdoctor did at its boundary."""
    odd: tuple[int, ...] = ()
    """Which of them, from 0, began an epoch, or in a block of rounds from save to save, saved."""
    settling_us: tuple[int, ...] = ()
    """Of each step since the switch that does not count."""
    switch_us: int = 0
    """Putting the change in place, or taking it back, while the job waited."""
    epochs: int = 0
    """How many whole ones these steps are, or rounds from save to save; 0 where the block is so many steps."""
    samples: int = 0
    """By the batch size of the job's own loaders."""
    work: float = 1.0
    """Samples of a step by those of the job's own step."""
    delay_us: int | None = None
    """The training thread was runnable and had no CPU."""
    throttled_us: int | None = None
    """A quota of the process's control groups took it, summed over CPUs; None without a quota."""
    error: str = ""
    """Why there are no steps: the remedy could not be applied, or did not hold."""


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial of the plan."""

    trial: int
    remedy: str
    """Several are joined by `+`."""
    findings: tuple[str, ...] = ()
    """Fingerprints of the findings that named it."""
    predicted: tuple[float, float] | None = None
    """Speed-up: at least, at most."""
    why_not: str = ""
    """Why it was not begun; "" when it was."""
    broke: bool = False
    """The job ended while it was tried."""
    launches: tuple[tuple[float, float], ...] = ()
    """Of a remedy that needs a new launch: pairs of (step without, step with), milliseconds."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """trials.json: what the launcher meant to try, and what came of it outside the job."""

    trials: tuple[PlannedTrial, ...] = ()
    together: int = -1
    """The trial of everything that helped; -1 when there was none."""
    seconds: float = 0.0
    typical_error: float | None = None
    past: int = 0
    problem: str = ""
    """Why nothing was tried; "" when something was."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A remedy of `perfdoctor run --apply`."""

    remedy: str
    step: int = 0
    error: str = ""
    """Why the job runs without it; "" where it does not."""
