"""An optimizer with more groups of parameters than sets of options: it updates group after group."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Line, Missing, Step

from .limits import Limits
from .timed_update import SLOWER, WARM, made_at, saved_ms, update_timing


def needless_groups(evidence: Evidence, step: Step, lines: tuple[Line, ...], limits: Limits) -> Finding | None:
    """None where each group has options of its own, or fewer groups would save too little, or no more than another
    way."""
    timing = update_timing(evidence)
    if isinstance(timing, Missing) or timing.now_together_ms is None:
        return None
    spent = step.parts.optimizer
    together = {
        name: ms
        for name, ms in (
            (timing.made, timing.now_together_ms),
            ("fused", timing.fused_together_ms),
            ("foreach", timing.foreach_together_ms),
        )
        if ms is not None
    }
    best = min(together, key=lambda name: together[name])
    apart = min(ms for ms in (timing.now_ms, timing.foreach_ms, timing.fused_ms) if ms is not None)
    cost = Cost(step, saved_ms(spent, timing, together[best]))
    if apart < SLOWER * together[best] or cost.share < limits.groups_share:
        return None
    way = "" if best == timing.made else f", {best}=True"
    return Finding(
        id="PD17.needless-groups",
        severity=Severity.NOTE if way else cost.severity(limits.groups_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="{optimizer} has {groups:group} of parameters for {options:set} of options: {cost_ms} per step "
        "({cost_share})",
        reasoning="timed on tensors of the same shapes, an update takes {now_ms} so, and {together_ms} with one group "
        "for each set of options" + (f" and `{best}=True`" * bool(way)) + "; {update_ms} in the job",
        evidence=(
            *cost.measured(),
            milliseconds("update_ms", spent, "the optimizer's part per step"),
            Measurement("optimizer", timing.optimizer, "text", "optimizer"),
            Measurement("groups", timing.groups, "count", "groups of parameters"),
            Measurement("options", timing.groups_needed, "count", "sets of options that differ"),
            milliseconds("now_ms", timing.now_ms, "timed as the job does it"),
            milliseconds("together_ms", together[best], "timed with as few groups as there are sets of options"),
        ),
        location=made_at(evidence, lines),
        fix=Fix(
            text="Give the optimizer one group for each set of options.",
            code="decayed = [p for p in model.parameters() if p.ndim > 1]\n"
            "others = [p for p in model.parameters() if p.ndim <= 1]\n"
            f"optimizer = torch.optim.{timing.optimizer}("
            f'[{{{{"params": decayed}}}}, {{{{"params": others, "weight_decay": 0.0}}}}]{way})',
            risk="None for the numbers, but for their last digits; a checkpoint of the optimizer has other groups.",
        ),
        savings=savings(
            step,
            WARM * cost.ms,
            cost.ms,
            "the optimizer's part of the step, by how its update was timed with both kinds of groups in the job's "
            "process",
            ceiling=spent,
        ),
    )
