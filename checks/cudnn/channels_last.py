"""What channels last would save a CPU: the job's operators on images, timed both ways.

A number beside what is clear, and no finding: the other layout is torch's own choice, nothing in the job is wrong, and
where a convolution's tensors lie in memory can make it a third slower by itself.
"""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Measurement, share
from perfdoctor.api.quantities import Evidence, LibraryUse, Missing, Step

_WORTH_A_WORD = 0.05
"""Of the step."""


def measurements(evidence: Evidence, step: Step, use: LibraryUse) -> tuple[Measurement, ...]:
    """Empty where nothing was timed, or oneDNN did not do the work."""
    ops, timings = evidence.ops, use.layout_timings
    if isinstance(ops, Missing) or not timings or any(one.native for one in use.convolutions) or step.step_ms <= 0:
        return ()
    saved = sum(in_step(step, ops, timing.ms_per_step * (1 - timing.last_ms / timing.first_ms)) for timing in timings)
    return (share("channels_last_saves", max(0.0, saved) / step.step_ms, "of the step, saved by channels last"),)


def words(found: tuple[Measurement, ...]) -> str:
    """For the line that says what did the work; "" where it would save little."""
    worth = [one for one in found if one.name == "channels_last_saves" and float(one.value) >= _WORTH_A_WORD]
    return "; tensors with their channels last would save about {channels_last_saves}" if worth else ""
