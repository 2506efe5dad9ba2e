"""Debugging that was left on: it helped to find an error once, and costs time in every step since.

What it looks at
----------------
Autograd's anomaly detection, in a few steps of the job: each stack trace that an operator takes in the forward pass,
each search for NaN behind a node of the backward pass, how long they take, and the line that switched it on. A profiler
of the job's own (`torch.profiler`, `torch.autograd.profiler`, `emit_nvtx`): in which steps it is on, by a timing in the
job's process what an operator takes longer with it, and the calls of its `step()`, in which a cycle of its schedule
ends. Deterministic algorithms: the job's own passes, run again after its last step with and without. `tracemalloc`, and
what Python calls for every call or line (`cProfile`, `coverage`, a debugger, a function given to `sys.settrace`): steps
of the job, some of which it does not hear of, in turns. Python's debugging allocator (`PYTHONMALLOC=debug`,
`PYTHONDEVMODE`, `-X dev`): after the job an interpreter like its own, with these settings and without. Modes around the
passes (`FlopCounterMode`, a `TorchDispatchMode` or `TorchFunctionMode` of the job's own): a clock around what they are
called for, in a few steps, less the operators themselves; a default device (`torch.set_default_device`): the calls that
it hears of, and what one takes longer with it. Lines that read tensors to test them: `assert`, `isnan`, `isinf`,
`isfinite`. The search for overflows that transformers' trainer makes in each module (`debug="underflow_overflow"`), by
its calls. What `torch.distributions` tests of its arguments, by the operator that it alone asks with: operators of two
steps, one by one.

Why it costs time
-----------------
With anomaly detection on, every operator whose gradient will be needed takes a Python stack trace, and every result of
the backward pass is searched for NaN. A network of 40 layers took 1.6 ms per step without it and 13.6 ms with it. A
profiler writes one to three records for each operator, 1.5 to 5 us together: a step of 2.7 ms took 4 to 6 ms under it.
Where a cycle of its schedule ends, what it recorded is sorted and written: with a trace of 5 in 17 steps, without
`repeat=1`, those of a small network took 38 ms instead of 23. With deterministic algorithms torch fills all memory that
it allocates, and some operators add up one element after another. `tracemalloc` notes the place of every allocation of
Python: a step of small layers took 4.5 ms with it and 1.4 without. A function that `sys.settrace` was given is called
for every line that runs: a job of small layers took 29 s with one that notes the lines, and 23 s without. The debugging
allocator fills every block that Python takes or gives back, and checks its ends. A mode has each operator call Python,
10 to 50 us each: the FLOPs of every step, counted, more than doubled a step of small layers. With a default device each
call of torch goes through Python, about 1 us. A test reads a tensor, and everything waits for the answer.
`torch.distributions` tests what it is given unless it is told not to: a recurrent state-space model with 60
distributions a step took 21.7 s, and 19.5 s without.

Example
-------
    torch.autograd.set_detect_anomaly(True)   # since the NaN of last spring
    cProfile.Profile().enable()               # and nobody reads it any more
    with torch.profiler.profile(with_stack=True):
        for x, y in loader:                   # all of the training
            ...
            assert torch.isfinite(p.grad).all()

How to fix
----------
Switch it off, and on again for a run that is to find where a NaN comes from. Count FLOPs in one step. Give a profiler
a schedule that ends (`torch.profiler.schedule(..., repeat=1)`). Set
`torch.utils.deterministic.fill_uninitialized_memory = False`, or use deterministic algorithms only in runs that are
compared bit by bit. Test the loss every 50 steps. In a job that is known to work, have distributions test nothing:
`Distribution.set_default_validate_args(False)`.

When it stays silent
--------------------
Below 5 % of the step, and where it is off. A profiler with a schedule by which it ends, one that records few of the
steps, and one that was on in the first half of the steady steps only. A mode in one step only, in evaluation, or that
torch itself works with (activation checkpointing, `torch.compile`). Distributions of a job that compiles anything:
`torch.compile` sees to it that they test nothing. Asserts on shapes and other numbers of Python's, which read no
tensor. `-X importtime`, which costs the start only. Other aids that variables switch on (`CUDA_LAUNCH_BLOCKING`,
`TORCH_LOGS`, ...) are named, and told where the report says how far to trust the run (PD96): what they cost cannot be
told from one run.

Limits
------
On a GPU the search for NaN also waits for what the device was asked to do anyway, so only the traces are sure to be
saved; passes are not run again there, so what deterministic algorithms cost is not told. Nothing inside compiled code
is seen. What a profiler costs is told from small operators and less exact than the rest; Python's calls, which
`with_stack=True` records too, are not in it. An answer that is kept in a variable and tested on another line is a
scalar read (PD10). Deterministic algorithms are not timed in a job that failed. A mode that is only
around what is neither in a model's call nor a backward pass is not seen, nor are modes of a compiled job timed. Memory
that is taken in the few steps of which `tracemalloc` does not hear, and kept, is in no snapshot, and calls in such
steps in no profile of the job's own; Python 3.10 cannot let a trace function wait. What the debugging allocator costs
is a range: calls of functions take little more with it, small objects most, and how much of a step's Python is the one
or the other is not known.

References
----------
- PyTorch, "Performance tuning guide": disable debugging APIs
- Lightning-AI/pytorch-lightning#17359: anomaly detection left on, 2.5 times
- torch.utils.deterministic: filling uninitialized memory is detrimental to performance
"""

from __future__ import annotations

from perfdoctor.api.findings import Check, Measurement, Outcome, cannot_tell, clear, found, milliseconds, present
from perfdoctor.api.quantities import Evidence, Missing, Step

from .allocator import allocator_ms, debugging_allocator
from .anomaly import KINDS, anomaly_detection
from .asserts import tested_tensors
from .deterministic import deterministic_algorithms, deterministic_ms
from .distributions import validated_distributions
from .limits import Limits
from .modes import modes_left_on, modes_ms
from .profiler import profiler_left_on, profiler_ms
from .searching import searched_modules, searching_ms
from .tracing import traced, traced_calls_ms, tracing_ms

_NOT_TOLD = Missing("one run cannot tell")


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """What was timed, by its own cost; a switch that is on is no finding."""
    step, calls = evidence.step, evidence.call_sites
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    findings = present(
        None if isinstance(calls, Missing) else anomaly_detection(evidence, step, calls, limits),
        profiler_left_on(evidence, step, limits),
        deterministic_algorithms(evidence, step, limits),
        tested_tensors(evidence, step, limits),
        debugging_allocator(evidence, step, limits),
        *traced(evidence, step, limits),
        *modes_left_on(evidence, step, limits),
        searched_modules(evidence, step, limits),
        validated_distributions(evidence, step, limits),
    )
    if findings:
        return found(*findings)
    if isinstance(calls, Missing):
        return cannot_tell(f"calls were not watched: {calls}")
    cost_ms = sum(call.ms_per_step for call in calls if call.kind in KINDS)
    measured = milliseconds("anomaly_ms", cost_ms, "anomaly detection per step")
    told = _told(evidence, step)
    aids = _untold(evidence, step)
    reason = "autograd's anomaly detection takes {anomaly_ms} per step" + "".join(
        f", {one.label} {{{one.name}}}" for one in told
    )
    if not aids:
        return clear(reason, measured, *told)
    return clear(
        reason + "; what {aids} costs cannot be told from one run: time the job without",
        measured,
        *told,
        Measurement("aids", " and ".join(aids), "text", "switched on"),
    )


def _told(evidence: Evidence, step: Step) -> tuple[Measurement, ...]:
    """What is on, and costs little."""
    asked = (
        ("profiler_ms", profiler_ms(evidence), "the job's own profiler"),
        ("deterministic_ms", deterministic_ms(evidence, step), "deterministic algorithms"),
        ("tracing_ms", tracing_ms(evidence, step), "`tracemalloc`"),
        ("traced_calls_ms", traced_calls_ms(evidence, step), "what Python calls for every call or line"),
        ("allocator_ms", allocator_ms(evidence, step), "Python's debugging allocator"),
        ("modes_ms", modes_ms(evidence), "modes of the job's own"),
        ("searching_ms", searching_ms(evidence), "transformers' search for overflows"),
    )
    return tuple(milliseconds(name, ms, label) for name, ms, label in asked if not isinstance(ms, Missing) and ms > 0)


def _untold(evidence: Evidence, step: Step) -> list[str]:
    """What is on, and was not timed."""
    timed = {
        "tracing": tracing_ms(evidence, step),
        "traced_calls": traced_calls_ms(evidence, step),
        "allocator": allocator_ms(evidence, step),
    }
    on = () if isinstance(evidence.debugging, Missing) else evidence.debugging
    aids = [aid.name for aid in on if isinstance(timed.get(aid.kind, _NOT_TOLD), Missing)]
    if isinstance(profiler_ms(evidence), Missing):
        aids.append("the job's own profiler")
    if isinstance(modes_ms(evidence), Missing):
        aids.append("a mode of the job's own around its steps")
    if isinstance(deterministic_ms(evidence, step), Missing):
        aids.append("deterministic algorithms (`torch.use_deterministic_algorithms`)")
    return aids


CHECK = Check(
    code="PD16", name="debugging-left-on", title="debugging that was left on", limits=Limits(), examine=examine
)
