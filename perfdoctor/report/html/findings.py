"""Findings as a page shows them: the lines of code around the place, and what the fix gives on the page's one axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...diagnosis.diagnoses import Diagnosis
from ...evidence.model import Missing
from .. import wording
from ..content import Content, FindingText
from ..source import SourceLine, excerpt
from ..trials import trial_sentence
from ..verdict import combined
from .axis import Axis, Interval, Mark, axis

AROUND = 3
"""Lines of code shown before and after the one that a finding points at."""


@dataclass(frozen=True, slots=True)
class Card:
    """One finding."""

    text: FindingText
    excerpt: tuple[SourceLine, ...]
    """Empty where the file cannot be had."""
    marks: tuple[Mark, ...]
    """Predicted, then measured; empty where the fix saves no time that was predicted."""


@dataclass(frozen=True, slots=True)
class CardSection:
    """Findings of one kind."""

    heading: str
    cards: tuple[Card, ...]
    together: tuple[Mark, ...]
    """What all fixes of ills give at once; empty with fewer than two."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All of them."""

    axis: Axis
    sections: tuple[CardSection, ...]
    trials: dict[str, Mark]
    """By the remedy that was measured."""


def findings(diagnosis: Diagnosis, content: Content) -> Findings:
    """The sections of the report with what they need beside their words."""
    of_finding = {
        text.number: _of_finding(text, diagnosis) for section in content.sections for text in section.findings
    }
    together = _together(diagnosis)
    of_trial = dict(_of_trials(diagnosis))
    common = axis([*together, *of_trial.values(), *(one for some in of_finding.values() for one in some)])

    def marks(intervals: Iterable[Interval]) -> tuple[Mark, ...]:
        return tuple(common.mark(interval) for interval in intervals)

    return Findings(
        common,
        tuple(
            CardSection(
                section.heading,
                tuple(
                    Card(
                        text,
                        excerpt(text.finding.location, diagnosis.evidence.job, AROUND),
                        marks(of_finding[text.number]),
                    )
                    for text in section.findings
                ),
                () if section.findings[0].finding.is_opportunity else marks(together),
            )
            for section in content.sections
        ),
        {remedy: common.mark(interval) for remedy, interval in of_trial.items()},
    )


def _of_finding(text: FindingText, diagnosis: Diagnosis) -> list[Interval]:
    step, savings = diagnosis.evidence.step, text.finding.savings
    found = []
    if not isinstance(step, Missing) and savings.high_ms > 0:
        found.append(_predicted(savings.low_ms, savings.high_ms, savings.of(step)))
    trials = () if diagnosis.trials is None else diagnosis.trials.of(text.finding.fingerprint)
    return found + [
        Interval("measured", trial.gain.low, trial.gain.high, trial_sentence(trial), trial.gain.factor)
        for trial in trials
        if trial.gain is not None
    ]


def _predicted(low_ms: float, high_ms: float, step_ms: float) -> Interval:
    low, high = wording.speed_ups(low_ms, high_ms, step_ms)
    return Interval("predicted", low, high, wording.speed_up(low_ms, high_ms, step_ms))


def _together(diagnosis: Diagnosis) -> list[Interval]:
    all_of_them, text = diagnosis.combined, combined(diagnosis)
    if all_of_them is None or not text or len(diagnosis.ills) < 2:
        return []
    return [_predicted(all_of_them.low_ms, all_of_them.high_ms, all_of_them.step_ms)]


def _of_trials(diagnosis: Diagnosis) -> Iterable[tuple[str, Interval]]:
    if diagnosis.trials is None:
        return
    for trial in diagnosis.trials.single:
        if trial.gain is not None:
            text = wording.interval(trial.gain.factor, trial.gain.low, trial.gain.high)
            yield trial.remedy, Interval("measured", trial.gain.low, trial.gain.high, text, trial.gain.factor)
