"""Steps that get longer, because of what the job keeps: a container, hooks, a tensor, an autograd graph, wrappers or a
file that grows.

What it looks at
----------------
The length of every steady step, part by part: the trend through medians of blocks of steps (Theil and Sen), with its
99 % interval. What the job's names hold is counted a few times, more and more steps apart: lists, dictionaries, sets
and deques that have gained elements each time, hooks on modules, parameters and optimizers that have become more,
tensors and arrays that are larger each time and carry on what they held, and autograd graphs that have gained nodes;
hooks that one module, parameter or optimizer has several times, the same function bound to the same values; and
handlers of loggers that write to the same file or stream, with the time of the lines that log. Functions and objects
that have another one of their kind inside, in one more layer each time. Of steps that are long at equal distances,
where an evaluation lies or an epoch ends, their length, and whether they alone use a container that grows, or one that
a library keeps and never empties (a metric). Of operators in three steps, those that read one tensor further each time,
or join more parts each time, and what is computed of that. Where something has grown, or steps have got longer, the
lines of a step or two are timed once more, to be compared with those of the first line window. What making a batch
takes has a trend of its own, in each data-loader worker; one that gets slower has its data set looked at in the same
way, and a batch made line by line once more. Of what saves, bytes of each call. From outside: swapping, a quota's
throttling, the CPUs' clock and page faults, each by its own course over the steps; on a CUDA device the GPU's clock
where its driver says that it slows it down, and driver allocations that come more often while more reserved memory is
in no use.

Why it costs time
-----------------
What is gone through whole in every step takes longer with every element: averaging all losses so far, writing the whole
log anew, sampling from a set that is made a list first, comparing with every embedding ever made. `torch.cat([bank,
x])` copies all of the bank to add a few rows. A tensor that is computed from its own last value and never detached
keeps the graphs of all steps before, and the backward pass walks them all. A hook that is registered in every step or
epoch and never removed is called once more in each. A method that each epoch wraps anew, and a data set made of the
last one, have one more layer to go through. A handler that each epoch adds to a logger writes each record once more. A
data set that keeps what it has seen makes every item dearer than the one before. A list of losses, averaged in every
step, had doubled steps of half a millisecond after 1,000 of them.

Example
-------
    history.append(loss.detach())
    mean = torch.stack(history).mean()   # as long as the training has lasted
    std, mean = torch.std_mean(panel[: day + 1], dim=0)   # in a loop over days: all of them again, each day
    log.addHandler(FileHandler("train.log"))   # in each epoch: each record is written once more in the next
    self.outputs.append(out)              # in each evaluation, and never cleared: the next one's metrics are of all
    self.log("ap", self.train_ap.compute())   # a metric of torchmetrics, at each epoch's end: nobody resets it

How to fix
----------
Keep a running sum or the newest elements, a bank of a fixed size, write only what is new, and detach what is carried
from one step to the next. Register hooks once, before the loop, or `remove()` their handles; add a logger's handler
once; wrap what was there first.

When it stays silent
--------------------
Where the steps do not surely grow by a tenth of their early length, where they jump once (a neighbour that comes), and
where what grows takes no time: a list of numbers that is only appended to. Where steps grow and nothing that the job
keeps does, such as with sequences that get longer, it says so, names the line that takes longer, and blames nothing. A
loader is to blame only where the forward and backward pass do not grow with its batches. A replay buffer that is full,
a cache that has filled and a bank that is cut to its newest rows grow no more. Hooks that are registered once, or
removed in the step that registers them, or that are functions of their own on purpose.

Limits
------
Only what a name in the training process or a worker's data set leads to is counted: not what a library keeps for
itself, nor what a generator does. The line is told by its source, so a container that goes by another name where it
grows has none, and a tensor that is made larger by way of another variable is not told. What is told to be saved is
that of the steps seen, and every step to come costs more, by the rate that is told with it: how long the run will be is
known of loops over a `range` only, whose last step's length is told as if growth went on so. What a GPU does over time
was judged by recordings made by hand: it was not run on one that grows too hot.

Gradients and moments of Adam that fade to nearly nothing took an Intel CPU four times as long as others. Steps that
grow so are named here, and what it costs is `PD07.subnormal-numbers`.

References
----------
- Cao et al., "Understanding performance problems in deep learning systems", 2022: slower over time, 16 % of posts
- P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968
"""

from __future__ import annotations

from perfdoctor.api.findings import Check, Outcome, cannot_tell, clear, found
from perfdoctor.api.quantities import Evidence, Missing, Step, StepGrowth, Trend

from .batches import slower_loader
from .files import growing_file
from .growing_work import growing_work
from .growth import MOST, Case, Limits, measured
from .handlers import growing_handlers
from .hooks import growing_hooks
from .kept import growing_graph, growing_object
from .longer_rounds import longer_rounds
from .outside import slowing
from .repeated_hooks import repeated_hooks
from .wrapped import growing_wrappers

_CAUSES = (growing_graph, growing_hooks, growing_wrappers, growing_object, slower_loader, slowing)
"""In this order: a loader that is slower because of what the training process keeps has a name for it, and what is kept
may be why the machine swaps."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Growth that is certain and what explains it; else what makes steps longer before that shows: hooks that are there
    several times, operators that go through more with each step, and rounds that go through all those before."""
    step, growth, saves = evidence.step, evidence.growth, evidence.checkpoints
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    file = growing_file(saves, step, limits) if not isinstance(saves, Missing) else None
    if file is not None:
        return found(file)
    if isinstance(growth, Missing):
        return cannot_tell(f"no trend was seen: {growth}")
    handlers = growing_handlers(evidence, step, growth, limits)
    if handlers is not None:
        return found(handlers)
    outcome = _by_trend(evidence, step, growth, limits)
    if outcome.findings:
        return outcome
    earlier = (
        repeated_hooks(step, growth, limits)
        or growing_work(evidence, step, limits)
        or longer_rounds(step, growth, limits)
    )
    return outcome if earlier is None else found(earlier)


def _by_trend(evidence: Evidence, step: Step, growth: StepGrowth, limits: Limits) -> Outcome:
    trend = growth.trend
    if isinstance(trend, Missing):
        return cannot_tell(f"no trend was seen: {trend}")
    if not trend.is_gradual or trend.low < limits.min_growth or trend.late_ms <= trend.early_ms:
        return clear("steps took {early_ms} at first and {late_ms} in the end, over {steps:step}", *measured(trend))
    case = Case(evidence, step, growth, trend, limits)
    finding = next((finding for cause in _CAUSES if (finding := cause(case)) is not None), None)
    if finding is not None:
        return found(finding)
    if _is_by_fading(evidence, trend):
        return clear(
            "steps went from {early_ms} to {late_ms} because of subnormal numbers, which PD07 tells", *measured(trend)
        )
    return cannot_tell(_unexplained(growth, trend))


def _is_by_fading(evidence: Evidence, trend: Trend) -> bool:
    """Whether subnormal numbers take most of what the steps have gained."""
    seen = evidence.subnormals
    if seen is None or isinstance(seen, Missing):
        return False
    return seen.saved_ms >= MOST * (trend.late_ms - trend.early_ms)


def _unexplained(growth: StepGrowth, trend: Trend) -> str:
    """With the line that takes longer, which need not be to blame."""
    line = growth.lines[0] if growth.lines and growth.lines[0].share >= MOST else None
    where = f", {line.share:.0%} of that at {line.site}" if line is not None else ""
    return (
        f"the steps got {trend.grown_ms / trend.early_ms:.0%} longer{where}, and nothing that the job keeps explains "
        "it; inputs that get larger would"
    ).replace("%", " %")


CHECK = Check(code="PD15", name="slower-over-time", title="steps that get longer", limits=Limits(), examine=examine)
