"""Python loops: a line that runs once for each element, or time step, and issues small operators every time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import Evidence, Layer, Line, Loop, Missing, Site, Step

from .._shared.feeding import feeding
from .._shared.lines import CELLS, PYTHON_PARTS, key, places, runs_as_often
from .limits import Limits

_VECTORISED = (0.92, 0.98)
"""Saved of the loop's own time: the published cases saved 94 to 98 %, with larger batches; four here 95 % and more."""
_ACROSS = (0.5, 0.98)
"""The same where only a loop around it can go: all its iterations share what one takes now, and two are the fewest."""
_BACKWARD_SURE = 0.85
"""Of what the loop's operators seem to take of the backward pass: a program here saved 86 % at least, another more."""
_CALL_US = 12.0
"""Of an operator on few numbers, with autograd, at most: from 5 on without."""
_SAME_RUNS = 0.1
"""Lines whose runs differ by less, or from a multiple of each other's, belong to the same loops."""
_ONE_FILE = 0.25
"""The same for lines of one file, a loop and what it calls: runs are estimated by operators, to 10 % each."""


def element_loops(
    evidence: Evidence, step: Step, lines: Iterable[Line], told: set[tuple[str, int]], limits: Limits
) -> tuple[tuple[Finding, ...], set[tuple[str, int]]]:
    """Loops among the lines but for those that were `told`, the dearest first; and the lines that they run. Those whose
    iterations need one another are an opportunity at most: no whole tensor holds what they compute. A library's loop
    says nothing of that: the function that a solver calls at one time after the other was told to compute on whole
    tensors."""
    sizes, cells, batches = _batch_sizes(evidence), _cells(evidence), _batches(evidence)
    many = [
        line
        for line in lines
        if _is_python(line)
        and not (line.loop is not None and line.loop.by_library)
        and key(line.site) not in told
        and _is_repeated(line, line.runs_per_step / batches, sizes, limits)
        and not any(_calls_cell(line, cell) for cell in cells)
    ]
    apart, in_turn = ([line for line in many if _is_sequential(line) is one] for one in (False, True))
    found = [(loop, _finding(step, loop, _backward_ms(evidence, step, loop), limits)) for loop in _grouped(apart)]
    found += [(loop, _sequential(step, loop, _backward_ms(evidence, step, loop), limits)) for loop in _grouped(in_turn)]
    run = {key(site) for loop, finding in found if finding is not None for site in (loop.main.site, loop.body)}
    return present(*(finding for _, finding in found)), run


@dataclass(frozen=True, slots=True)
class _Loop:
    """Lines that run together."""

    lines: tuple[Line, ...]

    @property
    def main(self) -> Line:
        return max(self.lines, key=lambda line: line.ms_per_step)

    @property
    def runs(self) -> float:
        return self.main.runs_per_step

    @property
    def ops(self) -> float:
        return sum(line.ops_per_step for line in self.lines)

    @property
    def ms(self) -> float:
        return sum(line.ms_per_step for line in self.lines)

    @property
    def calling(self) -> float:
        """The share of the loop's time that is surely no work which whole tensors take as well: what lies between its
        operators, and of each what calling it takes."""
        work_ms = max(0.0, sum(line.ops_ms for line in self.lines) - self.ops * _CALL_US / 1000)
        return max(0.0, 1 - work_ms / self.ms) if self.ms > 0 else 0.0

    @property
    def op_us(self) -> float:
        return 1000 * sum(line.ops_ms for line in self.lines) / self.ops if self.ops else 0.0

    @property
    def body(self) -> Site:
        """The line in its body: what that calls may be called elsewhere too, for one element."""
        found = self.main.loop
        return self.main.site if found is None or found.body is None else found.body

    @property
    def place(self) -> Site:
        """The head of the loop that has to go, where that is known: the one around it, where only that can."""
        found = self.main.loop
        if found is None:
            return self.body
        if found.across_at is not None:
            return found.across_at
        return replace(self.body, line=found.line, via="")


def _is_sequential(line: Line) -> bool:
    return line.loop is not None and bool(line.loop.carries) and not line.loop.across


def _batch_sizes(evidence: Evidence) -> tuple[int, ...]:
    loaders = evidence.loaders
    if isinstance(loaders, Missing):
        return ()
    return tuple(loader.batch_size for loader in loaders if loader.batch_size is not None)


def _batches(evidence: Evidence) -> float:
    """Batches that a step takes from the loader that feeds it: with 48 micro-batches each line of a network runs 48
    times, and is no loop over elements."""
    loader = feeding(evidence)
    return max(1.0, loader.steady_batches_per_step) if loader is not None and loader.batch_size else 1.0


def _is_python(line: Line) -> bool:
    """Whether the line issues its operators itself: in the backward pass only that of a `torch.autograd.Function`."""
    return line.part in PYTHON_PARTS or (line.part == "backward" and not line.site.via)


def _cells(evidence: Evidence) -> list[Layer]:
    return [] if isinstance(evidence.layers, Missing) else [one for one in evidence.layers.layers if one.kind in CELLS]


def _calls_cell(line: Line, cell: Layer) -> bool:
    """Whether a line is a cell per time step, and little else: the check of the network's layers says more about it.

    Its first operator may be another: `self.cell(x[:, t], state)`.
    """
    return line.part == "forward" and runs_as_often(line, cell) and cell.forward_ms >= 0.5 * line.ms_per_step


def _is_repeated(line: Line, runs: float, batch_sizes: tuple[int, ...], limits: Limits) -> bool:
    """`runs`: of the line, for one batch."""
    if "rnn.py" in line.site.via:
        return False  # the same, also of torch's layers for whole sequences
    of_layers = line.loop is not None and line.loop.of_layers
    if _is_bare(line):
        return runs >= limits.least_runs
    least = limits.forward_runs if of_layers or line.site.function == "forward" else limits.loop_runs
    if of_layers:
        return runs >= least  # and none that happen to be as many as samples
    return runs >= least or (runs >= limits.least_runs and any(abs(runs - size) < 0.5 for size in batch_sizes))


def _is_bare(line: Line) -> bool:
    """Whether the line stands in the loop itself, and calls operators and no layers: its iterations differ in what they
    compute on, and not in what they compute."""
    loop = line.loop
    return loop is not None and loop.body is None and not (loop.of_layers or loop.carries or line.site.via)


def _grouped(lines: list[Line]) -> list[_Loop]:
    """Loops with what they call and the loops inside them, the most expensive line first."""
    loops: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (-line.ms_per_step, line.site.line)):
        together = next((loop for loop in loops if _run_together(loop[0], line)), None)
        if together is None:
            loops.append([line])
        else:
            together.append(line)
    return [_Loop(tuple(loop)) for loop in loops]


def _run_together(one: Line, other: Line) -> bool:
    """Whether two lines belong to one loop, a function it calls or, in the same file, a loop inside the other."""
    here = one.site.file == other.site.file
    if here and one.loop is not None and other.loop is not None and _heads(one.loop) & _heads(other.loop):
        return True  # however often they seem to run: that is estimated
    fewer, more = sorted((one.runs_per_step, other.runs_per_step))
    times = round(more / fewer)
    slack = _ONE_FILE if times == 1 and here else _SAME_RUNS
    return (times == 1 or here) and abs(more - times * fewer) <= slack * fewer


def _heads(loop: Loop) -> set[tuple[int, str]]:
    """Of the loop, and of one around it whose iterations do not need one another."""
    return {(loop.line, loop.header), *([(loop.across_at.line, loop.across)] if loop.across_at is not None else [])}


def _finding(step: Step, loop: _Loop, backward: float, limits: Limits) -> Finding | None:
    """`backward`: milliseconds of the loop's part of the backward pass."""
    cost = Cost(step, loop.ms + backward)
    if not _is_costly(loop, cost, limits):
        return None
    sure = loop.calling * (loop.ms + _BACKWARD_SURE * backward)
    across = loop.main.loop.across if loop.main.loop is not None else ""
    shares = _ACROSS if across else _VECTORISED
    low, high = (fraction * spent for fraction, spent in zip(shares, (sure, cost.ms), strict=True))
    return Finding(
        id="PD10.element-loop",
        severity=cost.severity(limits.loop_share, limits.error_share),
        confidence=Confidence.HIGH if loop.ms / step.step_ms >= limits.loop_share else Confidence.MEDIUM,
        message=f"{_named(loop)} {{runs:time}} per step: {{cost_ms}} ({{cost_share}})",
        reasoning="it issues {ops:small operator} per step, each called from Python for {op_us} of work; the same on "
        "whole tensors takes a few calls",
        evidence=_measured(loop, cost, backward),
        location=location(loop.place),
        fix=Fix(
            text="Compute all iterations of `{across}` (line {across_line}) at once: each of `{loop}` then takes a few "
            "calls on whole tensors, with one row of `{carries}` for each."
            if across
            else f"Compute on whole tensors {'instead of' if loop.main.loop is None else 'what `{loop}` does for'} one "
            "element after another; where the elements need different code, `torch.vmap` or `torch.where`.",
            code="loss = (output - target).pow(2).mean(dim=1).sum()  # instead of a sum over samples"
            if loop.main.loop is None
            else "",
            risk="Sums are taken in another order, so the last digits of results may differ.",
        ),
        savings=savings(
            step,
            low,
            high,
            f"{100 * shares[0]:.0f} to {100 * shares[1]:.0f} % of the loop: its share of its part of the step, by "
            "its operators and the pauses between them, and 85 to 100 % of its share of the backward pass; at least "
            "what is surely no arithmetic",
            ceiling=cost.ms,
        ),
    )


def _sequential(step: Step, loop: _Loop, backward: float, limits: Limits) -> Finding | None:
    cost = Cost(step, loop.ms + backward)
    if loop.main.loop is None or not _is_costly(loop, cost, limits):
        return None
    return Finding(
        id="PD10.sequential-loop",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message=f"{_named(loop)} {{runs:time}} per step in turn: {{cost_ms}} ({{cost_share}})",
        reasoning="each iteration needs `{carries}` of the one before, so they cannot be computed at once; it issues "
        "{ops:small operator} per step, each called from Python for {op_us} of work",
        evidence=(
            *_measured(loop, cost, backward),
            Measurement("carries", ", ".join(loop.main.loop.carries), "text", "from the iteration before"),
        ),
        location=location(loop.place),
        fix=Fix(
            text="Let each iteration do more: step several independent environments or sequences at once, with one "
            "row of `{carries}` for each. Where there are none, `torch.compile` or `torch.jit.script` may take "
            "Python out of the body, if that is tensors only.",
            risk="Several environments at once collect other data; compiling takes minutes at the start.",
        ),
        savings=savings(
            step, 0.0, 0.0, "not predicted: it depends on how many run at once", ceiling=cost.ms, general=True
        ),
    )


def _is_costly(loop: _Loop, cost: Cost, limits: Limits) -> bool:
    return loop.op_us <= limits.small_op_us and cost.share >= limits.loop_share


def _named(loop: _Loop) -> str:
    return "a Python loop runs this line" if loop.main.loop is None else "the body of `{loop}` runs"


def _measured(loop: _Loop, cost: Cost, backward: float) -> tuple[Measurement, ...]:
    seen = loop.main.loop
    return (
        *cost.measured("the loop per step, with its part of the backward pass"),
        milliseconds("loop_ms", loop.ms, "the loop itself"),
        milliseconds("backward_ms", backward, "its part of the backward pass"),
        Measurement("runs", round(loop.runs), "count", "runs per step"),
        Measurement("ops", round(loop.ops), "count", "operators per step"),
        Measurement("op_us", loop.op_us, "us", "one of its operators"),
        Measurement("lines", places(loop.lines), "text", "its lines"),
        *(() if seen is None else (Measurement("loop", seen.header, "text"),)),
        *(() if seen is None or seen.across_at is None else _across(seen, seen.across_at)),
    )


def _across(seen: Loop, at: Site) -> tuple[Measurement, ...]:
    return (
        Measurement("across", seen.across, "text", "the loop around it"),
        Measurement("across_line", str(at.line), "text", "line of the loop around it"),
        Measurement("carries", ", ".join(seen.carries), "text", "from the iteration before"),
    )


def _backward_ms(evidence: Evidence, step: Step, loop: _Loop) -> float:
    """The backward pass of the loop's operators: no more than by their number, by their time, and by how many operators
    that pass has beside those of others."""
    forward = [line for line in loop.lines if line.part == "forward"]
    by_time, by_number = sum(line.share for line in forward), sum(line.ops_share for line in forward)
    return step.parts.backward * min(1.0, by_time, by_number, _left_share(evidence, forward))


def _left_share(evidence: Evidence, forward: list[Line]) -> float:
    """Of the backward pass's operators, those that are more than the forward pass has without these lines: a loop that
    copies a batch leaves no node, and 21,498 operators of one had 175 behind them."""
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    passes = sum(line.ops_per_step for line in lines if line.part == "backward")
    others = sum(line.ops_per_step for line in lines if line.part == "forward" and line not in forward)
    return max(0.0, passes - others) / passes if passes > 0 else 1.0
