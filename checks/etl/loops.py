"""Python loops over the elements of a sample: lines that run often for each and take little each time."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.quantities import CodeLine, Fetch

from .waiting import Case


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """Lines that run together, the dearest first."""

    lines: tuple[CodeLine, ...]
    runs: float
    """Of the dearest, per sample."""

    @property
    def share(self) -> float:
        """Of the making of a batch."""
        return sum(line.share for line in self.lines)


def element_loop(case: Case, fetch: Fetch) -> ElementLoop | None:
    """None where lines that run often take little of the making, or were not counted."""
    limits = case.limits
    batches = case.batches_counted

    def runs(line: CodeLine) -> float:
        return line.runs_per_step / batches / max(1.0, case.samples)

    def run_us(line: CodeLine) -> float:
        return 1000 * line.share * fetch.total_ms * batches / line.runs_per_step

    lines = tuple(line for line in fetch.lines if runs(line) >= limits.loop_runs and run_us(line) <= limits.loop_us)
    if sum(line.share for line in lines) < limits.loop_share:
        return None
    return ElementLoop(lines, runs(lines[0]))
