"""A profiler of the job's own."""

from __future__ import annotations

from dataclasses import dataclass

from ...recording.base import Missing, Site
from ...recording.lines import CallSite
from ...recording.timings import ProfilerTiming


@dataclass(frozen=True, slots=True)
class Profiled:
    """The steps with a profiler of the job's on, in the later half of the steady ones: many are on in the first."""

    share: float
    """Of these steps."""
    ending_share: float
    """The same with one that ends by its schedule: it is in no step of a longer run."""
    site: Site | None
    """The line that first started it."""
    options: tuple[str, ...]
    """What it records besides operators: `record_shapes`, `with_stack`, ..."""
    ops_per_step: float | Missing
    """Operators below autograd, in all of the step."""
    timing: ProfilerTiming | Missing
    """What an operator takes longer with it."""
    cycles: tuple[CallSite, ...] = ()
    """Calls of its `step()`, by line: where a cycle of its schedule ends, what it recorded is sorted and written."""

    @property
    def timed_ms(self) -> float | Missing:
        """What operators of a step take longer with it, milliseconds, over all steps, profiled or not; of a profiler
        that does not end by itself."""
        if not self.share:
            return 0.0
        if isinstance(self.ops_per_step, Missing):
            return Missing(f"operators were not counted: {self.ops_per_step}")
        if isinstance(self.timing, Missing):
            return self.timing
        return self.share * self.ops_per_step * self.timing.us_per_op / 1000
