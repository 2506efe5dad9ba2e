"""What the configuration says about a finding: leave it out, accept it with a reason, or give it another level.

No file and no clock is touched here: today's date and the look-up of comments are passed in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date

from ..config.settings import Config, is_selected
from ..config.suppressions import MalformedComment, Suppression, code_of, is_expired, match
from .diagnoses import IntegrityNote, SuppressedFinding
from .findings import Finding, Severity

CODE = "PD91"
LEFT_OUT = "left out by `select` and `ignore`"

CommentLookup = Callable[[Finding], Suppression | MalformedComment | None]
"""Usually `suppression.inline_suppression` with the job's working directory."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """The findings of one check after the configuration had its say."""

    kept: tuple[Finding, ...]
    """In the order of the check, with the level of `[rules.X]` where there is one."""
    suppressed: tuple[SuppressedFinding, ...] = ()
    used: tuple[Suppression, ...] = ()
    """Everything that silenced a finding, several for one finding included."""
    lapsed: tuple[Suppression, ...] = ()
    """Everything that would have before its last day was over."""
    malformed: tuple[MalformedComment, ...] = ()
    """Comments that stand at a kept finding and silence nothing."""


def sift(findings: Iterable[Finding], config: Config, today: date, comment: CommentLookup) -> Sifted:
    """Parts the findings of one check into kept and suppressed."""
    kept: list[Finding] = []
    suppressed: list[SuppressedFinding] = []
    used: dict[Suppression, None] = {}  # as sets that keep the order, for the same report every time
    lapsed: dict[Suppression, None] = {}
    malformed: dict[MalformedComment, None] = {}
    for finding in findings:
        matches = {s: match(s, finding, today) for s in config.suppressions}
        active = [s for s, how in matches.items() if how == "active"]
        said = comment(finding)
        if isinstance(said, Suppression):
            active.append(said)
        used |= dict.fromkeys(active)
        if active:
            suppressed.append(SuppressedFinding(finding, active[0].reason))
            continue
        if not is_selected(finding.id, config):
            suppressed.append(SuppressedFinding(finding, LEFT_OUT))
            continue
        kept.append(_with_level(finding, config))
        lapsed |= dict.fromkeys(s for s, how in matches.items() if how == "expired")
        if isinstance(said, MalformedComment):
            malformed[said] = None
    return Sifted(tuple(kept), tuple(suppressed), tuple(used), tuple(lapsed), tuple(malformed))


def suppression_notes(
    config: Config, sifted: Iterable[Sifted], judged: Collection[str], today: date
) -> tuple[IntegrityNote, ...]:
    """PD91 for what the configuration suppresses in vain and for comments without a reason.

    `sifted` are all checks of the run. `judged` are the codes of checks that ended in found or clear: only
    these can show that a suppression is not needed.
    """
    results = tuple(sifted)
    used = {s for result in results for s in result.used}
    lapsed = {s for result in results for s in result.lapsed}
    notes = [_note(suppression, used, lapsed, judged, today) for suppression in config.suppressions]
    for comment in dict.fromkeys(comment for result in results for comment in result.malformed):
        said = f"the comment at {comment.place} silences nothing: {comment.problem}"
        notes.append(IntegrityNote(CODE, "malformed-suppression", Severity.WARNING, said))
    return tuple(note for note in notes if note is not None)


def _note(
    suppression: Suppression,
    used: Collection[Suppression],
    lapsed: Collection[Suppression],
    judged: Collection[str],
    today: date,
) -> IntegrityNote | None:
    what = f"{suppression.origin} ({suppression.code}{f' in {suppression.where}' if suppression.where else ''})"
    if suppression in lapsed:
        text = f"{what} ended on {suppression.expires}, so its finding counts again; fix it or set a later date"
        return IntegrityNote(CODE, "expired-suppression", Severity.WARNING, text)
    if suppression in used or code_of(suppression.code) not in judged:
        return None
    if is_expired(suppression, today):
        text = f"{what} ended on {suppression.expires} and silences nothing in this run; remove it"
        return IntegrityNote(CODE, "expired-suppression", Severity.NOTE, text)
    text = f"{what} matches no finding of this run; remove it unless another job needs it"
    return IntegrityNote(CODE, "unused-suppression", Severity.NOTE, text)


def _with_level(finding: Finding, config: Config) -> Finding:
    level = config.rule(code_of(finding.id)).level
    if level is None or level == "off":
        return finding
    return dataclasses.replace(finding, severity=Severity(level))
