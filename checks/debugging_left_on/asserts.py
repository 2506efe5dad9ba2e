"""Tensors that are read to be tested: `assert`, and searches for NaN and infinity."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, savings
from perfdoctor.api.quantities import Evidence, Missing, Step

from .._shared.asserting import asserting
from .._shared.lines import PYTHON_PARTS, key, places
from .limits import Limits

_READ_US = 3.0
"""Python and dispatch around one read on a CPU, measured: 2 to 4 us."""
_SAVED = (0.7, 1.0)
"""Of what the lines take: what they test is computed for the test alone, but for what a line does besides."""
_WAIT_LOST = 0.1
"""Of a read's duration on CUDA, at least: the device works meanwhile, and idles only afterwards."""


def tested_tensors(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """All such lines of the job together: what helps one helps the others. None where they cost little."""
    calls = () if isinstance(evidence.call_sites, Missing) else asserting(evidence.call_sites)
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    if not calls:
        return None
    sites = {key(call.site) for call in calls}
    here = tuple(line for line in lines if key(line.site) in sites and line.part in PYTHON_PARTS)
    reads_ms = sum(call.ms_per_step + _READ_US / 1000 * call.calls_per_step for call in calls)
    on_cuda = evidence.on_cuda
    spent = reads_ms if on_cuda else max(reads_ms, sum(line.ms_per_step for line in here))
    cost = Cost(step, min(evidence.felt_ms(spent), step.working_ms))
    if cost.share < limits.min_share:
        return None
    asserts = all(call.purpose == "assert" for call in calls)
    low, high = (_WAIT_LOST, 1.0) if on_cuda else _SAVED
    dearest = max(calls, key=lambda call: call.ms_per_step).site
    if here:
        dearest = max(here, key=lambda line: line.ms_per_step).site
    return Finding(
        id="PD16.tested-tensors",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM if on_cuda else Confidence.HIGH,
        message=("asserts on tensors" if asserts else "tests of tensors for NaN, infinity or an `assert`")
        + " are read {reads:time} per step: {cost_ms} ({cost_share})",
        reasoning="each test computes on a whole tensor, and Python reads the answer before the step goes on"
        + ("; on the GPU it waits for all that the device was asked to do" if on_cuda else ""),
        evidence=(
            *cost.measured(),
            Measurement("reads", round(sum(call.calls_per_step for call in calls), 1), "count", "answers per step"),
            *((Measurement("lines", places(here), "text", "its lines"),) if here else ()),
        ),
        location=location(dearest),
        fix=Fix(
            text="Take the tests out of the loop once the error is found; or test the loss alone, every 50 steps.",
            code="if step % 50 == 0:\n    assert torch.isfinite(loss)  # python -O leaves every assert out",
            risk="A NaN is noticed up to 50 steps later.",
        ),
        savings=savings(
            step,
            low * cost.ms,
            high * cost.ms,
            "the lines' share of their part of the step, by the operators that they issue and the pauses between them"
            if not on_cuda
            else "the time that the host waited, of which 10 to 100 % is lost to the device",
            ceiling=cost.ms,
            part=Part.OTHER,
        ),
    )
