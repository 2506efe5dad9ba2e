"""An optimizer that updates one tensor after another, where it could do all in a few operators."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Severity,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Evidence, Job, Line, Missing, Step

from .._shared.wording import in_words_of
from .groups import needless_groups
from .limits import Limits
from .timed_update import SLOWER, WARM, made_at, saved_ms, update_timing

_FAULTED = 1.25
"""An update that was timed this much longer than in the job met pages that the job has at hand."""
_DOES = {"loop": "one after another", "foreach": "in groups"}


def updates(evidence: Evidence, step: Step, lines: tuple[Line, ...], limits: Limits) -> Finding | None:
    """What makes its groups as few as it needs, where that saves most; else another way to update the same groups."""
    return needless_groups(evidence, step, lines, limits) or _slow_update(evidence, step, lines, limits)


def _slow_update(evidence: Evidence, step: Step, lines: tuple[Line, ...], limits: Limits) -> Finding | None:
    """None where no way was timed that is faster, or what it would save is less than its share of the step.

    Never more than a note: it is torch's own choice, and nothing in the job is wrong.
    """
    timing = update_timing(evidence)
    if isinstance(timing, Missing) or timing.made not in _DOES:
        return None
    # The plainest first: where two ways are as fast, one line of the fix is enough.
    ways = {name: ms for name, ms in (("fused", timing.fused_ms), ("foreach", timing.foreach_ms)) if ms is not None}
    faster = {name: ms for name, ms in ways.items() if timing.now_ms >= SLOWER * ms}
    if not faster:
        return None
    best = min(faster, key=lambda name: faster[name])
    spent = step.parts.optimizer
    saved = saved_ms(spent, timing, faster[best])
    if saved / step.step_ms < limits.update_share:
        return None
    timed = ", ".join(f"{{{name}_ms}} with `{name}=True`" for name in ways)
    in_job = ", and in the job, with its memory at hand, the loop takes less"
    return Finding(
        id="PD17.slow-update",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message=f"{{optimizer}} updates {{tensors:tensor}} {_DOES[timing.made]}: {{update_ms}} per step "
        "({update_share})",
        reasoning=f"timed on tensors of the same shapes, an update takes {{now_ms}} so and {timed}"
        + ("; on the CPU torch's optimizers loop unless told otherwise" if timing.made == "loop" else "")
        + (in_job if timing.now_ms > _FAULTED * spent else ""),
        evidence=(
            milliseconds("update_ms", spent, "the optimizer's part per step"),
            share("update_share", spent / step.step_ms, "of the step"),
            Measurement("optimizer", timing.optimizer, "text", "optimizer"),
            Measurement("tensors", timing.tensors, "count", "tensors that it updates"),
            milliseconds("now_ms", timing.now_ms, "timed as the job does it"),
            *((share("part", timing.part, "of the elements timed"),) if timing.part < 1 else ()),
            *(milliseconds(f"{name}_ms", ms, f"timed with `{name}=True`") for name, ms in ways.items()),
        ),
        location=made_at(evidence, lines),
        fix=Fix(
            text="Have it update all tensors in one operator."
            if best == "fused"
            else "Have it update tensors in groups.",
            code=_code(evidence.job, timing.optimizer, best),
            risk="Sums are taken in another order, so the last digits of results differ.",
            remedies=(f"optimizer.{best}",),
        ),
        savings=savings(
            step,
            WARM * saved,
            saved,
            "the optimizer's part of the step, by how its update was timed both ways in the job's process",
            ceiling=spent,
        ),
    )


def _code(job: Job, optimizer: str, way: str) -> str:
    plain = f"optimizer = torch.optim.{optimizer}(model.parameters(), ..., {way}=True)"
    if way == "fused" and optimizer == "AdamW":
        return in_words_of(job, plain, transformers='TrainingArguments(..., optim="adamw_torch_fused")')
    return plain
