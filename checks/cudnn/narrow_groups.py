"""Convolutions whose groups hold fewer channels than a CPU's vectors."""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, savings
from perfdoctor.api.quantities import Evidence, GroupsTiming, Missing, OpProfile, Site, Step

from .case import Limits

_KEEPS = (0.6, 1.1)
"""Of what timed operators save: in the job their tensors lie elsewhere, and a group of eight channels is less than the
sixteen that were timed."""


def narrow_groups(evidence: Evidence, step: Step, ops: OpProfile, limits: Limits) -> Finding | None:
    """By the job's own operators, timed with several groups in one, and zeros between them; None where that saves
    little. An opportunity: how many groups there are is the model's own business."""
    faster = [timing for timing in ops.groups_timings if timing.wide_ms < timing.now_ms]
    saved = in_step(step, ops, sum(map(_saved_ms, faster)))
    if not faster or saved < limits.min_share * step.step_ms:
        return None
    dearest = max(faster, key=_saved_ms)
    cost = Cost(step, saved)
    return Finding(
        id="PD02.narrow-groups",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="convolutions of {groups:group} of {channels:channel} take {cost_ms} per step longer than of wide "
        "ones ({cost_share})",
        reasoning="vectors hold 8 or 16 channels, and groups of so few have no kernel that fills them; these "
        "convolutions were made again in the job's process with several groups in one and weights of 0 between them, "
        "which makes the same numbers with more arithmetic, {ratio} as fast",
        evidence=(
            *cost.measured("what they take longer than with groups of 16 channels"),
            Measurement("groups", dearest.groups, "count", "groups of the dearest of them"),
            Measurement("channels", dearest.weight_shape[0] // dearest.groups, "count", "channels that each makes"),
            Measurement("ratio", dearest.now_ms / dearest.wide_ms, "ratio", "the dearest, over wide groups"),
        ),
        location=location(_place(evidence, dearest)),
        fix=Fix(
            text="Make fewer groups, of 8 or 16 channels; or no groups.",
            code="groups = max(1, channels // 16)  # not 32 groups of a few channels each\n"
            "conv = nn.Conv2d(channels, channels, 3, padding=1, groups=groups)",
            risk="Other groups are another model, and checkpoints do not fit it.",
        ),
        savings=savings(
            step,
            _KEEPS[0] * saved,
            _KEEPS[1] * saved,
            "the job's own convolutions, timed in its process with groups of 16 channels that hold the same weights",
        ),
    )


def _saved_ms(timing: GroupsTiming) -> float:
    return timing.ms_per_step * (1 - timing.wide_ms / timing.now_ms)


def _place(evidence: Evidence, dearest: GroupsTiming) -> Site | None:
    """Of the layers with such weights, the dearest."""
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    alike = [one for one in layers if one.leaf and one.weight_shape == dearest.weight_shape]
    found = max(alike, key=lambda one: one.ms, default=None)
    return None if found is None else found.place
