"""What findings about growing steps have in common: limits, numbers, cost and savings."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Cost, Measurement, Part, Savings, Severity, milliseconds, savings, share
from perfdoctor.api.quantities import Evidence, GrowingLine, Step, StepGrowth, Trend


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds: growth of the step, as a share of its early length, and cost, as a share of the steady step."""

    min_growth: float = 0.10
    """Over the steps observed, at the lower end of its interval: steps of healthy jobs drifted by up to 7 % over a few
    seconds."""
    min_share: float = 0.05
    """What the steps took on top of their early length."""
    error_share: float = 0.30
    """A judgement: a third of the step, and rising."""


MOST = 0.5
"""Of the growth: a cause that explains less is not to blame for it."""
_KEPT = 0.9
"""Of the growth, saved at least: appending itself, and what replaces the loop over it, remain."""
AHEAD = 10
"""Times the steps seen: what they say of a longer run is little, and `range(10**9)` is no plan."""
_RATE = 1000
"""Steps over which the rate is told."""


def goes_on(seen: int, planned: int) -> bool:
    """Whether it is known how many steps follow those seen."""
    return seen < planned <= AHEAD * seen


def in_the_end(step: Step, growth: StepGrowth, ms: float, times: float, at: int) -> float:
    """Of this step, milliseconds that all but one would take in the mean step of the whole loop, if what was there
    `times` times at step `at`, and took `ms` then, becomes more as it has until now; 0 where the loop's length is not
    known."""
    steps = max(1, at)
    if growth.planned_steps <= steps:
        return 0.0
    each_ms = ms / times
    mean_times = 1 + (times - 1) / steps * growth.planned_steps / 2
    return of_whole_loop(step.step_ms, each_ms * (times - 1), each_ms * (mean_times - 1))


def of_whole_loop(step_ms: float, now_ms: float, mean_ms: float) -> float:
    """Of a step of `step_ms`, in which something takes `now_ms`, the share that it has of the mean step of the whole
    loop, where it takes `mean_ms` and all else what it takes now."""
    whole_ms = max(0.0, step_ms - now_ms) + mean_ms
    return step_ms * mean_ms / whole_ms if whole_ms > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """Steps that surely get longer."""

    evidence: Evidence
    step: Step
    growth: StepGrowth
    trend: Trend
    limits: Limits

    @property
    def cost(self) -> Cost:
        """What the mean step takes on top of its early length."""
        return Cost(self.step, max(0.0, self.step.step_ms - self.trend.early_ms))

    @property
    def severity(self) -> Severity:
        return self.cost.severity(self.limits.min_share, self.limits.error_share)

    @property
    def measured(self) -> tuple[Measurement, ...]:
        """The trend and its cost, and where it leads."""
        return (
            *measured(self.trend),
            *self.cost.measured("on top of the early length, per step"),
            *(
                (
                    Measurement("planned", self.growth.planned_steps, "count", "steps that the loop is to take"),
                    milliseconds("planned_ms", self.planned_ms, "a step at its end, if it goes on so"),
                )
                if self.goes_on
                else ()
            ),
        )

    @property
    def goes_on(self) -> bool:
        """Whether it is known how far."""
        return goes_on(self.trend.steps, self.growth.planned_steps)

    @property
    def planned_ms(self) -> float:
        """Of the loop's last step, or of the last one seen, by the rate."""
        trend = self.trend
        return trend.early_ms + trend.grown_ms * (self.growth.planned_steps / trend.steps if self.goes_on else 1.0)

    @property
    def rate(self) -> str:
        """How it goes on, as the end of a sentence."""
        ending = "; every 1,000 steps add {rate_ms} per step"
        if self.goes_on:
            ending += ", which makes {planned_ms} at step {planned}"
        return ending

    @property
    def saved(self) -> Savings:
        """Of the mean step at least half of the growth, which is its mean; at most as much of it as of the last
        steps, or of the whole loop's mean step where its length is known."""
        step, trend = self.step, self.trend
        low = _KEPT * max(0.0, min(step.step_ms - trend.early_ms, trend.grown_ms / 2))
        whole_ms = (trend.early_ms + self.planned_ms) / 2
        high = step.step_ms * (1 - trend.early_ms / max(trend.late_ms, whole_ms))
        parts = {Part.GC: trend.parts.gc, Part.INPUT_WAIT: trend.parts.input_wait}
        largest = max(parts, key=lambda part: parts[part])
        return savings(
            step,
            low,
            max(low, high),
            "the mean growth of the steps seen, and the share that it has of the last of them; at least so much, since "
            "it rises with every step",
            part=largest if parts[largest] >= MOST * trend.parts.total else Part.OTHER,
            first=True,
        )


def measured(trend: Trend) -> tuple[Measurement, ...]:
    return (
        milliseconds("early_ms", trend.early_ms, "a step at first"),
        milliseconds("late_ms", trend.late_ms, "a step in the end"),
        Measurement("steps", trend.steps, "count", "steps from the first steady one to the last"),
        share("growth_low", trend.low, "growth over them, at least"),
        share("growth_high", trend.high, "growth over them, at most"),
        milliseconds("rate_ms", _RATE * trend.grown_ms / trend.steps, "more per step after every 1,000 steps"),
    )


def line_measured(line: GrowingLine) -> tuple[Measurement, ...]:
    return (
        Measurement("line", f"{line.site.file}:{line.site.line}", "text", "the line that takes longer"),
        milliseconds("line_early_ms", line.early_ms, "that line per step, at first"),
        milliseconds("line_late_ms", line.late_ms, "that line per step, later"),
    )
