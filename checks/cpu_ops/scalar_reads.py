"""Scalars read out of tensors: on a GPU the host waits for each, on a CPU many of them add up."""

from __future__ import annotations

from collections.abc import Sequence
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
from perfdoctor.api.quantities import CallSite, Evidence, Line, Site, Step

from .._shared.lines import PYTHON_PARTS, function, key, places


class ReadLimits(Protocol):
    """The thresholds that concern them."""

    @property
    def read_share(self) -> float: ...
    @property
    def error_share(self) -> float: ...
    @property
    def cuda_reads(self) -> float: ...
    @property
    def cuda_read_share(self) -> float: ...


_READ_US = 3.0
"""Python and dispatch around one `.item()` on a CPU, measured: 2 to 4 us."""
_READS_SAVED = (0.5, 0.9)
"""Of lines that read many scalars: one stacked read and the norms of all tensors at once remain."""
_WAIT_LOST = (0.1, 0.9)
"""Of a read's duration on CUDA: the device works meanwhile, and idles only afterwards."""
_SAME_RUNS = 0.25
"""Lines of one function whose runs differ by less belong to one loop: runs are estimated, to 10 % each."""
_SURE_RUNS = 0.75
"""Of a number of runs, which is estimated."""
_COMPUTE_PARTS = ("forward", "backward", "optimizer")


def of_the_job(calls: tuple[CallSite, ...]) -> tuple[CallSite, ...]:
    """Scalar reads of the job, the dearest first; torch's optimizers read their step counters themselves, and the
    engine of autograd, under anomaly detection, every gradient."""
    return tuple(
        call
        for call in calls
        if call.kind == "scalar_read"
        and call.detail != "optimizer"
        and not (call.by_library and call.detail == "backward")
        and not call.site.via.startswith("torch/optim/")
    )


@dataclass(frozen=True, slots=True)
class ScalarReads:
    """What the findings about reads need; `reads` are those `of_the_job`."""

    evidence: Evidence
    step: Step
    reads: tuple[CallSite, ...]
    lines: tuple[Line, ...]
    limits: ReadLimits

    def findings(self) -> list[Finding]:
        """One for each line or loop whose reads cost enough, the dearest first."""
        some = self._on_cuda() if self.evidence.on_cuda else self._on_cpu()
        return [finding for finding in some if finding is not None]

    def _share(self, ms: float) -> float:
        return ms / self.step.step_ms

    def _line(self, site: Site) -> Line | None:
        """The line in the parts of the step that Python runs."""
        at = [line for line in self.lines if key(line.site) == key(site) and line.part in PYTHON_PARTS]
        return max(at, key=lambda line: line.ms_per_step, default=None)

    def _on_cpu(self) -> list[Finding | None]:
        told: set[tuple[str, int]] = set()
        findings = []
        for call in self.reads:
            loop = self._loop_of_reads(call)
            if not told & {key(line.site) for line in loop}:
                told |= {key(line.site) for line in loop}
                findings.append(self._read_on_cpu(call, loop))
        return findings

    def _loop_of_reads(self, call: CallSite) -> list[Line]:
        """The lines of a loop whose every run ends in a read: what it reads is made one by one, too. None where a
        library reads (torch.distributions checks its arguments): the line is not about the read then."""
        line = self._line(call.site)
        if line is None or _is_librarys(call) or not _reads_every_run(call, line):
            return []
        return self._beside(line)

    def _read_on_cpu(self, call: CallSite, loop: list[Line]) -> Finding | None:
        here = {key(line.site) for line in loop}
        reads = [read for read in self.reads if key(read.site) in here] or [call]
        cost = sum(read.ms_per_step + _READ_US / 1000 * read.calls_per_step for read in reads)
        low, high = cost, cost
        if loop:
            cost = max(cost, sum(line.ms_per_step for line in loop))
            low, high = (fraction * cost for fraction in _READS_SAVED)
        if self._share(cost) < self.limits.read_share:
            return None
        return Finding(
            id="PD10.scalar-reads",
            severity=severity(self._share(cost), self.limits.read_share, self.limits.error_share),
            confidence=Confidence.HIGH,
            message=("this loop" if len(loop) > 1 else "this line")
            + " reads {reads:scalar} a step out of tensors, which takes {cost_ms}, {cost_share} of it",
            reasoning="every read, and what is computed for it alone, goes through Python and the dispatcher",
            evidence=(
                *self._read_evidence(reads, cost),
                *((Measurement("lines", places(loop), "text", "its lines"),) if len(loop) > 1 else ()),
            ),
            location=location(call.site),
            fix=Fix(
                text="Read once instead of {reads:time}: work on all tensors together, read every 50 steps, or choose "
                "with `torch.where` instead of an `if`.",
                code="correct = (outputs.argmax(-1) == targets).sum()  # all at once, and still a tensor\n"
                "if step % 50 == 0:\n    print(correct.item())\n"
                "values = torch.stack(values).tolist()  # or one read for a list of them",
            ),
            savings=savings(
                self.step,
                Part.OTHER,
                ceiling=cost,
                low=low,
                high=high,
                method="the line's share of its part of the step, by the operators it issues and the pauses between "
                "them; one read for all leaves 10 to 50 %",
            ),
        )

    def _beside(self, line: Line) -> list[Line]:
        """The line and those of its function that run as often: a loop over parameters, of which one line reads. Not
        those that call a network or a library: an agent's steps end in a read, too."""
        librarys = {key(call.site) for call in self.reads if _is_librarys(call)}
        return [line] + [
            one
            for one in self.lines
            if one is not line
            and one.part == line.part
            and not one.site.via
            and key(one.site) not in librarys
            and function(one.site) == function(line.site)
            and abs(one.runs_per_step - line.runs_per_step) <= _SAME_RUNS * line.runs_per_step
        ]

    def _read_evidence(self, reads: Sequence[CallSite], cost: float) -> tuple[Measurement, ...]:
        return (
            milliseconds("cost_ms", cost, "per step"),
            share("cost_share", self._share(cost), "of the step"),
            Measurement("reads", sum(read.calls_per_step for read in reads), "count", "scalar reads per step"),
            milliseconds("reads_ms", sum(read.ms_per_step for read in reads), "in the reads themselves"),
        )

    def _on_cuda(self) -> list[Finding | None]:
        if sum(call.calls_per_step for call in self.reads) < self.limits.cuda_reads:
            return []
        return [self._read_on_cuda(call) for call in self.reads]

    def _read_on_cuda(self, call: CallSite) -> Finding | None:
        cost = call.ms_per_step
        felt = self.evidence.felt_ms(cost)
        if self._share(felt) < self.limits.cuda_read_share:
            return None
        low, high = (min(felt, fraction * cost) for fraction in _WAIT_LOST)
        return Finding(
            id="PD10.device-sync",
            severity=severity(self._share(high), self.limits.read_share, self.limits.error_share),
            confidence=Confidence.MEDIUM,
            message="this line makes the host wait for the GPU {reads:time} a step, {cost_ms} in all",
            reasoning="reading a scalar waits for everything that the device was asked to do; until the host has asked "
            "for more, the device idles",
            evidence=(
                *self._read_evidence([call], cost),
                milliseconds("felt_ms", felt, "of that, the most for which the device can have been without work"),
            ),
            location=location(call.site),
            fix=Fix(
                text="Keep the value on the device, and read it every 50 steps; replace an `if` on a tensor by "
                "`torch.where`.",
                code="total += loss.detach()\nif step % 50 == 0:\n    print((total / 50).item())\n    total.zero_()",
                risk="The values printed are older by up to 50 steps.",
                remedies=("reads.deferred",),
            ),
            savings=savings(
                self.step,
                Part.COMPUTE if call.detail in _COMPUTE_PARTS else Part.OTHER,
                ceiling=felt,
                low=low,
                high=high,
                method="the time that the host waited; 10 to 90 % of it is lost, by how far ahead it would have been, "
                "but no more than the device can have been without work",
            ),
        )


def _is_librarys(call: CallSite) -> bool:
    """Whether a library reads for a purpose of its own; older recordings know only what issued a line's first
    operator."""
    return call.by_library or call.site.via.startswith("torch/distributions/")


def _reads_every_run(call: CallSite, line: Line) -> bool:
    """Whether the line is a loop with a read, or several, in each run."""
    return call.calls_per_step >= 2 and 2 * _SURE_RUNS <= line.runs_per_step <= 1.5 * call.calls_per_step
