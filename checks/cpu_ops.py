"""Python between the operators: element loops, scalar reads, and trips between host and device.

What it looks at
----------------
For a step or two, every operator with the line that issued it; every read of a scalar (`.item()`, `float(t)`, an
f-string, `if t > 0`) and every copy between devices, with its line and duration; and on a GPU the copies that the
device saw. Lines that go through the model's `state_dict` in every step. What autograd's anomaly detection takes in
these steps, where it is on. On a CPU one update of the job's optimizer, timed as it is, with `foreach=True` and with
`fused=True`.

Why it costs time
-----------------
A loop over the samples of a batch pays 5 to 20 us of Python and dispatch for every element, where one operator
on the whole batch pays them once: such loops in losses were 17 to 59 times slower than their vectorised form.
On a GPU a scalar read makes the host wait until the device has done all that was asked of it, and then the device
waits for the host. On a CPU a read is cheap, but one per parameter and step adds up. Anomaly detection takes a stack
trace for every operator: a network of 40 layers took 1.6 ms a step without it and 13.6 ms with it. An optimizer that
is not fused issues ten operators and more for every parameter: for 100 small ones 2.9 ms instead of 0.5 ms.

Example
-------
    for i in range(len(batch)):
        loss = loss + (output[i] - target[i]).pow(2).mean()
    norms = [p.grad.norm().item() for p in model.parameters()]

    torch.autograd.set_detect_anomaly(True)   # since the NaN of last spring

How to fix
----------
Work on whole tensors; stack what must be read and read it once; accumulate on the device (`total += loss.detach()`)
and read every 50 steps; `torch.where` instead of `if`; create tensors where they are used (`device=`). Switch anomaly
detection off again; give the optimizer `fused=True`.

When it stays silent
--------------------
One `loss.item()` a step on a CPU; a line that calls a whole network once, however many operators that issues; reads
by torch's own optimizers; anything below its share of the step; on a GPU, reads in a step that the device bounds: it
has work while the host waits. Layers called one after another are not a loop
over elements unless they come by the dozen and each issues small operators. An optimizer whose update was not timed:
not one of torch's own, not on the CPU, or in a job that compiles.

Limits
------
What a line costs in an ordinary step is estimated from its share of the operators and pauses in the window. On a
GPU the duration of a scalar read is the time that the host waited, not all of which is lost: the prediction starts
at a tenth. Operators that silently fall back from Apple's MPS to the CPU are not seen. Nothing inside compiled code
is seen. Of the profiler left on, and of deterministic algorithms, the cost is not measured.

References
----------
- Deeplearning4j, "How to debug performance issues", step 10
- HarryVolek/PyTorch_Speaker_Verification#33: loops in a loss, 17 to 59 times
- AWSLabs fvdb-reality-capture#144: one of two `loss.item()` removed, 1.05 to 1.10 times
- PyTorch, "Performance tuning guide": avoid unnecessary CPU-GPU synchronization, disable debugging APIs
- Lightning-AI/pytorch-lightning#17359: anomaly detection left on, 2.5 times
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api import (
    CallSite,
    Check,
    Confidence,
    Evidence,
    Finding,
    Fix,
    Line,
    Measurement,
    Missing,
    Outcome,
    Part,
    Site,
    Step,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    savings,
    severity,
    share,
)

from . import _state_copies
from ._anomaly import left_on
from ._state_copies import places
from ._updates import slow_update


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    loop_share: float = 0.10
    """Rewriting a loop in whole tensors takes thought; less is not worth it."""
    loop_runs: int = 32
    """Runs of a line per step that make it a loop over elements: few networks have as many like layers."""
    forward_runs: int = 64
    """The same inside a `forward`, where deep networks call the same line once per block."""
    least_runs: int = 8
    """Fewer are no loop, even where they equal the batch size."""
    small_op_us: float = 50.0
    """Mean time of the line's operators: above, they work, and Python around them does not matter."""
    read_share: float = 0.05
    """Of scalar reads on a CPU."""
    error_share: float = 0.30
    """A judgement: a third of the step spent between the operators."""
    cuda_reads: float = 2.0
    """Reads a step on CUDA that pass: one for the loss, and one of a gradient scaler, are ordinary."""
    cuda_read_share: float = 0.02
    """Of the step, of what the device can have felt: below, the host was ahead of it anyway."""
    copy_share: float = 0.05
    """Of copies back and forth."""
    anomaly_share: float = 0.05
    """Of anomaly detection: one line to take out, so little is worth it."""
    update_share: float = 0.1
    """What another way to update would save, as a note: the loop is what torch does on a CPU unless told otherwise."""


_VECTORISED = (0.85, 0.98)
"""Saved of the loop's own time: the published cases saved 94 to 98 %, with larger batches; four here 95 % and more."""
_BACKWARD_SURE = 0.75
"""Of what the loop's operators seem to take of the backward pass."""
_READ_US = 3.0
"""Python and dispatch around one `.item()` on a CPU, measured: 2 to 4 us."""
_READS_SAVED = (0.5, 0.9)
"""Of lines that read many scalars: one stacked read and the norms of all tensors at once remain."""
_WAIT_LOST = (0.1, 0.9)
"""Of a read's duration on CUDA: the device works meanwhile, and idles only afterwards."""
_COPIES_SAVED = (0.5, 1.0)
"""Of copies back and forth; what they were made for must be done on the device."""
_SAME_RUNS = 0.1
"""Lines whose runs differ by less, or from a multiple of each other's, belong to the same loops."""
_ONE_FUNCTION = 0.25
"""The same for neighbouring lines of one function: runs are estimated by operators, to 10 % each."""
_SURE_RUNS = 0.75
"""Of a number of runs, which is estimated."""
_PYTHON_PARTS = ("forward", "other")

_COMPUTE_PARTS = ("forward", "backward", "optimizer")


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Scalar reads, then copies between devices, then loops over elements that are neither."""
    step, calls, lines = evidence.step, evidence.call_sites, evidence.hot_lines
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(calls, Missing):
        return cannot_tell(f"calls were not watched: {calls}")
    if isinstance(lines, Missing):
        return cannot_tell(f"operators were not counted by line: {lines}")
    case = _Case(evidence, step, calls, lines, limits)
    reads = case.scalar_reads()
    state = _state_copies.lines_of(step, lines, limits)
    copies = [_state_copies.finding(step, state, limits)] if state else []
    loops = case.loops({_key(line.site) for line in state})
    findings = [*case.left_behind(), *reads, *case.round_trips(), *copies, *loops]
    shared = case.shared()
    if findings:
        return found(*findings, measurements=shared)
    return clear(
        "{reads:scalar read} a step: {reads_ms}; the busiest line ran {runs:time} and issued {ops:operator}",
        *shared,
    )


def _key(site: Site) -> tuple[str, int]:
    return site.file, site.line


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
    def op_us(self) -> float:
        return 1000 * sum(line.ops_ms for line in self.lines) / self.ops if self.ops else 0.0


@dataclass(frozen=True, slots=True)
class _Case:
    evidence: Evidence
    step: Step
    calls: tuple[CallSite, ...]
    lines: tuple[Line, ...]
    limits: Limits

    def cost_share(self, ms: float) -> float:
        return ms / self.step.step_ms if self.step.step_ms > 0 else 0.0

    @property
    def on_cuda(self) -> bool:
        return self.evidence.on_cuda

    def reads(self) -> list[CallSite]:
        """Scalar reads of the job, the dearest first; torch's optimizers read their step counters themselves, and the
        engine of autograd, under anomaly detection, every gradient."""
        return [
            call
            for call in self.calls
            if call.kind == "scalar_read"
            and call.detail != "optimizer"
            and not (call.by_library and call.detail == "backward")
            and not call.site.via.startswith("torch/optim/")
        ]

    def shared(self) -> tuple[Measurement, ...]:
        reads = self.reads()
        busiest = max(self.lines, key=lambda line: line.ops_per_step, default=None)
        return (
            Measurement("reads", sum(call.calls_per_step for call in reads), "count", "scalar reads per step"),
            milliseconds("reads_ms", sum(call.ms_per_step for call in reads), "their time per step"),
            Measurement(
                "runs", max(1, round(busiest.runs_per_step)) if busiest else 0, "count", "runs of the busiest line"
            ),
            Measurement("ops", busiest.ops_per_step if busiest else 0.0, "count", "operators it issues per step"),
        )

    def line(self, site: Site) -> Line | None:
        """The line in the parts of the step that Python runs."""
        at = [line for line in self.lines if _key(line.site) == _key(site) and line.part in _PYTHON_PARTS]
        return max(at, key=lambda line: line.ms_per_step, default=None)

    # -- what libraries do more of than they must ------------------------------------------------------------

    def left_behind(self) -> list[Finding]:
        """Of torch itself: a mode that was left on, and the way in which the optimizer updates."""
        limits, evidence = self.limits, self.evidence
        some = (
            left_on(evidence, self.step, self.calls, (limits.anomaly_share, limits.error_share)),
            slow_update(evidence, self.step, self.lines, limits.update_share),
        )
        return [finding for finding in some if finding is not None]

    # -- scalar reads -------------------------------------------------------------------------------------

    def scalar_reads(self) -> list[Finding]:
        found_reads = self._reads_on_cuda() if self.on_cuda else self._reads_on_cpu()
        return [finding for finding in found_reads if finding is not None]

    def _reads_on_cpu(self) -> list[Finding | None]:
        told: set[tuple[str, int]] = set()
        findings = []
        for call in self.reads():
            loop = self._loop_of_reads(call)
            if not told & {_key(line.site) for line in loop}:
                told |= {_key(line.site) for line in loop}
                findings.append(self._read_on_cpu(call, loop))
        return findings

    def _loop_of_reads(self, call: CallSite) -> list[Line]:
        """The lines of a loop whose every run ends in a read: what it reads is made one by one, too. None where a
        library reads (torch.distributions checks its arguments): the line is not about the read then."""
        line = self.line(call.site)
        if line is None or _is_librarys(call) or not _reads_every_run(call, line):
            return []
        return self._beside(line)

    def _read_on_cpu(self, call: CallSite, loop: list[Line]) -> Finding | None:
        cost = call.ms_per_step + _READ_US / 1000 * call.calls_per_step
        low, high = cost, cost
        if loop:
            cost = max(cost, sum(line.ms_per_step for line in loop))
            low, high = (fraction * cost for fraction in _READS_SAVED)
        if self.cost_share(cost) < self.limits.read_share:
            return None
        return Finding(
            id="PD10.scalar-reads",
            severity=severity(self.cost_share(cost), self.limits.read_share, self.limits.error_share),
            confidence=Confidence.HIGH,
            message=("this loop" if len(loop) > 1 else "this line")
            + " reads {reads:scalar} a step out of tensors, which takes {cost_ms}, {cost_share} of it",
            reasoning="every read, and what is computed for it alone, goes through Python and the dispatcher",
            evidence=(
                *self._read_evidence(call, cost),
                *((Measurement("lines", places(tuple(loop)), "text", "its lines"),) if len(loop) > 1 else ()),
            ),
            location=location(call.site),
            fix=Fix(
                text="Read once instead of {reads:time}: work on all tensors together, or read every 50 steps.",
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
        librarys = {_key(call.site) for call in self.reads() if _is_librarys(call)}
        return [line] + [
            one
            for one in self.lines
            if one is not line
            and one.part == line.part
            and not one.site.via
            and _key(one.site) not in librarys
            and (one.site.file, one.site.function) == (line.site.file, line.site.function)
            and abs(one.runs_per_step - line.runs_per_step) <= _ONE_FUNCTION * line.runs_per_step
        ]

    def _read_evidence(self, call: CallSite, cost: float) -> tuple[Measurement, ...]:
        return (
            milliseconds("cost_ms", cost, "per step"),
            share("cost_share", self.cost_share(cost), "of the step"),
            Measurement("reads", call.calls_per_step, "count", "scalar reads per step"),
            milliseconds("reads_ms", call.ms_per_step, "in the reads themselves"),
        )

    def _reads_on_cuda(self) -> list[Finding | None]:
        reads = self.reads()
        if sum(call.calls_per_step for call in reads) < self.limits.cuda_reads:
            return []
        return [self._read_on_cuda(call) for call in reads]

    def _read_on_cuda(self, call: CallSite) -> Finding | None:
        cost = call.ms_per_step
        felt = self.evidence.felt_ms(cost)
        if self.cost_share(felt) < self.limits.cuda_read_share:
            return None
        low, high = (min(felt, fraction * cost) for fraction in _WAIT_LOST)
        return Finding(
            id="PD10.device-sync",
            severity=severity(self.cost_share(high), self.limits.read_share, self.limits.error_share),
            confidence=Confidence.MEDIUM,
            message="this line makes the host wait for the GPU {reads:time} a step, {cost_ms} in all",
            reasoning="reading a scalar waits for everything that the device was asked to do; until the host has asked "
            "for more, the device idles",
            evidence=(
                *self._read_evidence(call, cost),
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

    # -- copies -------------------------------------------------------------------------------------------

    def round_trips(self) -> list[Finding]:
        """Data that leaves the device and comes back within the step."""
        out = [call for call in self.calls if call.kind == "copy" and call.detail.endswith("->cpu")]
        back = [call for call in self.calls if call.kind == "copy" and call.detail.startswith("cpu->")]
        # What a loader brings crosses once; a trip needs both directions in the same step, in one function.
        findings = []
        for there in out:
            here = [call for call in back if call.site.file == there.site.file and _near(call.site, there.site)]
            if not here or there.calls_per_step < 1:
                continue
            cost = there.ms_per_step + sum(call.ms_per_step for call in here)
            if self.cost_share(cost) >= self.limits.copy_share:
                findings.append(self._round_trip(there, here, cost))
        return findings

    def _round_trip(self, there: CallSite, back: list[CallSite], cost: float) -> Finding:
        low, high = (fraction * cost for fraction in _COPIES_SAVED)
        return Finding(
            id="PD10.round-trip",
            severity=severity(self.cost_share(cost), self.limits.copy_share, self.limits.error_share),
            confidence=Confidence.MEDIUM,
            message="data leaves the device and comes back in every step, {cost_ms}, {cost_share} of it",
            reasoning="{copies:copy a step goes|copies a step go} to the host here and {returns:comes|come} back in "
            "the same function; the first direction also waits for the device",
            evidence=(
                milliseconds("cost_ms", cost, "copies per step"),
                share("cost_share", self.cost_share(cost), "of the step"),
                Measurement("copies", there.calls_per_step, "count", "copies to the host per step"),
                Measurement("returns", sum(call.calls_per_step for call in back), "count", "copies back per step"),
            ),
            location=location(there.site),
            fix=Fix(
                text="Do on the device what is done on the host, and create tensors there.",
                code="mask = torch.zeros(n, device=x.device)  # instead of torch.zeros(n).to(x.device)",
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=cost,
                low=low,
                high=high,
                method="the measured copies in both directions, half of them or all",
            ),
        )

    # -- loops --------------------------------------------------------------------------------------------

    def loops(self, told: set[tuple[str, int]]) -> list[Finding]:
        """Lines that run once per element and issue small operators each time, but for those that were `told`."""
        reading = told | {_key(call.site) for call in self.reads() if call.calls_per_step >= self.limits.least_runs}
        many = [
            line
            for line in self.lines
            if _is_python(line) and _key(line.site) not in reading and self._is_repeated(line)
        ]
        return [finding for loop in _grouped(many) if (finding := self._loop(loop)) is not None]

    def _is_repeated(self, line: Line) -> bool:
        runs = line.runs_per_step
        if "rnn.py" in line.site.via:
            return False  # a cell per time step: the check of the network's layers says more about it
        least = self.limits.forward_runs if line.site.function == "forward" else self.limits.loop_runs
        return runs >= least or (runs >= self.limits.least_runs and self._is_batch_size(runs))

    def _is_batch_size(self, runs: float) -> bool:
        loaders = self.evidence.loaders
        if isinstance(loaders, Missing):
            return False
        return any(loader.batch_size is not None and abs(runs - loader.batch_size) < 0.5 for loader in loaders)

    def _loop(self, loop: _Loop) -> Finding | None:
        main = loop.main
        backward = self._backward_ms(loop)
        cost = loop.ms + backward
        if loop.op_us > self.limits.small_op_us or self.cost_share(cost) < self.limits.loop_share:
            return None
        sure = loop.ms + _BACKWARD_SURE * backward
        low, high = (fraction * spent for fraction, spent in zip(_VECTORISED, (sure, cost), strict=True))
        return Finding(
            id="PD10.element-loop",
            severity=severity(self.cost_share(cost), self.limits.loop_share, self.limits.error_share),
            confidence=Confidence.HIGH if self.cost_share(loop.ms) >= self.limits.loop_share else Confidence.MEDIUM,
            message="a Python loop runs this line {runs:time} a step and issues {ops:small operator}, {cost_ms}, "
            "{cost_share} of the step",
            reasoning="each operator works for {op_us} and is called on its own, from Python; the same on whole "
            "tensors takes a few calls",
            evidence=(
                milliseconds("cost_ms", cost, "the loop per step, with its part of the backward pass"),
                share("cost_share", self.cost_share(cost), "of the step"),
                milliseconds("loop_ms", loop.ms, "the loop itself"),
                milliseconds("backward_ms", backward, "its part of the backward pass"),
                Measurement("runs", round(loop.runs), "count", "runs per step"),
                Measurement("ops", round(loop.ops), "count", "operators per step"),
                Measurement("op_us", loop.op_us, "us", "one of its operators"),
                Measurement("lines", places(loop.lines), "text", "its lines"),
            ),
            location=location(main.site),
            fix=Fix(
                text="Compute on whole tensors instead of one element after another; where the elements need different "
                "code, `torch.vmap` or `torch.where`.",
                code="loss = (output - target).pow(2).mean(dim=1).sum()  # instead of a sum over samples",
                risk="Sums are taken in another order, so the last digits of results may differ.",
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=cost,
                low=low,
                high=high,
                method="85 to 98 % of the loop: its share of its part of the step, by its operators and the pauses "
                "between them, and 75 to 100 % of its share of the backward pass",
            ),
        )

    def _backward_ms(self, loop: _Loop) -> float:
        """The backward pass of the loop's operators: no more than by their number, and than by their time."""
        forward = [line for line in loop.lines if line.part == "forward"]
        by_time, by_number = sum(line.share for line in forward), sum(line.ops_share for line in forward)
        return self.step.parts.backward * min(1.0, by_time, by_number)


def _is_librarys(call: CallSite) -> bool:
    """Whether a library reads for a purpose of its own; older recordings know only what issued a line's first
    operator."""
    return call.by_library or call.site.via.startswith("torch/distributions/")


def _is_python(line: Line) -> bool:
    """Whether the line issues its operators itself: in the backward pass only that of a `torch.autograd.Function`."""
    return line.part in _PYTHON_PARTS or (line.part == "backward" and not line.site.via)


def _reads_every_run(call: CallSite, line: Line) -> bool:
    """Whether the line is a loop with a read, or several, in each run."""
    return call.calls_per_step >= 2 and 2 * _SURE_RUNS <= line.runs_per_step <= 1.5 * call.calls_per_step


def _near(one: Site, other: Site) -> bool:
    return one.function == other.function


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
    fewer, more = sorted((one.runs_per_step, other.runs_per_step))
    times = round(more / fewer)
    here = one.site.file == other.site.file
    slack = _ONE_FUNCTION if times == 1 and here and one.site.function == other.site.function else _SAME_RUNS
    return (times == 1 or here) and abs(more - times * fewer) <= slack * fewer


CHECK = Check(code="PD10", name="cpu-ops", title="syncs and CPU-only operators", limits=Limits(), examine=examine)
