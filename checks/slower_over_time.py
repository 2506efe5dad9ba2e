"""Steps that get longer, because of what the job keeps: a container or an autograd graph that grows with every step.

What it looks at
----------------
The length of every steady step, part by part: the trend through medians of blocks of steps (Theil and Sen), with its
99 % interval. What the job's names hold is counted a few times, more and more steps apart: lists, dictionaries, sets
and deques that have gained elements each time, and autograd graphs that have gained nodes. Where something has grown,
the lines of a step or two are timed once more, to be compared with those of the first line window.

Why it costs time
-----------------
What is gone through whole in every step takes longer with every element: averaging all losses so far, writing the whole
log anew, sampling from a set that is made a list first. A tensor that is computed from its own last value and never
detached keeps the graphs of all steps before, and the backward pass walks them all. A list of losses, averaged in every
step, had doubled steps of half a millisecond after 1,000 of them.

Example
-------
    history.append(loss.detach())
    mean = torch.stack(history).mean()   # as long as the training has lasted

How to fix
----------
Keep a running sum or the newest elements, write only what is new, and detach what is carried from one step to the next.

When it stays silent
--------------------
Where the steps do not surely grow by a tenth of their early length, where they jump once (a neighbour that comes), and
where what grows takes no time: a list of numbers that is only appended to. Where steps grow and nothing that the job
keeps does, such as with sequences that get longer, it says so and blames nothing.

Limits
------
Only containers of Python within reach of a name in the training process are counted: not a data set's in a worker, nor
one kept by a library. The line is told by its source, so a container that goes by another name where it grows has
none. What the steps will take later is not predicted: growth is told as far as it was seen.

References
----------
- Cao et al., "Understanding performance problems in deep learning systems", 2022: slower over time, 16 % of posts
- P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Check,
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    Savings,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import (
    Evidence,
    GrowingContainer,
    GrowingGraph,
    GrowingLine,
    Missing,
    Step,
    StepGrowth,
    Trend,
)


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


_MOST = 0.5
"""Of the growth: a cause that explains less is not to blame for it."""
_NAMED = 0.4
"""Of the growth, in lines that name a container or are given it: a busy neighbour makes all other lines longer too."""
_ON_CPU = 0.5
"""Of the growth: with less of it as CPU time of the training thread, something else than more work is in the way."""
_KEPT = 0.9
"""Of the growth, saved at least: appending itself, and what replaces the loop over it, remain."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Growth that is certain, and then what explains it."""
    step, growth = evidence.step, evidence.growth
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(growth, Missing) or isinstance(growth.trend, Missing):
        return cannot_tell(f"no trend was seen: {growth if isinstance(growth, Missing) else growth.trend}")
    trend = growth.trend
    if not trend.is_gradual or trend.low < limits.min_growth or trend.late_ms <= trend.early_ms:
        return clear("steps took {early_ms} at first and {late_ms} in the end, over {steps:step}", *_measured(trend))
    graph = _graph(growth, trend)
    if graph is not None:
        return found(_growing_graph(graph, step, trend, limits))
    container = _container(growth, trend)
    if container is not None:
        return found(_growing_container(*container, step, trend, limits))
    return cannot_tell(
        f"the steps got {100 * trend.grown_ms / trend.early_ms:.0f} % longer, and no container or graph that the job "
        "keeps explains it; inputs that get larger would"
    )


def _measured(trend: Trend) -> tuple[Measurement, ...]:
    return (
        milliseconds("early_ms", trend.early_ms, "a step at first"),
        milliseconds("late_ms", trend.late_ms, "a step in the end"),
        Measurement("steps", trend.steps, "count", "steps from the first steady one to the last"),
        share("growth_low", trend.low, "growth over them, at least"),
        share("growth_high", trend.high, "growth over them, at most"),
    )


# -- what explains it -------------------------------------------------------------------------------------


def _computes_more(trend: Trend) -> bool:
    """Whether the growth is work of the training thread, and not a wait for a CPU or a throttled one."""
    return trend.cpu_ms >= _ON_CPU * trend.parts.total


def _graph(growth: StepGrowth, trend: Trend) -> GrowingGraph | None:
    """A deeper graph lengthens the backward pass first."""
    parts = trend.parts
    if not growth.graphs or parts.backward + parts.forward < _MOST * parts.total or parts.backward <= 0:
        return None
    return growth.graphs[0]


def _container(growth: StepGrowth, trend: Trend) -> tuple[GrowingContainer, GrowingLine | None] | None:
    """With the line that takes longer; None where that is not known, as where collections walk what is kept."""
    found = [(container, _lines_of(container, growth.lines)) for container in growth.containers]
    best = max(found, key=lambda pair: sum(line.share for line in pair[1]), default=None)
    if best is not None and sum(line.share for line in best[1]) >= _NAMED:
        return best[0], best[1][0]
    if growth.containers and trend.parts.gc >= _MOST * trend.parts.total:
        return growth.containers[0], None
    return None


def _lines_of(container: GrowingContainer, lines: tuple[GrowingLine, ...]) -> list[GrowingLine]:
    """Those that name it, and those of functions that it is given to."""
    places = {(site.file, site.line) for site in container.uses}
    return [
        line
        for line in lines
        if (line.site.file, line.site.line) in places or line.site.function in container.passed_to
    ]


# -- findings ---------------------------------------------------------------------------------------------


def _growing_container(
    container: GrowingContainer, line: GrowingLine | None, step: Step, trend: Trend, limits: Limits
) -> Finding:
    keeps_graphs, costly = container.graphs >= _MOST, line is not None and line.site != container.site
    variable = container.name.replace("{", "{{").replace("}", "}}")
    return Finding(
        id="PD15.growing-container",
        severity=_cost(step, trend).severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if line is not None else Confidence.MEDIUM,
        message="steps went from {early_ms} to {late_ms}: {name} grows by {per_step:element} per step",
        reasoning="the {kind} had {length:element} in the end"
        + (", each with the graph of its step" if keeps_graphs else "")
        + ("; {line} took {line_early_ms} per step at first and {line_late_ms} later" if costly else "")
        + ("" if line is not None else "; garbage collections, which walk all that is kept, take the time"),
        evidence=(
            *_measured(trend),
            Measurement("name", container.name, "text", "what grows"),
            Measurement("kind", container.kind, "text", "what it is"),
            Measurement("length", container.length, "count", "its elements in the end"),
            Measurement("per_step", round(container.per_step, 2), "count", "elements that it gains per step"),
            Measurement("bytes_per_step", container.bytes_per_step, "bytes", "of tensors that it gains per step"),
            *(_line(line) if line is not None else ()),
            *_cost(step, trend).measured("on top of the early length, per step"),
        ),
        location=location(container.site or (line.site if line is not None else None)),
        fix=Fix(
            text="Keep numbers, not tensors with the graphs of their steps, and go through new elements only."
            if keeps_graphs
            else "Go through new elements only: a running sum, the newest ones, or a file that is appended to.",
            code=f"{variable}.append(value.item())"
            if keeps_graphs
            else "total += value.item()\nmean = total / (step + 1)",
            risk="What needs all elements, such as a plot, is done once an epoch.",
        ),
        savings=_saved(step, trend),
    )


def _growing_graph(graph: GrowingGraph, step: Step, trend: Trend, limits: Limits) -> Finding:
    name = graph.name if graph.name.replace(".", "").isidentifier() else "state"
    return Finding(
        id="PD15.growing-graph",
        severity=_cost(step, trend).severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if _computes_more(trend) else Confidence.MEDIUM,
        message="steps went from {early_ms} to {late_ms}: {name} keeps the autograd graphs of all steps before",
        reasoning="its graph gains {per_step:node} per step and had {nodes:node} in the end; the backward pass, which "
        "walks it, gained {backward_ms}",
        evidence=(
            *_measured(trend),
            Measurement("name", graph.name, "text", "the tensor that keeps it"),
            Measurement("nodes", graph.nodes, "count", "nodes in the end"),
            Measurement("per_step", round(graph.per_step, 2), "count", "nodes that it gains per step"),
            milliseconds("backward_ms", trend.parts.backward, "what the backward pass gained"),
            *_cost(step, trend).measured("on top of the early length, per step"),
        ),
        location=location(graph.site),
        fix=Fix(
            text="Detach what is carried from one step to the next; `retain_graph=True` is not needed then.",
            code=f"{name} = {name}.detach()",
            risk="No gradient flows into earlier steps any more; where it should, cut it every few steps.",
        ),
        savings=_saved(step, trend),
    )


def _line(line: GrowingLine) -> tuple[Measurement, ...]:
    return (
        Measurement("line", f"{line.site.file}:{line.site.line}", "text", "the line that takes longer"),
        milliseconds("line_early_ms", line.early_ms, "that line per step, at first"),
        milliseconds("line_late_ms", line.late_ms, "that line per step, later"),
    )


def _cost(step: Step, trend: Trend) -> Cost:
    return Cost(step, max(0.0, step.step_ms - trend.early_ms))


def _saved(step: Step, trend: Trend) -> Savings:
    """Of the mean step at least half of the growth, which is its mean; at most as much of it as of the last steps."""
    low = _KEPT * max(0.0, min(step.step_ms - trend.early_ms, trend.grown_ms / 2))
    high = step.step_ms * (1 - trend.early_ms / trend.late_ms)
    parts = {Part.GC: trend.parts.gc, Part.INPUT_WAIT: trend.parts.input_wait}
    largest = max(parts, key=lambda part: parts[part])
    part = largest if parts[largest] >= _MOST * trend.parts.total else Part.OTHER
    return savings(
        step,
        low,
        max(low, high),
        "the mean growth of the steps, and at most the share that it has of the last ones; it rises with every step",
        part=part,
        first=True,
    )


CHECK = Check(code="PD15", name="slower-over-time", title="steps that get longer", limits=Limits(), examine=examine)
