"""The wait for a loader: what every finding about it needs, and from where on it is worth one."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Cause, Evidence, Fetch, InputWait, Loader, Missing, Site, Step

from .._shared.samples import MEMORY_SHARE


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step spent waiting: the field's usual lower bound (TensorBoard's plugin 5 %, TraceML 10 %)."""
    error_share: float = 0.20
    """A judgement: from a fifth of the step on, loading is the first thing to mend."""
    indexing_share: float = 0.15
    """Cheap samples picked one by one are the ordinary way to use a data set of tensors; a note up to this saving: a
    healthy program of 4 ms a step waits 0.55 ms for 96 of them, of which a tenth of the step is saved."""
    min_wait_ms: float = 0.05
    """Below, the wait is the loader's own bookkeeping (20 to 40 us a batch) and no setting shortens it."""
    loop_runs: float = 32.0
    """Runs of a line per sample that make it a loop over elements: few samples have as many parts."""
    loop_share: float = 0.25
    """Of the making, from which on such lines are what is slow about it."""
    loop_us: float = 50.0
    """What a run of such a line takes at most: above, it works on an array, and Python around it does not matter."""
    memory_share: float = MEMORY_SHARE
    """Of the free memory, what all samples may fill: the job needs some more later."""


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step whose loop waits for a loader."""

    evidence: Evidence
    loader: Loader
    step: Step
    split: InputWait
    limits: Limits
    with_cpus: bool = False
    """The evidence is what it would be if every batch had a CPU."""
    number: int = 0
    """Of the loader, among those of the evidence."""
    name: str = ""
    """What a message calls the loader; empty where it is the only one."""

    @property
    def wait(self) -> float:
        """What the finding is about."""
        return self.split.blamed_ms

    @property
    def is_worth_it(self) -> bool:
        """Whether the wait is worth a finding."""
        return self.wait / self.step.step_ms >= self.limits.min_share and self.wait >= self.limits.min_wait_ms

    @property
    def of_loader(self) -> str:
        """A clause for a message, where it must be said."""
        return " of {loader}" if self.name else ""

    def called(self) -> tuple[Measurement, ...]:
        """What `of_loader` needs."""
        return (Measurement("loader", self.name, "text", "loader"),) if self.name else ()

    @property
    def samples(self) -> float:
        """In a batch; 0 where that is not known."""
        if self.loader.batch_size is not None:
            return float(self.loader.batch_size)
        if self.name or isinstance(self.step.samples, Missing):  # a step's samples are those of all loaders
            return 0.0
        return self.step.samples / max(self.loader.steady_batches_per_step, 1e-9)

    @property
    def batches_counted(self) -> float:
        """Of this loader, in which runs of lines were counted: lines of the training process are counted by steps,
        those of a worker by batches."""
        return 1.0 if self.loader.num_workers else max(self.loader.steady_batches_per_step, 1e-9)

    def part(self, *causes: Cause) -> float:
        """Of the wait: by their share of the making; what it takes longer than that comes in bursts of the same."""
        return self.wait * self.split.ms(*causes) / self.split.making_ms if self.split.making_ms > 0 else 0.0

    def shared(self, wait: float) -> tuple[Measurement, ...]:
        """What every outcome shows."""
        return (
            milliseconds("wait_ms", wait, "wait for data per step"),
            share("wait_share", wait / self.step.step_ms, "of the step"),
            milliseconds("wait_p95_ms", self.loader.wait_p95_ms, "wait for one batch, 95th percentile"),
            Measurement("workers", self.loader.num_workers, "count", "workers"),
        )

    def finding(
        self,
        name: str,
        because: str,
        reasoning: str,
        fix: Fix,
        method: str,
        *,
        low: float,
        high: float,
        extra: tuple[Measurement, ...] = (),
        at: Site | Missing | None = None,
        confidence: Confidence = Confidence.HIGH,
        lanes: int = 0,
        warning_share: float | None = None,
        ceiling: float | None = None,
        is_ill: bool = True,
    ) -> Finding:
        """The wait, and `because` of what; `at`: the line to change, where that is not the loader's. Not `is_ill`:
        nothing says that it could be otherwise."""
        # By what a fix would give, not by what the wait costs: some of it no fix takes away.
        saved_share = (low + high) / 2 / self.step.step_ms
        waits = "with enough CPUs the loop would still wait" if self.with_cpus else "the loop waits"
        waits += " {wait_ms} per step for data" + self.of_loader + " ({wait_share})"
        return Finding(
            id=f"PD03.{name}",
            severity=severity(
                saved_share, self.limits.min_share if warning_share is None else warning_share, self.limits.error_share
            )
            if is_ill
            else Severity.NOTE,
            confidence=confidence,
            message=waits + (f": {because}" if because else ""),
            reasoning=("on a quiet machine this would remain: " if self.with_cpus else "") + reasoning,
            evidence=(*self.shared(self.wait), *self.called(), *extra),
            location=location(self.loader.site if at is None else at),
            about=self.name,
            fix=fix,
            savings=savings(
                self.step,
                low,
                high,
                method,
                ceiling=self.wait if ceiling is None else ceiling,
                part=Part.INPUT_WAIT,
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
