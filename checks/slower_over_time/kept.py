"""Growth because of what the training process keeps: a container, a tensor or an autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location, milliseconds
from perfdoctor.api.quantities import GrowingContainer, GrowingHooks, GrowingLine, GrowingTensor, Site, Trend

from .._shared.lines import key
from .growth import MOST, Case, line_measured

Kept = TypeVar("Kept")
NAMED = 0.4
"""Of the growth, in lines that name a container or are given it: a busy neighbour makes all other lines longer too."""
_ON_CPU = 0.5
"""Of the growth: with less of it as CPU time of the training thread, something else than more work is in the way."""
_BACKWARD = 0.8
"""Of the growth, that the backward pass may have: it walks what was computed from a tensor, in a line of its own."""


def growing_graph(case: Case) -> Finding | None:
    """A deeper graph lengthens the backward pass first."""
    trend, parts = case.trend, case.trend.parts
    if not case.growth.graphs or parts.backward + parts.forward < MOST * parts.total or parts.backward <= 0:
        return None
    graph = case.growth.graphs[0]
    name = graph.name if graph.name.replace(".", "").isidentifier() else "state"
    return Finding(
        id="PD15.growing-graph",
        severity=case.severity,
        confidence=Confidence.HIGH if _computes_more(trend) else Confidence.MEDIUM,
        message="steps went from {early_ms} to {late_ms}: {name} keeps the autograd graphs of all steps before",
        reasoning="its graph gains {per_step:node} per step and had {nodes:node} in the end; the backward pass, which "
        "walks it, gained {backward_ms}" + case.rate,
        evidence=(
            *case.measured,
            Measurement("name", graph.name, "text", "the tensor that keeps it"),
            Measurement("nodes", graph.nodes, "count", "nodes in the end"),
            Measurement("per_step", round(graph.per_step, 2), "count", "nodes that it gains per step"),
            milliseconds("backward_ms", parts.backward, "what the backward pass gained"),
        ),
        location=location(graph.site),
        fix=Fix(
            text="Detach what is carried from one step to the next; `retain_graph=True` is not needed then.",
            code=f"{name} = {name}.detach()",
            risk="No gradient flows into earlier steps any more; where it should, cut it every few steps.",
        ),
        savings=case.saved,
    )


def growing_object(case: Case) -> Finding | None:
    """The container or tensor whose lines take longer; a container also where collections do, which walk all that is
    kept."""
    growth, trend = case.growth, case.trend
    passes = sum(line.share for line in growth.lines if line.part == "backward")
    tensors = [(one, lines_of(one, growth.lines)) for one in growth.tensors]
    containers = [(one, lines_of(one, growth.lines)) for one in growth.containers]
    tensor, its_lines = max(tensors, key=lambda pair: _share(pair[1]), default=(None, []))
    container, lines = max(containers, key=lambda pair: _share(pair[1]), default=(None, []))
    # A memory of observations, actions and rewards is one that grows in a line for each.
    all_lines = {key(line.site): line for _, some in tensors for line in some}
    of_tensors = _share(list(all_lines.values())) / (1 - min(_BACKWARD, max(0.0, passes)))
    if tensor is not None and its_lines and of_tensors >= max(NAMED, _share(lines)):
        return _growing_tensor(case, tensor, its_lines[0])
    if container is not None and _share(lines) >= NAMED:
        return _growing_container(case, container, lines[0])
    if growth.containers and trend.parts.gc >= MOST * trend.parts.total:
        return _growing_container(case, growth.containers[0], None)
    return None


def lines_of(kept: GrowingContainer | GrowingHooks | GrowingTensor, lines: Sequence[GrowingLine]) -> list[GrowingLine]:
    """Those that name it, and those of functions that it is given to."""
    return lines_in(kept.uses, lines, kept.passed_to)


def lines_in(places: Sequence[Site], lines: Sequence[GrowingLine], functions: Sequence[str] = ()) -> list[GrowingLine]:
    """Those at these places, and those of functions with these names."""
    known = {key(site) for site in places}
    return [line for line in lines if key(line.site) in known or line.site.function in functions]


def dearest(
    kept: Sequence[Kept], lines: Callable[[Kept], list[GrowingLine]], least: float = NAMED
) -> tuple[Kept, list[GrowingLine]] | None:
    """The one whose lines take most of what steps take longer, with these; None where that is less than `least`."""
    one, its_lines = max(((one, lines(one)) for one in kept), key=lambda pair: _share(pair[1]), default=(None, []))
    return None if one is None or _share(its_lines) < least else (one, its_lines)


def container_measured(container: GrowingContainer) -> tuple[Measurement, ...]:
    """What grows, by how much."""
    return (
        Measurement("name", container.name, "text", "what grows"),
        Measurement("kind", container.kind, "text", "what it is"),
        Measurement("length", container.length, "count", "its elements in the end"),
        Measurement("per_step", round(container.per_step, 2), "count", "elements that it gains per step"),
        Measurement("bytes_per_step", container.bytes_per_step, "bytes", "of tensors that it gains per step"),
    )


def _computes_more(trend: Trend) -> bool:
    """Whether the growth is work of the training thread, and not a wait for a CPU or a throttled one."""
    return trend.cpu_ms >= _ON_CPU * trend.parts.total


def _share(lines: Sequence[GrowingLine]) -> float:
    return sum(line.share for line in lines)


def _longer(line: GrowingLine | None, adds: object) -> str:
    """About the line that takes longer, where it is not the one that `adds`."""
    if line is None:
        return "; garbage collections, which walk all that is kept, take the time"
    return "; {line} took {line_early_ms} per step at first and {line_late_ms} later" if line.site != adds else ""


_PICKED = (
    "; a deque walks to each place that is asked for",
    Fix(
        text="Keep the elements in a list, and write the newest over the oldest: a list has any place at hand.",
        code="if len(memory) < capacity:\n    memory.append(element)\nelse:\n    memory[at] = element\n"
        "at = (at + 1) % capacity",
        risk="None for the elements; they lie in another order.",
    ),
)


def _growing_container(case: Case, container: GrowingContainer, line: GrowingLine | None) -> Finding:
    keeps_graphs = container.graphs >= MOST
    variable = container.name.replace("{", "{{").replace("}", "}}")
    picked = line is not None and container.picked_at is not None and key(line.site) == key(container.picked_at)
    return Finding(
        id="PD15.growing-container",
        severity=case.severity,
        confidence=Confidence.HIGH if line is not None else Confidence.MEDIUM,
        message="steps went from {early_ms} to {late_ms}: {name} grows by {per_step:element} per step",
        reasoning="the {kind} had {length:element} in the end"
        + (", each with the graph of its step" if keeps_graphs else "")
        + _longer(line, container.site)
        + _PICKED[0] * picked
        + case.rate,
        evidence=(
            *case.measured,
            *container_measured(container),
            *(line_measured(line) if line is not None else ()),
        ),
        location=location((container.picked_at if picked else None) or container.site or (line.site if line else None)),
        fix=_PICKED[1]
        if picked
        else Fix(
            text="Keep numbers, not tensors with the graphs of their steps, and go through new elements only."
            if keeps_graphs
            else "Go through new elements only: a running sum, the newest ones, or a file that is appended to.",
            code=f"{variable}.append(value.item())"
            if keeps_graphs
            else "total += value.item()\nmean = total / (step + 1)",
            risk="What needs all elements, such as a plot, is done once an epoch.",
        ),
        savings=case.saved,
    )


def _growing_tensor(case: Case, tensor: GrowingTensor, line: GrowingLine) -> Finding:
    return Finding(
        id="PD15.growing-tensor",
        severity=case.severity,
        confidence=Confidence.HIGH,
        message="steps went from {early_ms} to {late_ms}: {name} grows by {bytes_per_step} per step",
        reasoning="it had {bytes} in the end, is copied whole to be made larger, and what is computed from it takes "
        "longer with it" + _longer(line, tensor.site) + case.rate,
        evidence=(
            *case.measured,
            Measurement("name", tensor.name, "text", "what grows"),
            Measurement("bytes", tensor.bytes, "bytes", "that it had in the end"),
            Measurement("bytes_per_step", tensor.bytes_per_step, "bytes", "that it gains per step"),
            *line_measured(line),
        ),
        location=location(tensor.site),
        fix=Fix(
            text="Keep the newest rows in a tensor of a fixed size, written in turn.",
            code="bank = torch.zeros(rows, width)  # once, before the loop\n"
            "bank[(torch.arange(len(x)) + at) % rows] = x.detach()\nat = (at + len(x)) % rows",
            risk="Rows older than those kept are forgotten.",
        ),
        savings=case.saved,
    )
