"""Images with their channels first in memory on a CPU where last is faster: the job's operators, timed both ways."""

from __future__ import annotations

from perfdoctor.api import (
    Confidence,
    Evidence,
    Finding,
    Fix,
    LibraryUse,
    Measurement,
    Missing,
    Part,
    Severity,
    Step,
    in_step,
    location,
    milliseconds,
    savings,
    share,
)

_KEPT = (0.7, 1.15)
"""Of the saving that was timed. Five convolutional programs that it promised 1.05x to 1.5x ran 1.00x [0.95, 1.04],
1.14x, 1.23x, 1.35x and 1.45x as fast."""


_LEAST = 0.15
"""Of the step, saved at least, from which on it is told: below, torch's own choice of layout is as good a one."""


def _gains(evidence: Evidence, step: Step, use: LibraryUse) -> list[float]:
    """Milliseconds of a step that each priced operator would save; none where oneDNN did not do the work."""
    ops = evidence.ops
    if isinstance(ops, Missing) or any(one.native for one in use.convolutions):
        return []
    prices = use.layout_prices
    return [in_step(step, ops, price.ms_per_step * (1 - price.last_ms / price.first_ms)) for price in prices]


def measurements(evidence: Evidence, step: Step, use: LibraryUse) -> tuple[Measurement, ...]:
    """What channels last would save, where that was timed."""
    gains = _gains(evidence, step, use)
    saved = max(0.0, sum(gains)) / step.step_ms if step.step_ms > 0 else 0.0
    return (share("channels_last_saves", saved, "of the step, saved by channels last"),) if gains else ()


def findings(evidence: Evidence, step: Step, use: LibraryUse) -> list[Finding]:
    """Never more than a note: it is torch's own choice, and nothing in the job is wrong."""
    ops, prices, gains = evidence.ops, use.layout_prices, _gains(evidence, step, use)
    low, high = (bound * sum(gains) for bound in _KEPT)
    if isinstance(ops, Missing) or not gains or low / step.step_ms < _LEAST:
        return []
    spent = in_step(step, ops, sum(price.ms_per_step for price in prices))
    dearest = max(zip(gains, prices, strict=True), key=lambda one: one[0])[1]
    layers = () if isinstance(evidence.layers, Missing) else evidence.layers.layers
    root = min((layer for layer in layers if layer.called_at), key=lambda layer: layer.order, default=None)
    return [
        Finding(
            id="PD02.channels-first",
            severity=Severity.NOTE,
            confidence=Confidence.MEDIUM,
            message="images have their channels first in memory; with channels last the same operators take "
            "{saved_ms} a step less, {saved_share} of it",
            reasoning="convolutions, normalisations and pooling of this job take {spent_ms} a step and were timed both "
            "ways; {dearest} takes {first_ms} a call with the channels first and {last_ms} with them last",
            evidence=(
                milliseconds("saved_ms", sum(gains), "what channels last would save per step"),
                share("saved_share", sum(gains) / step.step_ms, "of the step"),
                milliseconds("spent_ms", spent, "operators on images that were timed both ways, per step"),
                Measurement("dearest", f"`{dearest.name}`", "text", "the operator that would gain most"),
                milliseconds("first_ms", dearest.first_ms, "its call with the channels first"),
                milliseconds("last_ms", dearest.last_ms, "its call with the channels last"),
            ),
            location=location(root.called_at) if root is not None else None,
            fix=Fix(
                text="Keep model and images in the channels-last format.",
                code="model = model.to(memory_format=torch.channels_last)\n"
                "images = images.to(memory_format=torch.channels_last)  # each batch, or once",
                risk="Sums are taken in another order, so the last digits of results differ. `view` on such tensors "
                "can fail, `reshape` does not.",
                remedies=("layout.channels-last",),
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                method="the job's own operators timed in its process with the channels first and last",
            ),
        )
    ]
