"""The report in TensorBoard: the step's parts over the steps, rank by rank, and what was found about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnosis.findings import Diagnosis
from ..evidence.model import Missing
from ..evidence.series import StepSeries
from . import wording
from .content import Content, FindingText, SliceText, prepare
from .markdown import cell, prose, render_finding

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

MOST_POINTS = 1_000
"""Of a curve: TensorBoard shows so many by default and leaves others out by chance, whereas means of neighbouring steps
keep the sum."""
BAR = 40
"""Characters of the longest bar, in a table that is as wide as half a screen."""
_SUFFIX = ".perfdoctor"
"""By which files of ours are told from those of the job."""


def write_tensorboard(folder: Path, diagnosis: Diagnosis, ranks: Sequence[StepSeries]) -> None:
    """One TensorBoard run in `folder`, and one in a folder of it for each of several ranks, so that their curves lie
    upon each other. What was written there before is replaced; files of others stay.

    Raises OSError.
    """
    content = prepare(diagnosis)
    with _writer(folder) as writer:
        for tag, text in _texts(content):
            writer.add_text(tag, text, 0)
        for tag, value in (*_anatomy(diagnosis), *_speed_ups(diagnosis, content)):
            writer.add_scalar(tag, value, 0)
        if len(ranks) == 1:
            _add_steps(writer, ranks[0], _started(diagnosis))
    if len(ranks) > 1:
        for name, one in zip(_names(ranks), ranks, strict=True):
            with _writer(folder / name) as writer:
                _add_steps(writer, one, _started(diagnosis))


def _writer(folder: Path) -> SummaryWriter:
    from torch.utils.tensorboard import SummaryWriter

    for old in folder.glob(f"events.out.tfevents.*{_SUFFIX}"):
        old.unlink()
    return SummaryWriter(str(folder), filename_suffix=_SUFFIX)


def _names(ranks: Sequence[StepSeries]) -> list[str]:
    """Of the folders; processes that train beside each other without a process group are all of rank 0."""
    numbers = [one.rank for one in ranks]
    if len(set(numbers)) < len(numbers):
        return [f"process-{number}" for number in range(len(numbers))]
    return [f"rank-{number}" for number in numbers]


def _started(diagnosis: Diagnosis) -> float:
    """Seconds since 1970, so that the curves lie beside those of the job."""
    started = diagnosis.evidence.job.started
    return datetime.fromisoformat(started.replace("Z", "+00:00")).timestamp() if started else 0.0


def _add_steps(writer: SummaryWriter, rank: StepSeries, started_s: float) -> None:
    """A curve for each part that takes any time, and one for the whole."""
    shown = rank.averaged(MOST_POINTS)
    curves = {"total": shown.step_ms, **{name: ms for name, ms in shown.parts.items() if ms.any()}}
    for name, ms in curves.items():
        for step, value, end_s in zip(shown.step, ms, shown.end_s, strict=True):
            writer.add_scalar(f"step_ms/{name}", float(value), int(step), walltime=started_s + float(end_s))


def _anatomy(diagnosis: Diagnosis) -> Iterator[tuple[str, float]]:
    """The steady step and the job in numbers: one point each, to compare runs by."""
    step, job = diagnosis.evidence.step, diagnosis.evidence.anatomy
    if not isinstance(step, Missing):
        yield "steady_step_ms/total", step.step_ms
        yield from ((f"steady_step_ms/{name}", ms) for name, ms in step.parts.as_dict().items() if ms > 0)
    if not isinstance(job, Missing):
        yield "job_s/total", job.wall_ms / 1000
        yield from ((f"job_s/{name}", ms / 1000) for name, ms in job.parts.as_dict().items() if ms > 0)


def _speed_ups(diagnosis: Diagnosis, content: Content) -> Iterator[tuple[str, float]]:
    """Predicted by findings, measured by trials."""
    step = diagnosis.evidence.step
    for name, finding in _named(content):
        saved = finding.finding.savings
        if isinstance(step, Missing) or saved.high_ms <= 0:
            continue
        low, high = wording.speed_ups(saved.low_ms, saved.high_ms, saved.of(step))
        yield f"speed_up_predicted/{name}/low", low
        yield f"speed_up_predicted/{name}/high", high
    trials = () if diagnosis.trials is None else (*diagnosis.trials.single, diagnosis.trials.together)
    for trial in trials:
        if trial is not None and trial.gain is not None:
            for name, value in (("", trial.gain.factor), ("/low", trial.gain.low), ("/high", trial.gain.high)):
                yield f"speed_up_measured/{_tag(trial.remedy)}{name}", value


def _texts(content: Content) -> Iterator[tuple[str, str]]:
    yield "perfdoctor/report", _overview(content)
    for name, finding in _named(content):
        yield f"finding/{name}", render_finding(finding)


def _named(content: Content) -> Iterator[tuple[str, FindingText]]:
    """Findings in order; several of one id are numbered from the second on."""
    seen: dict[str, int] = {}
    for finding in (finding for section in content.sections for finding in section.findings):
        name = finding.finding.id
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}", finding


def _overview(content: Content) -> str:
    """What a report says first; TensorBoard knows tables, and no charts in Markdown."""
    lines = [f"**{prose(content.verdict)}**", ""]
    lines += _table("Where the steady step goes", content.step, content.anatomy)
    lines += _table("Where the job's time goes", content.job, content.job_anatomy)
    lines += [f"{prose(text)}\n" for text in (content.device, content.whereabouts) if text]
    lines += [f"{prose(content.summary)}."]
    return "\n".join(lines)


def _table(title: str, whole: str, rows: Sequence[SliceText]) -> list[str]:
    if not rows:
        return []
    largest = max(row.piece.share for row in rows)
    lines = [f"### {title} ({prose(whole)})", "", "| part | time | share | |", "|---|---:|---:|---|"]
    for row in rows:
        bar = "█" * round(BAR * row.piece.share / largest)
        lines.append(f"| {cell(row.piece.look.label)} | {cell(row.time)} | {cell(row.share)} | {bar} |")
    return [*lines, ""]


def _tag(name: str) -> str:
    """With the characters that a tag may have: `threads=1+gc.freeze` is `threads-1_gc.freeze`."""
    return "".join(c if c.isalnum() or c in "-_." else {"=": "-"}.get(c, "_") for c in name)
