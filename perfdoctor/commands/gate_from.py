"""`perfdoctor gate --from BEFORE AFTER`: a verdict on what is stored already, without running anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from ..config.settings import Config
from ..diagnosis.findings import Diagnosis
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..exits import Exit
from ..gate import baseline as stored
from ..gate import fingerprint
from ..gate.budgets import judge_budgets
from ..gate.compare import Tolerances
from ..gate.findings import in_all, new_findings
from ..gate.from_report import GATE, REPORT, read_report, schema_of
from ..gate.metrics import COUNTED, metrics
from ..gate.model import Assume, GateResult, Judgement, Side, Verdict, overall
from ..gate.why import explain, explain_alone
from ..recording.directory import RunDirectory
from ..trials.judge import judge


@dataclass(frozen=True, slots=True)
class StoredSide:
    """One side, from whatever kind of file or directory."""

    place: str
    content: stored.Baseline
    diagnosis: Diagnosis | None = None
    """Of a recording: it can say why, and what is found."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The job, as far as it is known: reports put what has no line of its own on its script."""
        return self.diagnosis.evidence.job.command if self.diagnosis else (self.content.job,)

    @property
    def counted(self) -> bool:
        """Whether its launches were counted: the window holds memory while it is open."""
        return any(name in self.content.metrics for name in COUNTED)


def read_side(path: Path, config: Config) -> StoredSide:
    """A recording, a baseline or a report as JSON. Raises PerfdoctorError for anything else."""
    if path.is_dir():
        return _recording(path, config)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PerfdoctorError(
            f"cannot read {path}: {why}",
            slug="from-unreadable",
            advice="name two recordings (directories in .perfdoctor/runs), baselines, or reports as JSON",
        ) from error
    schema = schema_of(text)
    if schema.startswith(REPORT):
        return StoredSide(str(path), read_report(text, str(path)))
    if schema.startswith(GATE):
        raise PerfdoctorError(
            f"{path} is the report of a gate, which compared two sides already",
            slug="from-gate",
            advice="name the recordings that it kept (`before` and `after`, `recording`), or one baseline each",
        )
    return StoredSide(str(path), stored.parse(text, str(path)))


def _recording(path: Path, config: Config) -> StoredSide:
    diagnosis = judge(RunDirectory(path), config)
    evidence = diagnosis.evidence
    if isinstance(evidence.step, Missing):
        raise PerfdoctorError(
            f"{path} has nothing to compare: {evidence.step}",
            slug="no-step",
            advice="name the recording of a run that made steps",
            exit_code=Exit.NOT_MEASURABLE,
        )
    content = stored.make(
        date.fromisoformat(evidence.job.started[:10]),
        path.name,
        fingerprint.configuration(evidence),
        fingerprint.machine(evidence),
        [metrics(evidence)],
        diagnosis.ranked,
    )
    return StoredSide(str(path), content, diagnosis)


def gate_from(
    before: StoredSide, after: StoredSide, config: Config, *, fail_on: str | None, allow_loss_change: bool
) -> GateResult:
    """Counters and memory in full, times by the rules of a stored baseline."""
    sides = Side(before.place), Side(after.place)
    differ = _losses_differ(before, after)
    if differ and not allow_loss_change:
        return GateResult(
            Verdict.NOT_COMPARABLE,
            f"not the same work: {differ} (if that is meant, or the job has no seed: --allow-loss-change)",
            *sides,
        )
    findings, notes = _findings(before, after, fail_on)
    now = stored.Now(
        after.content.written,
        sides[1],
        after.content.configuration,
        after.content.machine,
        stored.launches_of(after.content),
        (),
    )
    result = stored.judge(
        before.content, before.place, now, Tolerances(config.gate.counter_tolerance), config.gate.max_age_days
    )
    if result.verdict is Verdict.NOT_COMPARABLE:
        return result
    if differ:
        notes.append(f"the two sides compute something else: {differ} (allowed)")
    judgements = list(result.judgements)
    if before.counted != after.counted:
        judgements = [replace(j, gates=False) if j.assume is Assume.TIGHT else j for j in judgements]
        which = before.place if before.counted else after.place
        notes.append(f"only {which} was counted, which takes memory: memory is shown only (record both sides alike)")
    judgements += findings
    ranked = after.diagnosis.ranked if after.diagnosis else ()
    budgets = [budget for budget in config.budgets if after.diagnosis or not budget.is_check]
    judgements += judge_budgets(budgets, now.launches, ranked)
    verdict = overall(judgements)
    reason = stored.reason(verdict, judgements)
    if verdict in (Verdict.PASS, Verdict.IMPROVEMENT) and not _enough(judgements):
        verdict = Verdict.INCONCLUSIVE
        reason = "neither counters nor times could be compared, and memory alone says too little"
        notes.append("`perfdoctor baseline write` and the recordings of a gate have counters")
    why = None
    if verdict is Verdict.REGRESSION and after.diagnosis:
        both = before.diagnosis
        why = explain(both, after.diagnosis, judgements) if both else explain_alone(after.diagnosis, judgements)
    return replace(
        result, verdict=verdict, reason=reason, judgements=tuple(judgements), why=why, notes=(*result.notes, *notes)
    )


def _losses_differ(before: StoredSide, after: StoredSide) -> str:
    if before.diagnosis is None or after.diagnosis is None:
        return ""
    return fingerprint.losses_differ(before.diagnosis.evidence, after.diagnosis.evidence)


def _findings(before: StoredSide, after: StoredSide, fail_on: str | None) -> tuple[list[Judgement], list[str]]:
    """New ones fail when that was asked for; and what there is to say about them."""
    if fail_on is None:
        return [], []
    if after.diagnosis is None:
        return [], [f"{after.place} does not say how grave its findings are: none can fail (name a recording)"]
    return new_findings(before.content.known, in_all([after.diagnosis], fail_on)), []


def _enough(judgements: list[Judgement]) -> bool:
    """Whether something besides memory was judged."""
    return any(
        j.gates and j.verdict is not Verdict.NOT_JUDGED and (j.assume is Assume.TIMED or j.name in COUNTED)
        for j in judgements
    )
