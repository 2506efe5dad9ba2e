"""Growth because a file is written whole each time, with all that was in it before."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import Checkpoints, Step

from .growth import Limits


def growing_file(saves: Checkpoints, step: Step, limits: Limits) -> Finding | None:
    """By what is written, since steps that save are mostly no steady ones, whose length has a trend."""
    cost = Cost(step, saves.ms_per_step)
    if not saves.grows or saves.saves < 2 or cost.share < limits.min_share:
        return None
    part, room = (Part.OTHER, step.parts.checkpoint) if saves.is_steady else (Part.EPOCH, step.irregular_ms)
    most = min(saves.most_ms_per_step, room)
    mean_bytes = (saves.early_bytes + saves.late_bytes) / 2
    return Finding(
        id="PD15.growing-file",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="one save wrote {early_bytes} at first and {late_bytes} in the end: what was kept is written whole "
        "each time",
        reasoning="saving takes {cost_ms} per step ({cost_share}), {save_ms} for one save every {every:step}, and more "
        "with each",
        evidence=(
            *cost.measured("saving per step", "of the steady step"),
            Measurement("early_bytes", saves.early_bytes, "bytes", "written by one call at first"),
            Measurement("late_bytes", saves.late_bytes, "bytes", "written by one call in the end"),
            Measurement("saves", saves.saves, "count", "steps that saved"),
            Measurement("every", round(saves.every, 1), "count", "steps from one save to the next"),
            milliseconds("save_ms", saves.save_ms, "saving, in a step that does"),
        ),
        location=location(saves.site),
        fix=Fix(
            text="Append what is new to a file, one line or record for each save; keep what grows out of checkpoints.",
            code='with open("history.jsonl", "a") as file:\n    file.write(json.dumps(newest) + "\\n")',
            risk="What reads the file must read all of its lines.",
        ),
        savings=savings(
            step,
            min(most, cost.ms * (1 - saves.early_bytes / mean_bytes)),
            most,
            "the measured saves, at least by as much as they are larger than the first; the saves to come take longer",
            ceiling=most,
            part=part,
            first=True,
        ),
    )
