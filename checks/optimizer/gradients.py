"""Gradients of parameters that no optimizer updates: the backward pass computes them, and nobody uses them."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, FrozenTiming, Missing, Step, UnusedGradients

from .._shared.graph import FREEZE_HELD, GRAPH_SAVES
from .limits import Limits

_AGAIN = (0.85, 1.25)
"""Around what the passes took less when they were run again: 0.95, 0.96 and 0.88 of what trials of two jobs saved. The
job adds each gradient to one that is there, or takes memory for it, which the repetition leaves out."""
_COLDER = 1.5
"""Times what was run again, at most, that the same takes in the job, whose memory is not at hand (1.07 to 1.4 in those
jobs): where the passes take longer than that, others are among them."""
_AHEAD = (0.8, 1.0)
"""Of the backward pass in layers that it need not reach: all of it, as far as it was told apart."""
_BEHIND = (0.2, 0.5)
"""Of the backward pass in layers that it must come through: products for the weights are up to half of it."""
_BYTES = 4
"""Of a gradient's number, as DistributedDataParallel sends it."""
_NOT_GIVEN = (
    "for parameter in model.backbone.parameters():  # whatever the optimizer was not given\n"
    "    parameter.requires_grad_(False)"
)


def unused_gradients(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """None where an optimizer updates whatever has a gradient, the job was seen to use them, or they cost little."""
    layers, ops = evidence.layers, evidence.ops
    if isinstance(layers, Missing) or isinstance(layers.unused, Missing) or step.boundary != "optimizer":
        return None
    unused = layers.unused
    passes_ms = step.parts.forward + step.parts.backward
    timing = Missing("no operators") if isinstance(ops, Missing) else ops.frozen
    if isinstance(timing, Missing):
        timed: tuple[Measurement, ...] = ()
        method = "their part of the passes, as measured by layer"
        low, high = _by_layer(unused, step)
    else:
        timed, method = _timed(timing), "the model's own passes, run again with and without after the last step"
        low, high = (fraction * _saved_ms(timing, passes_ms) for fraction in _AGAIN)
    cost = Cost(step, min((low + high) / 2, passes_ms))
    sent_ms = _sent_ms(evidence, unused)
    if cost.share < limits.gradients_share:
        return None
    is_held = unused.held == unused.parameters
    is_set = unused.set_on_modules > 0
    decided = evidence.job.option("requires_grad") if is_set else evidence.job.option("rate") if is_held else None
    # Whoever left them out, or gave them no rate, did so where the optimizer was made; a network of its own, such as
    # that of a loss, is frozen where it is made itself.
    left_out = is_held or unused.partly
    made_at = ops.optimizer_at if left_out and not isinstance(ops, Missing) else None
    return Finding(
        id="PD17.gradients-without-optimizer",
        severity=cost.severity(limits.gradients_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="the backward pass computes gradients for {parameters:parameter} that no optimizer updates: {cost_ms} "
        "per step ({cost_share})",
        reasoning="{of:parameter} require gradients, and those of {modules} are "
        + ("held by a learning rate of 0" if is_held else "in no optimizer")
        + ("; {set_on_modules:module} of these have an attribute `requires_grad`, which sets nothing" * is_set)
        + "; in the steps that were watched nobody "
        + ("else " if is_held else "")
        + "read these"
        + ", except for the norm of all gradients" * unused.in_norm
        + ("; the passes were run again: {now_ms} as they are, {frozen_ms} with these frozen" if timed else "")
        + ("; and the ranks add them up, up to {sent_ms}" if sent_ms else ""),
        evidence=(
            *cost.measured(),
            Measurement("parameters", unused.parameters, "count", "parameters that get gradients for nothing"),
            Measurement("of", unused.of, "count", "all that require gradients"),
            Measurement("held", unused.held, "count", "of these, in an optimizer with a learning rate of 0"),
            Measurement("set_on_modules", unused.set_on_modules, "count", "modules with an attribute `requires_grad`"),
            Measurement("elements", unused.elements, "count", "their elements"),
            Measurement("modules", _named(unused.modules), "text", "modules without an optimizer"),
            *timed,
            *((milliseconds("sent_ms", sent_ms, "sending them to the other ranks, at most"),) if sent_ms else ()),
        ),
        location=location(decided or made_at or unused.made_at or unused.called_at),
        fix=Fix(
            text="Freeze what is not to learn, before the loop"
            + (": `requires_grad_(False)` reaches a module's parameters" * is_set)
            + "; or "
            + ("give it a learning rate" if is_held else "give it to the optimizer")
            + ", if it is to learn.",
            code=FREEZE_HELD if is_held else _NOT_GIVEN,
            risk=(
                "The norm that is clipped or logged is that of the other parameters then. "
                if unused.in_norm
                else "None for what learns now. "
            )
            + (
                "A schedule that is to raise this learning rate has to thaw them first."
                if is_held
                else "Frozen parameters learn only once that is taken back."
            ),
            remedies=("optimizer.freeze-unused",),
        ),
        savings=savings(step, low, high + sent_ms, method, ceiling=min(high, passes_ms) + sent_ms),
    )


def _sent_ms(evidence: Evidence, unused: UnusedGradients) -> float:
    """Of what sending gradients takes that no computing hides, their part, by their size."""
    together = evidence.communication
    if isinstance(together, Missing) or together.model is None or not together.model.total_parameter_size_bytes:
        return 0.0
    return together.exposed_ms * min(1.0, _BYTES * unused.elements / together.model.total_parameter_size_bytes)


def _by_layer(unused: UnusedGradients, step: Step) -> tuple[float, float]:
    """The range of the saving, milliseconds, where the passes were not run again."""
    ahead_ms = min(unused.ahead_backward_ms, step.parts.backward)
    # A forward pass that no backward pass follows has recorded no graph.
    forward_ms = min(unused.ahead_forward_ms, step.parts.forward, ahead_ms)
    behind_ms = min(unused.behind_backward_ms, step.parts.backward - ahead_ms)
    low, high = (
        graph * forward_ms + ahead * ahead_ms + behind * behind_ms
        for graph, ahead, behind in zip(GRAPH_SAVES, _AHEAD, _BEHIND, strict=True)
    )
    return low, high


def _saved_ms(timing: FrozenTiming, passes_ms: float) -> float:
    if timing.now_ms <= 0:
        return 0.0
    return max(0.0, timing.now_ms - timing.frozen_ms) * min(_COLDER, passes_ms / timing.now_ms)


def _timed(timing: FrozenTiming) -> tuple[Measurement, Measurement]:
    return (
        milliseconds("now_ms", timing.now_ms, "the passes as they are, timed"),
        milliseconds("frozen_ms", timing.frozen_ms, "with these parameters frozen"),
    )


def _named(modules: tuple[str, ...]) -> str:
    """The first three."""
    more = len(modules) - 3
    return ", ".join(f"`{name}`" for name in modules[:3]) + (f" and {more} more" if more > 0 else "")
