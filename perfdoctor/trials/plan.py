"""Which remedies to try: those that findings name, the largest predicted saving first, safe ones before risky ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..diagnosis.findings import Diagnosis, Finding
from ..diagnosis.measured import COMBINED, Range, Trial, Verdict
from ..evidence.model import Missing
from ..injected._perfdoctor_probe.remedies import catalogue

RISKY = 2
"""From this risk on a remedy may break the job, and comes after all others: what was measured by then stays."""
_LARGEST_FACTOR = 1000.0
_ONE_OF = ("etl.", "batch.")
"""Families that exchange the running iterator: only one of them at a time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A remedy to try."""

    remedy: str
    findings: tuple[str, ...]
    """Fingerprints."""
    predicted: Range | None

    @property
    def possible(self) -> bool:
        """Whether there is any way to try it."""
        entry, _ = catalogue.parse(self.remedy)
        return bool(entry.home) or self.launches

    @property
    def launches(self) -> bool:
        """Whether it needs a launch of its own: it is a variable that is read when the process starts."""
        return catalogue.parse(self.remedy)[0].environment is not None


def plan(diagnosis: Diagnosis, also: Sequence[str] = ()) -> tuple[Wanted, ...]:
    """The remedies of all findings, in the order in which to try them, and `also`, whatever the findings. Names that
    no remedy has are left out."""
    step = diagnosis.evidence.step
    step_ms = 0.0 if isinstance(step, Missing) else step.step_ms
    by_remedy: dict[str, list[Finding]] = {}
    for finding in diagnosis.ranked:
        for name in finding.fix.remedies:
            try:
                entry, _ = catalogue.parse(name)
            except catalogue.UnknownRemedyError:
                continue
            if entry.gpu and not diagnosis.evidence.on_cuda:
                continue
            by_remedy.setdefault(name, []).append(finding)
    for name in also:
        by_remedy.setdefault(name, [])
    wanted = [
        Wanted(name, tuple(finding.fingerprint for finding in findings), _predicted(findings, step_ms))
        for name, findings in by_remedy.items()
    ]

    def order(one: Wanted) -> tuple[bool, bool, float]:
        entry, _ = catalogue.parse(one.remedy)
        return entry.risk >= RISKY, one.launches, -(one.predicted.middle if one.predicted else 1.0)

    return tuple(sorted(wanted, key=order))


def _predicted(findings: Sequence[Finding], step_ms: float) -> Range | None:
    """Of the finding from which the most is expected: one remedy does not earn twice what two findings share."""
    if not findings:
        return None
    best = max(findings, key=lambda finding: finding.savings.low_ms + finding.savings.high_ms)
    return factors(best.savings.low_ms, best.savings.high_ms, step_ms)


def factors(low_ms: float, high_ms: float, step_ms: float) -> Range | None:
    """How many times as fast a step becomes that is so much shorter."""
    if step_ms <= 0 or high_ms <= 0:
        return None
    return Range(*(step_ms / max(step_ms - saved, step_ms / _LARGEST_FACTOR) for saved in (low_ms, high_ms)))


def together(trials: Sequence[Trial]) -> str:
    """Everything that helped and can be kept, as one remedy, the largest gain first; "" for fewer than two.

    A ceiling (nobody can keep it), a larger batch (another way to train) and launches stay out; of those that draw
    batches from elsewhere, and of those that set the same thing to different values, the best stays.
    """
    helped = [trial for trial in trials if trial.verdict is Verdict.HELPED and trial.gain is not None]
    helped.sort(key=lambda trial: -(trial.gain.factor if trial.gain else 1.0))
    chosen: list[str] = []
    taken: set[str] = set()
    for trial in helped:
        entry, _ = catalogue.parse(trial.remedy)
        if not entry.keep or entry.environment is not None or trial.per_sample:
            continue
        slot = next((family for family in _ONE_OF if trial.remedy.startswith(family)), entry.name)
        if slot not in taken:
            taken.add(slot)
            chosen.append(trial.remedy)
    return COMBINED.join(chosen) if len(chosen) > 1 else ""


def predicted_together(diagnosis: Diagnosis, chosen: str) -> Range | None:
    """What all findings together are predicted to save, if all of them have a remedy among the `chosen`."""
    names = set(chosen.split(COMBINED))
    saved = diagnosis.combined
    if saved is None or not all(names.intersection(finding.fix.remedies) for finding in diagnosis.ranked):
        return None
    return factors(saved.low_ms, saved.high_ms, saved.step_ms)
