"""The wait for data: what every finding about it needs, and the one that names no cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Cause, Evidence, Fetch, InputWait, Loader, Step

from .._shared.limits import CostLimits


class WaitLimits(CostLimits, Protocol):
    """The thresholds that concern the wait."""

    @property
    def indexing_share(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Case:
    """What every finding about the wait needs."""

    evidence: Evidence
    loader: Loader
    step: Step
    split: InputWait
    limits: WaitLimits

    @property
    def wait(self) -> float:
        """What the finding is about."""
        return self.split.blamed_ms

    def part(self, *causes: Cause) -> float:
        """Of the wait: by their share of the making; what it takes longer than that comes in bursts of the same."""
        return self.wait * self.split.ms(*causes) / self.split.making_ms if self.split.making_ms > 0 else 0.0

    def shared(self, wait: float) -> tuple[Measurement, ...]:
        return (
            milliseconds("wait_ms", wait, "wait for data per step"),
            share("wait_share", wait / self.step.step_ms, "of the step"),
            milliseconds("wait_p95_ms", self.loader.wait_p95_ms, "wait for one batch, 95th percentile"),
            Measurement("workers", self.loader.num_workers, "count", "workers"),
        )

    def finding(
        self,
        name: str,
        message: str,
        reasoning: str,
        fix: Fix,
        *,
        low: float,
        high: float,
        method: str,
        extra: tuple[Measurement, ...] = (),
        confidence: Confidence = Confidence.HIGH,
        lanes: int = 0,
        warning_share: float | None = None,
        ceiling: float | None = None,
    ) -> Finding:
        # By what a fix would give, not by what the wait costs: some of it no fix takes away.
        saved_share = (low + high) / 2 / self.step.step_ms
        warning = self.limits.min_share if warning_share is None else warning_share
        return Finding(
            id=f"PD03.{name}",
            severity=severity(saved_share, warning, self.limits.error_share),
            confidence=confidence,
            message=message,
            reasoning=reasoning,
            evidence=(*self.shared(self.wait), *extra),
            location=location(self.loader.site),
            fix=fix,
            savings=savings(
                self.step,
                Part.INPUT_WAIT,
                ceiling=self.wait if ceiling is None else ceiling,
                low=low,
                high=high,
                method=method,
                lanes=lanes,
            ),
        )


def fetch_measurements(fetch: Fetch) -> tuple[Measurement, ...]:
    return (
        milliseconds("make_ms", fetch.total_ms, "making one batch"),
        milliseconds("getitem_cpu_ms", fetch.getitem_cpu_ms, "of which data set, on a CPU"),
        milliseconds("getitem_blocked_ms", fetch.getitem_blocked_ms, "of which data set, blocked"),
        milliseconds("collate_ms", fetch.collate_ms, "of which collate_fn"),
        milliseconds("run_delay_ms", fetch.run_delay_ms, "of which waiting for a CPU"),
    )


def unknown(case: Case, reasoning: str, fetch: Fetch | None = None) -> Finding:
    return case.finding(
        "input-wait",
        "the loop waits {wait_ms} a step for data, {wait_share} of it",
        reasoning,
        Fix(
            text="Time the data set's `__getitem__`, `collate_fn` and the sampler where they run.",
            remedies=("etl.replay",),
        ),
        low=0.0,
        high=case.wait,
        method="a bound: the whole wait",
        extra=fetch_measurements(fetch) if fetch else (),
        confidence=Confidence.LOW,
    )
