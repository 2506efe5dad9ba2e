"""Which remedies to try: those that findings name, the largest predicted saving first, safe ones before risky ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Finding
from ..diagnosis.measured import COMBINED, Range, Trial, Verdict
from ..evidence.model import Missing, Step
from ..injected._perfdoctor_probe.remedies import catalogue

RISKY = 2
"""From this risk on a remedy may break the job, and comes after all others: what was measured by then stays."""
COMPILED, UNCOMPILED = "compile.model", "compile.off"
_MODELS_SHARE = 0.5
"""Of the step: below, even a model that takes no time would not make it twice as fast."""
_LARGEST_FACTOR = 1000.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A remedy to try."""

    remedy: str
    findings: tuple[str, ...]
    """Fingerprints."""
    predicted: Range | None

    @property
    def launches(self) -> bool:
        """Whether it needs a launch of its own: it is a variable that is read when the process starts."""
        return any(entry.launches for entry in catalogue.entries(self.remedy))


def plan(
    diagnosis: Diagnosis, also: Sequence[str] = (), present: Callable[[Sequence[str]], str] = lambda _: ""
) -> tuple[Wanted, ...]:
    """The remedies of all findings, in the order in which to try them, and `also`, whatever the findings. Names that
    no remedy has are left out, and so are libraries of which `present` finds none."""
    step = diagnosis.evidence.step
    by_remedy: dict[str, list[Finding]] = {}
    for finding in diagnosis.ranked:
        for name in finding.fix.remedies:
            try:
                entries = catalogue.entries(name)
            except catalogue.UnknownRemedyError:
                continue
            if any(entry.gpu for entry in entries) and not diagnosis.evidence.on_cuda:
                continue
            if any(entry.preload and not present(entry.preload) for entry in entries):
                continue
            by_remedy.setdefault(name, []).append(finding)
    predicted = {name: _predicted(findings, step) for name, findings in by_remedy.items()}
    for finding in diagnosis.ranked:
        for other in finding.fix.alternatives:
            if other.remedy not in by_remedy:
                by_remedy[other.remedy] = [finding]
                whole_ms = 0.0 if isinstance(step, Missing) else finding.savings.of(step)
                predicted[other.remedy] = factors(other.low_ms, other.high_ms, whole_ms)
    for name in also:
        by_remedy.setdefault(name, [])
    wanted = [
        Wanted(name, tuple(finding.fingerprint for finding in findings), predicted.get(name))
        for name, findings in by_remedy.items()
    ]

    def order(one: Wanted) -> tuple[bool, bool, float]:
        risk = max(entry.risk for entry in catalogue.entries(one.remedy))
        return risk >= RISKY, one.launches, -(one.predicted.middle if one.predicted else 1.0)

    return tuple(sorted(wanted, key=order))


def opportunity(diagnosis: Diagnosis, wanted: Sequence[Wanted]) -> Wanted | None:
    """What no finding asks for and may help all the same, to be tried when all else is done: the model compiled,
    where most of the step is the model's; of one that is compiled, what that gives."""
    step = diagnosis.evidence.step
    name = UNCOMPILED if diagnosis.evidence.job.compiled else COMPILED
    if isinstance(step, Missing) or any(one.remedy == name for one in wanted):
        return None
    model_ms = step.parts.forward + step.parts.backward
    return Wanted(name, (), None) if model_ms >= _MODELS_SHARE * step.step_ms else None


def _predicted(findings: Sequence[Finding], step: Step | Missing) -> Range | None:
    """Of the finding from which the most is expected: one remedy does not earn twice what two findings share."""
    if not findings or isinstance(step, Missing):
        return None
    best = max(findings, key=lambda finding: finding.savings.low_ms + finding.savings.high_ms)
    return factors(best.savings.low_ms, best.savings.high_ms, best.savings.of(step))


def factors(low_ms: float, high_ms: float, step_ms: float) -> Range | None:
    """Speed-up of a step that is so much shorter."""
    if step_ms <= 0 or high_ms <= 0:
        return None
    return Range(*(step_ms / max(step_ms - saved, step_ms / _LARGEST_FACTOR) for saved in (low_ms, high_ms)))


def together(trials: Sequence[Trial]) -> str:
    """Everything that helped and can be kept, as one remedy, the largest gain first; "" for fewer than two.

    A ceiling (nobody can keep it), a larger batch (another way to train), launches, a compiled model (it would be
    compiled anew for what else is changed) and what pays by the epoch stay out; of those that change the same thing,
    the best stays.
    """
    helped = [trial for trial in trials if trial.verdict is Verdict.HELPED and trial.gain is not None]
    helped.sort(key=lambda trial: -(trial.gain.factor if trial.gain else 1.0))
    chosen: list[str] = []
    taken: set[str] = set()
    for trial in helped:
        entries = catalogue.entries(trial.remedy)
        slots = {entry.slot for entry in entries}
        if all(entry.combinable for entry in entries) and not trial.per_sample and not slots & taken:
            taken |= slots
            chosen.append(trial.remedy)
    return COMBINED.join(chosen) if len(chosen) > 1 else ""


def predicted_together(diagnosis: Diagnosis, chosen: str) -> Range | None:
    """What all ills together are predicted to save, if all of them have a remedy among the `chosen`, and no other
    finding has."""
    names = set(chosen.split(COMBINED))
    saved = diagnosis.combined
    if saved is None or any(_is_among(finding, names) is finding.is_opportunity for finding in diagnosis.ranked):
        return None
    return factors(saved.low_ms, saved.high_ms, saved.step_ms)


def _is_among(finding: Finding, names: set[str]) -> bool:
    return any(names.issuperset(remedy.split(COMBINED)) for remedy in finding.fix.remedies)
