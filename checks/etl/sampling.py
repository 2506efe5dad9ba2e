"""A sampler that takes longer to say which samples come next than the loader takes to make a batch of them."""

from __future__ import annotations

from dataclasses import replace

from perfdoctor.api.findings import Finding, Fix, Measurement, share
from perfdoctor.api.quantities import CodeLine, Fetch, Missing

from .waiting import Case, fetch_measurements

_SAVED = (0.8, 1.0)
"""Of the time of the sampler's lines: an epoch's indices drawn in one call cost next to nothing, but some samplers must
see the last batch before they choose the next."""
_MOST = 0.5
"""Of the time in which the loop waits: below, something else is to blame as well."""


def slow_sampler(case: Case, fetch: Fetch) -> Finding | None:
    """Where a function of the user's other than the data set's and `collate_fn` takes most of the wait."""
    lines = _lines(case)
    spent_ms = sum(line.ms_per_step for line in lines)
    # Without workers the lines that make the batch are among them: they take no longer than making it does.
    drawing_ms = min(case.wait, spent_ms - case.split.making_ms)
    if not lines or drawing_ms < _MOST * case.wait:
        return None
    low, high = (fraction * drawing_ms for fraction in _SAVED)
    return case.finding(
        "slow-sampler",
        "the sampler is slow",
        "the data set and `collate_fn` take {make_ms} per batch; {drawing_share} of the wait is spent in lines of the "
        "job's own that are neither, {hottest} above all, and the sampler always runs in the training process",
        Fix(
            text="Draw all indices of an epoch at once, as an array, and hand them out one by one.",
            code="def __iter__(self):\n"
            "    drawn = torch.multinomial(self.weights, len(self), replacement=True)\n"
            "    return iter(drawn.tolist())",
            risk="The order is another one for the same seed.",
        ),
        "the time of the job's own lines in the wait, beyond making the batch",
        low=low,
        high=high,
        ceiling=drawing_ms,
        extra=(
            *fetch_measurements(fetch),
            share("drawing_share", drawing_ms / case.wait, "of the wait, in the sampler"),
            Measurement("hottest", str(lines[0].site), "text", "its hottest line"),
        ),
        at=lines[0].site,
    )


def _lines(case: Case) -> list[CodeLine]:
    """Of functions that the wait for a batch of this loader enters in the training process, the dearest first."""
    lines, ids = case.evidence.code_lines, case.loader.ids
    if isinstance(lines, Missing):
        return []
    waited = (line for line in lines if line.called and line.part == "input_wait")
    if not case.name:
        return list(waited)
    own = (replace(line, ms_per_step=line.ms_per_step * line.fraction(ids)) for line in waited)
    return sorted((line for line in own if line.ms_per_step > 0), key=lambda line: -line.ms_per_step)
