"""`perfdoctor diff`: two recordings side by side, without a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..evidence.model import Missing
from ..exits import Exit
from ..gate import fingerprint
from ..gate.compare import compare
from ..gate.metrics import metrics
from ..gate.model import Arm, Assume, GateResult, Judgement, Verdict
from ..gate.why import explain
from ..trials.judge import judge_recorded
from . import outputs
from .check import Settings
from .gate import write


def run(before: Path, after: Path, settings: Settings, words: Sequence[str], verbose: bool) -> Exit:
    """Metrics and findings of both. One launch each: nothing here says what is chance."""
    config = settings.resolve()
    where = outputs.parse(words, outputs.OF_COMPARISONS)
    was, now = (judge_recorded([path], config) for path in (before, after))
    judgements = [
        replace(j, verdict=Verdict.NOT_JUDGED, change=_relative(j), gates=False, reason="")
        for j in compare([metrics(was.evidence)], [metrics(now.evidence)])
    ]
    notes = [
        f"not the same: {difference}"
        for facts in (fingerprint.configuration, fingerprint.machine)
        for difference in fingerprint.differences(facts(was.evidence), facts(now.evidence))
    ]
    result = GateResult(
        Verdict.NOT_JUDGED,
        "one launch of each arm does not say what is chance; `perfdoctor gate` decides",
        Arm(before.name, str(before)),
        Arm(after.name, str(after)),
        tuple(judgements),
        explain(was, now, judgements),
        tuple(notes),
    )
    write(result, config, where, now.evidence.job.command, verbose=verbose)
    return Exit.OK


def _relative(judgement: Judgement) -> float | None:
    """Times in per cent, everything else as it is."""
    before, after = judgement.before, judgement.after
    if isinstance(before, Missing) or isinstance(after, Missing):
        return None
    if judgement.assume is Assume.TIMED:
        return after / before - 1 if before else None
    return after - before
