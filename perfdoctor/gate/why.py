"""Why an arm is slower: two diagnoses side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Finding
from ..evidence.model import CallSite, Evidence, Missing
from .findings import FINDING
from .model import Judgement, Verdict, Why

LEAST_SHARE = 0.01
"""Of the step: smaller differences between the parts of two recordings say nothing."""
MOST_COUNTERS = 12


def explain(before: Diagnosis | None, after: Diagnosis, judgements: Sequence[Judgement]) -> Why:
    """Parts of the step that moved, counters that rose and where, findings that came and went.

    Against stored numbers `before` is None: there are no parts of a step, and no lines to compare with.
    """
    if before is None:
        rose = {j.name for j in judgements if j.verdict is Verdict.REGRESSION and j.gates}
        return Why((), _called_more(judgements), tuple(_said(f) for f in after.ranked if f"{FINDING}{f.id}" in rose))
    was, now = ({f.fingerprint: f for f in d.ranked} for d in (before, after))
    return Why(
        _parts(before.evidence, after.evidence),
        _counters(before.evidence, after.evidence, judgements),
        tuple(_said(f) for key, f in now.items() if key not in was),
        tuple(_said(f) for key, f in was.items() if key not in now),
    )


def _parts(before: Evidence, after: Evidence) -> tuple[tuple[str, float, float], ...]:
    if isinstance(before.step, Missing) or isinstance(after.step, Missing):
        return ()
    was, now = before.step.parts.as_dict(), after.step.parts.as_dict()
    least = LEAST_SHARE * before.step.step_ms
    moved = [(name, was[name], now[name]) for name in was if abs(now[name] - was[name]) >= least]
    return tuple(sorted(moved, key=lambda part: part[1] - part[2]))


def _counters(before: Evidence, after: Evidence, judgements: Sequence[Judgement]) -> tuple[str, ...]:
    texts = list(_called_more(judgements))
    lines = _new_lines(before, after)
    if lines:
        texts.append(f"scalar reads, conversions and copies at new places: {', '.join(lines[:5])}")
    more = len(texts) - MOST_COUNTERS
    return (*texts[:MOST_COUNTERS], *([f"and {more} more"] if more > 0 else []))


def _called_more(judgements: Sequence[Judgement]) -> tuple[str, ...]:
    rose = [j for j in judgements if j.name.startswith("op:") and j.verdict is Verdict.REGRESSION and j.change]
    return tuple(f"{j.name.removeprefix('op:')} {j.change:+g} per step" for j in rose)


def _new_lines(before: Evidence, after: Evidence) -> list[str]:
    """Lines of telling calls that the arm before does not have; a line is known by its file and function."""
    if isinstance(before.call_sites, Missing) or isinstance(after.call_sites, Missing):
        return []

    def key(call: CallSite) -> tuple[str, str, str, str]:
        return call.kind, call.site.file, call.site.function, call.detail

    def count(calls: Sequence[CallSite]) -> dict[tuple[str, str, str, str], float]:
        found: dict[tuple[str, str, str, str], float] = {}
        for call in calls:
            found[key(call)] = found.get(key(call), 0.0) + call.calls_per_step
        return found

    was, now = count(before.call_sites), count(after.call_sites)
    places = {(call.kind, call.site.file, call.site.line) for call in before.call_sites}
    found = [call for call in after.call_sites if now[key(call)] > was.get(key(call), 0.0)]
    # In a function that has more of them now, the lines that were there before are not the new ones; unless code
    # above them has moved them, when all are named.
    new = [call for call in found if (call.kind, call.site.file, call.site.line) not in places] or found
    return list(dict.fromkeys(f"{c.site.file}:{c.site.line} ({c.kind.replace('_', ' ')})" for c in new))


def _said(finding: Finding) -> str:
    place = f" at {finding.location.file}:{finding.location.line}" if finding.location else ""
    return f"{finding.id}{place}"
