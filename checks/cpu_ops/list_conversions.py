"""Tensors made of Python lists: every number becomes an object and is read back one by one."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, milliseconds
from perfdoctor.api.quantities import CallSite, Step

from .._shared.lines import function
from .limits import Limits

_SAVED = (0.8, 1.0)
"""Of the measured conversions: NumPy reads a list of a million numbers in 20 ms, torch in 144; tensors spare all."""


def list_conversions(step: Step, calls: tuple[CallSite, ...], limits: Limits) -> list[Finding]:
    """One for each function outside the making of batches, the dearest first."""
    by_function: dict[tuple[str, str], list[CallSite]] = {}
    for call in calls:
        if call.kind in ("from_list", "to_list") and call.detail != "input_wait":
            by_function.setdefault(function(call.site), []).append(call)
    found = [_finding(step, here, limits) for here in by_function.values()]
    return sorted((one for one in found if one is not None), key=lambda one: -one.savings.ceiling_ms)


def _finding(step: Step, here: list[CallSite], limits: Limits) -> Finding | None:
    cost = Cost(step, sum(call.ms_per_step for call in here))
    if cost.share < limits.copy_share:
        return None
    worst = max(here, key=lambda call: call.ms_per_step)
    made = [call for call in here if call.kind == "from_list"]
    return Finding(
        id="PD10.list-conversion",
        severity=cost.severity(limits.copy_share, limits.error_share)
        if cost.share >= limits.list_share
        else Severity.NOTE,
        confidence=Confidence.HIGH,
        message="numbers go through Python lists: {cost_ms} per step ({cost_share})",
        reasoning="{made:tensor per step is|tensors per step are} made of lists, in {made_ms}; torch reads each number "
        "from an object of its own"
        if made
        else "`tolist()` makes an object of each number",
        evidence=(
            *cost.measured("converting per step"),
            Measurement("made", sum(call.calls_per_step for call in made), "count", "tensors made of lists per step"),
            milliseconds("made_ms", sum(call.ms_per_step for call in made), "for that"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="Keep the numbers in tensors: index, stack or pad those. Let NumPy read what comes as lists.",
            code="batch = torch.stack(rows)                                  # rows are tensors\n"
            "batch = torch.from_numpy(np.asarray(rows, dtype=np.float32))  # rows are lists",
        ),
        savings=cost.savings(_SAVED, "the measured conversions: 80 % by NumPy, all by tensors"),
    )
