"""Growth because a batch takes longer and longer to make, in data-loader workers or in the training process."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location, milliseconds
from perfdoctor.api.quantities import GrowingContainer, SlowerBatches, Wrapped

from .growth import MOST, Case, line_measured
from .kept import NAMED, container_measured, lines_of
from .wrapped import layers_measured, wrapped_dataset

_INPUTS = 0.5
"""Of the relative growth of making a batch: where forward and backward pass grow by so much too, the inputs do."""


def slower_loader(case: Case) -> Finding | None:
    """The wait for batches grows, and making them explains it."""
    batches, parts, step = case.growth.batches, case.trend.parts, case.step
    if batches is None or parts.input_wait < MOST * parts.total or batches.wait_ms < MOST * parts.input_wait:
        return None
    computing = step.parts.forward + step.parts.backward
    grown = parts.forward + parts.backward
    if grown > _INPUTS * (batches.late_ms / batches.early_ms - 1) * max(computing - grown / 2, 0.0):
        return None
    container = _container(batches)
    wrapped = wrapped_dataset(case.growth.wrapped) if container is None else None
    lines = batches.lines if batches.num_workers else [one for one in case.growth.lines if one.part == "input_wait"]
    line = lines[0] if lines else None
    return Finding(
        id="PD15.slower-loader",
        severity=case.severity,
        confidence=Confidence.HIGH if line is not None or container is not None else Confidence.MEDIUM,
        message="steps went from {early_ms} to {late_ms}: making a batch took {batch_early_ms} at first and "
        "{batch_late_ms} in the end",
        reasoning="the wait for batches gained {wait_ms} per step, forward and backward pass {computing_ms}"
        + ("; {name} of the data set grows by {per_step:element} per batch" if container is not None else "")
        + ("; it is {layers:layer} of {name} around one another, and gains more" if wrapped is not None else "")
        + ("; {line} took {line_early_ms} of it at first and {line_late_ms} later" if line is not None else "")
        + case.rate,
        evidence=(
            *case.measured,
            Measurement("dataset", batches.dataset, "text", "class of the data set"),
            Measurement("workers", batches.num_workers, "count", "worker processes"),
            milliseconds("batch_early_ms", batches.early_ms, "making a batch at first"),
            milliseconds("batch_late_ms", batches.late_ms, "making a batch in the end"),
            milliseconds("wait_ms", parts.input_wait, "what the wait for batches gained"),
            milliseconds("computing_ms", grown, "what forward and backward pass gained"),
            *(container_measured(container) if container is not None else ()),
            *(layers_measured(wrapped) if wrapped is not None else ()),
            *(line_measured(line) if line is not None else ()),
        ),
        location=location(wrapped.site if wrapped is not None else line.site if line is not None else batches.site),
        fix=_fix(container, wrapped),
        savings=case.saved,
    )


def _fix(container: GrowingContainer | None, wrapped: Wrapped | None) -> Fix:
    if container is not None:
        return Fix(
            text="Let the data set keep nothing that grows with every item, or cap it; more workers only put it off.",
            code="@functools.lru_cache(maxsize=1000)\ndef load(path):\n    ...",
        )
    if wrapped is not None:
        return Fix(
            text="Keep the parts in a list, and make the data set of all of them: each item goes through one layer.",
            code=f"parts.append(more)\ndataset = {wrapped.name}(parts)  # not {wrapped.name}([dataset, more])",
        )
    return Fix(
        text="Make every item cost the same: keep an index instead of reading or searching from the start.",
        code="self.offsets = offsets_of(path)  # once, in __init__\nfile.seek(self.offsets[index])",
    )


def _container(batches: SlowerBatches) -> GrowingContainer | None:
    """What a data set keeps, named by the lines that take longer, or alone there."""
    for container in batches.containers:
        if sum(line.share for line in lines_of(container, batches.lines)) >= NAMED:
            return container
    return None
