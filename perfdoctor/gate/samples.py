"""What one arm did in one launch of turns, and what a pair of launches says. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..launch.control import Turn
from .decision import trimmed_mean
from .rounds import ALL_IN, CORE, Rounds


@dataclass(slots=True)
class Sample:
    """What one arm did in one launch."""

    turns: list[Turn] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    peak_rss_bytes: int = 0

    @property
    def wait_share(self) -> float:
        """Wait for data, of all steps."""
        return sum(turn.wait_ns for turn in self.turns) / max(1, sum(turn.wall_ns for turn in self.turns))

    @property
    def gc_share(self) -> float:
        """Garbage collections, of all steps."""
        return sum(turn.gc_ns for turn in self.turns) / max(1, sum(turn.wall_ns for turn in self.turns))

    @property
    def collections(self) -> tuple[float, float, float]:
        """Garbage collections of each generation per 100 steps, counted from a full one."""
        steps = max(1, sum(turn.steps for turn in self.turns))
        counts = zip(*((turn.gen0, turn.gen1, turn.gen2) for turn in self.turns), strict=True)
        gen0, gen1, gen2 = (100 * sum(generation) / steps for generation in counts)
        return gen0, gen1, gen2

    @property
    def faults(self) -> float:
        """Page faults per step."""
        return sum(turn.faults for turn in self.turns) / max(1, sum(turn.steps for turn in self.turns))

    @property
    def core_ms(self) -> float:
        """The uncontended step: trimmed mean of the slices' shortest steps."""
        return trimmed_mean([turn.min_ns for turn in self.turns]) / 1e6

    @property
    def all_in_ms(self) -> float:
        """The step with everything that comes now and then."""
        return trimmed_mean([turn.wall_ns / max(1, turn.steps) for turn in self.turns]) / 1e6

    @property
    def delay_share(self) -> float:
        """Runnable without a CPU, of all steps; 0 where the system does not say."""
        return sum(max(0, turn.delay_ns) for turn in self.turns) / max(1, sum(turn.wall_ns for turn in self.turns))


def ratio_core(before: Sample, after: Sample) -> float:
    """Log-ratio of the shortest steps, slice by slice, 20 % trimmed."""
    return trimmed_mean([math.log(b.min_ns / a.min_ns) for a, b in zip(before.turns, after.turns, strict=True)])


def ratio_all_in(before: Sample, after: Sample) -> float:
    """Log-ratio of the mean steps, slice by slice, 20 % trimmed."""
    pairs = zip(before.turns, after.turns, strict=True)
    return trimmed_mean([math.log((b.wall_ns / b.steps) / (a.wall_ns / a.steps)) for a, b in pairs])


def note_samples(seen: Rounds, was: Sample, now: Sample) -> None:
    """A pair of launches that took turns."""
    seen.ratios[CORE].append(ratio_core(was, now))
    seen.ratios[ALL_IN].append(ratio_all_in(was, now))
    seen.waits.append((was.wait_share, now.wait_share))
    seen.collections.append((was.gc_share, now.gc_share))
    seen.core_ms.append((was.core_ms, now.core_ms))
    seen.all_in_ms.append((was.all_in_ms, now.all_in_ms))
    seen.rss.append((float(was.peak_rss_bytes), float(now.peak_rss_bytes)))
    seen.counts.append((was.collections, now.collections))
    seen.faults.append((was.faults, now.faults))
    seen.delays.append(max(was.delay_share, now.delay_share))
