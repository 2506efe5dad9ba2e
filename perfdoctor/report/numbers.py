"""A diagnosis as plain numbers by name, for those who compare many runs: TensorBoard and experiment trackers."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Finding
from ..evidence.model import Missing
from . import wording


def numbers(diagnosis: Diagnosis) -> dict[str, float]:
    """`steady_step_ms/forward`, `job_s/imports`, `speed_up_predicted/PD04.explicit-collect/low`: a name has letters,
    digits and `-_./` only, which every tracker takes."""
    return dict((*_anatomy(diagnosis), *_predicted(diagnosis), *_measured(diagnosis)))


def named(diagnosis: Diagnosis) -> tuple[tuple[str, Finding], ...]:
    """Findings in order; several of one id are numbered from the second on."""
    seen: dict[str, int] = {}
    names = []
    for finding in diagnosis.ranked:
        number = seen[finding.id] = seen.get(finding.id, 0) + 1
        names.append((finding.id if number == 1 else f"{finding.id}-{number}", finding))
    return tuple(names)


def _anatomy(diagnosis: Diagnosis) -> Iterator[tuple[str, float]]:
    step, job = diagnosis.evidence.step, diagnosis.evidence.anatomy
    if not isinstance(step, Missing):
        yield "steady_step_ms/total", step.step_ms
        yield from ((f"steady_step_ms/{name}", ms) for name, ms in step.parts.as_dict().items() if ms > 0)
    if not isinstance(job, Missing):
        yield "job_s/total", job.wall_ms / 1000
        yield from ((f"job_s/{name}", ms / 1000) for name, ms in job.parts.as_dict().items() if ms > 0)


def _predicted(diagnosis: Diagnosis) -> Iterator[tuple[str, float]]:
    step = diagnosis.evidence.step
    for name, finding in named(diagnosis):
        saved = finding.savings
        if isinstance(step, Missing) or saved.high_ms <= 0:
            continue
        low, high = wording.speed_ups(saved.low_ms, saved.high_ms, saved.of(step))
        yield f"speed_up_predicted/{name}/low", low
        yield f"speed_up_predicted/{name}/high", high


def _measured(diagnosis: Diagnosis) -> Iterator[tuple[str, float]]:
    trials = () if diagnosis.trials is None else (*diagnosis.trials.single, diagnosis.trials.together)
    for trial in trials:
        if trial is not None and trial.gain is not None:
            for name, value in (("", trial.gain.factor), ("/low", trial.gain.low), ("/high", trial.gain.high)):
                yield f"speed_up_measured/{_plain(trial.remedy)}{name}", value


def _plain(remedy: str) -> str:
    """`threads=1+gc.freeze` as `threads-1_gc.freeze`."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" if c == "=" else "_" for c in remedy)
