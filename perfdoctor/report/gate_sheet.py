"""A gate's judgements as cases and notices, for the formats of other programs."""

from __future__ import annotations

import hashlib

from ..diagnosis.findings import Location
from ..gate.model import GateResult, Judgement, Verdict
from . import wording
from .gate_words import SHOWN, headline, judged
from .sheet import Case, Notice, Rule, Sheet, Status

_HELP = "docs/gate.md says how each metric is compared."


def gate_sheet(result: GateResult, script: str) -> Sheet:
    """`script` is the file that the job runs: a slower step has no line of its own."""
    shown = [j for j in result.judgements if not (j.name.startswith("op:") and j.verdict is Verdict.PASS)]
    cases = [
        Case("verdict", "the whole gate", SHOWN[result.verdict].status, _whole(result)),
        *(Case(j.name, j.label, _status(j), judged(j)) for j in shown),
    ]
    notices = [
        _notice(j.name, level if j.gates else "note", judged(j), script)
        for j in shown
        if (level := SHOWN[j.verdict].level)
    ]
    if SHOWN[result.verdict].status is Status.ERROR and not notices:
        notices = [_notice("verdict", SHOWN[result.verdict].level, _whole(result), script)]
    order = ("error", "warning", "note")
    notices.sort(key=lambda notice: order.index(notice.level))
    rules = {
        notice.rule: Rule(notice.rule, f"{notice.rule.partition('.')[2]} against before", _HELP) for notice in notices
    }
    return Sheet("gate", headline(result), tuple(rules.values()), tuple(cases), tuple(notices), result.seconds)


def _whole(result: GateResult) -> str:
    """The verdict; where nothing was judged, also what is known of why."""
    notes = () if result.judgements else result.notes
    return " ".join([wording.sentence(headline(result)), *(wording.sentence(wording.clean(note)) for note in notes)])


def _status(judgement: Judgement) -> Status:
    status = SHOWN[judgement.verdict].status
    # What cannot fail the gate fails no test case either.
    return status if judgement.gates or status is Status.PASSED else Status.SKIPPED


def _notice(name: str, level: str, message: str, script: str) -> Notice:
    rule = f"gate.{name}"
    fingerprint = hashlib.sha256(f"{rule}\0{script}".encode()).hexdigest()[:32]
    return Notice(rule, level, message, "", Location(script, 1), fingerprint)
