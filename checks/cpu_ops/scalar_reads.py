"""Scalars read out of tensors on a CPU, where many of them add up; and what those on a GPU have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, milliseconds, present
from perfdoctor.api.quantities import CallSite, Evidence, Line, Site, Step

from .._shared.lines import PYTHON_PARTS, function, key, places, room_ms
from .limits import Limits

_READ_US = 3.0
"""Python and dispatch around one `.item()` on a CPU, measured: 2 to 4 us."""
_READS_SAVED = (0.5, 0.9)
"""Of lines that read many scalars: one stacked read and the norms of all tensors at once remain."""
_SAME_RUNS = 0.25
"""Lines of one function whose runs differ by less belong to one loop: runs are estimated, to 10 % each."""
_SURE_RUNS = 0.75
"""Of a number of runs, which is estimated."""


@dataclass(frozen=True, slots=True)
class ScalarReads:
    """What the findings about reads need; `reads` are those `of_the_job`."""

    evidence: Evidence
    step: Step
    reads: tuple[CallSite, ...]
    lines: tuple[Line, ...]
    limits: Limits

    def findings(self) -> tuple[Finding, ...]:
        """One for each line or loop whose reads cost enough, the dearest first."""
        told: set[tuple[str, int]] = set()
        findings = []
        for call in self.reads:
            loop = self._loop_of_reads(call)
            if not told & {key(line.site) for line in loop}:
                told |= {key(line.site) for line in loop}
                findings.append(self._finding(call, loop))
        return present(*findings)

    def _line(self, site: Site) -> Line | None:
        """The line in the parts of the step that Python runs."""
        at = [line for line in self.lines if key(line.site) == key(site) and line.part in PYTHON_PARTS]
        return max(at, key=lambda line: line.ms_per_step, default=None)

    def _loop_of_reads(self, call: CallSite) -> list[Line]:
        """The lines of a loop whose every run ends in a read: what it reads is made one by one, too. None where a
        library reads (torch.distributions checks its arguments): the line is not about the read then."""
        line = self._line(call.site)
        if line is None or call.by_library or not _reads_every_run(call, line):
            return []
        return self._beside(line)

    def _finding(self, call: CallSite, loop: list[Line]) -> Finding | None:
        here = {key(line.site) for line in loop}
        reads = [read for read in self.reads if key(read.site) in here] or [call]
        spent = sum(read.ms_per_step + _READ_US / 1000 * read.calls_per_step for read in reads)
        room = room_ms(self.evidence, self.step, *(read.site for read in reads))
        cost = Cost(self.step, min(room, max(spent, sum(line.ms_per_step for line in loop))))
        if cost.share < self.limits.read_share:
            return None
        several = len(loop) > 1
        return Finding(
            id="PD10.scalar-reads",
            severity=cost.severity(self.limits.read_share, self.limits.error_share),
            confidence=Confidence.HIGH,
            message=("this loop" if several else "this line")
            + " reads {reads:scalar} per step out of tensors: {cost_ms} ({cost_share})",
            reasoning="every read, and what is computed for it alone, goes through Python and the dispatcher",
            evidence=(
                *about_reads(cost, *reads),
                *((Measurement("lines", places(loop), "text", "its lines"),) if several else ()),
            ),
            location=location(_head(loop) or call.site),
            fix=Fix(
                text="Read once instead of {reads:time}: work on all tensors together, read every 50 steps, or choose "
                "with `torch.where` instead of an `if`.",
                code="correct = (outputs.argmax(-1) == targets).sum()  # all at once, and still a tensor\n"
                "if step % 50 == 0:\n    print(correct.item())\n"
                "values = torch.stack(values).tolist()  # or one read for a list of them",
            ),
            savings=cost.savings(
                _READS_SAVED if loop else (1.0, 1.0),
                "the line's share of its part of the step, by the operators it issues and the pauses between them; "
                "one read for all leaves 10 to 50 %",
                Part.OTHER,
            ),
        )

    def _beside(self, line: Line) -> list[Line]:
        """The line and those of its function that run as often: a loop over parameters, of which one line reads. Not
        those that call a network or a library: an agent's steps end in a read, too."""
        librarys = {key(call.site) for call in self.reads if call.by_library}
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


def _head(loop: list[Line]) -> Site | None:
    """The head of a loop of reads, in the function that reads: that is what has to go."""
    found = loop[0].loop if loop else None
    if found is None or found.by_library or found.body is not None:
        return None
    return replace(loop[0].site, line=found.line, via="")


def about_reads(cost: Cost, *reads: CallSite) -> tuple[Measurement, ...]:
    """What a finding says of scalar reads."""
    return (
        *cost.measured(),
        Measurement("reads", sum(read.calls_per_step for read in reads), "count", "scalar reads per step"),
        milliseconds("reads_ms", sum(read.ms_per_step for read in reads), "in the reads themselves"),
    )


def _reads_every_run(call: CallSite, line: Line) -> bool:
    """Whether the line is a loop with a read, or several, in each run."""
    return call.calls_per_step >= 2 and 2 * _SURE_RUNS <= line.runs_per_step <= 1.5 * call.calls_per_step
