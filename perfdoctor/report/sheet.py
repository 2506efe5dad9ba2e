"""What the formats for other programs share: a verdict, one case for each thing looked at, one notice for each to fix.

A diagnosis and a gate are both put into this form, so that each format is written once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath

from ..diagnosis.diagnoses import CheckResult, Diagnosis
from ..diagnosis.findings import Finding, Location
from ..diagnosis.outcomes import OutcomeKind
from . import wording
from .verdict import verdict


class Status(str, Enum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """Could not be decided, or perfdoctor failed."""
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of notice."""

    id: str
    title: str
    help: str


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was looked at."""

    id: str
    title: str
    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to fix, or to know."""

    rule: str
    level: str
    """`error`, `warning` or `note`."""
    message: str
    """One sentence."""
    advice: str
    location: Location
    """The script itself where no line is known: platforms show nothing without a place."""
    fingerprint: str
    suppressed: str = ""
    """Why it is accepted; "" when it is not."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A report for other programs."""

    kind: str
    """`check` or `gate`."""
    verdict: str
    rules: tuple[Rule, ...]
    cases: tuple[Case, ...]
    notices: tuple[Notice, ...]
    """The costliest first; suppressed ones last."""
    seconds: float = 0.0

    @property
    def open(self) -> tuple[Notice, ...]:
        """Notices that nobody has accepted."""
        return tuple(notice for notice in self.notices if not notice.suppressed)


def diagnosis_sheet(diagnosis: Diagnosis) -> Sheet:
    """The checks as cases, their findings as notices."""
    script = Location(script_of(diagnosis.evidence.job.command), 1)
    notices = [_notice(finding, script) for finding in diagnosis.ranked]
    for result in diagnosis.checks:
        notices += [_notice(s.finding, script, s.reason) for s in result.suppressed]
    titles = {result.code: result for result in diagnosis.checks}
    rules = {
        notice.rule: Rule(
            notice.rule,
            titles[code].title if (code := notice.rule.partition(".")[0]) in titles else notice.rule,
            f"`perfdoctor explain {code}` says what this looks at, why it costs time and how to fix it.",
        )
        for notice in notices
    }
    return Sheet(
        "check",
        verdict(diagnosis),
        tuple(rules.values()),
        tuple(_case(result) for result in diagnosis.checks),
        tuple(notices),
    )


def script_of(command: Iterable[str]) -> str:
    """The file that a command runs, as the user would find it: the last word that ends in `.py`, else the first."""
    words = list(command)
    scripts = [word for word in words if word.endswith(".py")]
    named = scripts[0] if scripts else (words[0] if words else "job")
    return PurePath(named).name if PurePath(named).is_absolute() else named


def _notice(finding: Finding, script: Location, suppressed: str = "") -> Notice:
    worded = wording.filled(finding)
    return Notice(
        finding.id,
        finding.severity.value,
        wording.sentence(worded.message),
        wording.sentence(worded.fix.text),
        _reachable(finding.location) or script,
        finding.fingerprint,
        suppressed,
    )


def _reachable(location: Location | None) -> Location | None:
    """A place inside the repository: platforms drop annotations of other files."""
    return location if location is not None and not PurePath(location.file).is_absolute() else None


_STATUS = {
    OutcomeKind.FOUND: Status.FAILED,
    OutcomeKind.CLEAR: Status.PASSED,
    OutcomeKind.NOT_APPLICABLE: Status.SKIPPED,
    OutcomeKind.CANNOT_TELL: Status.SKIPPED,
    OutcomeKind.CRASHED: Status.ERROR,
}


def _case(result: CheckResult) -> Case:
    outcome = result.outcome
    status = _STATUS[outcome.kind]
    if status is Status.FAILED:
        text = " ".join(wording.sentence(wording.filled(finding).message) for finding in outcome.findings)
        if all(finding.severity.rank == 0 for finding in outcome.findings):
            status = Status.PASSED  # a note is for information
    else:
        text = wording.sentence(wording.fill_reason(outcome.reason, outcome.measurements))
    return Case(f"{result.code}.{result.name}", result.title, status, wording.clean(text))
