"""The report in TensorBoard: the step's parts over the steps, rank by rank, and what was found about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnosis.diagnoses import Diagnosis
from ..evidence.series import StepSeries
from .anatomy import SliceText, bar
from .content import Content, prepare
from .markdown import cell, prose, render_finding
from .numbers import named, numbers

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

MOST_POINTS = 1_000
"""Of a curve: TensorBoard shows so many by default and leaves others out by chance, whereas means of neighbouring steps
keep the sum."""
_SUFFIX = ".perfdoctor"
"""By which files of ours are told from those of the job."""


def write_tensorboard(folder: Path, diagnosis: Diagnosis, ranks: Sequence[StepSeries]) -> None:
    """One TensorBoard run in `folder`, and one in a folder of it for each of several ranks, so that their curves lie
    upon each other. What was written there before is replaced; files of others stay.

    Raises OSError.
    """
    content = prepare(diagnosis)
    with _writer(folder) as writer:
        writer.add_text("perfdoctor/report", _overview(content), 0)
        findings = (finding for section in content.sections for finding in section.findings)
        for (name, _), finding in zip(named(diagnosis), findings, strict=True):
            writer.add_text(f"finding/{name}", render_finding(finding), 0)
        for tag, value in numbers(diagnosis).items():
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


def _overview(content: Content) -> str:
    """What a report says first; TensorBoard knows tables, and no charts in Markdown."""
    lines = [f"**{prose(content.verdict)}**", ""]
    lines += _table("Where the steady step goes", content.step, content.anatomy)
    lines += _table("Where the job's time goes", content.job, content.job_anatomy)
    lines += [f"{prose(text)}\n" for text in (content.device, content.whereabouts, content.ranks) if text]
    lines += [f"{prose(content.summary)}."]
    return "\n".join(lines)


def _table(title: str, whole: str, rows: Sequence[SliceText]) -> list[str]:
    if not rows:
        return []
    largest = max(row.piece.share for row in rows)
    lines = [f"### {title} ({prose(whole)})", "", "| part | time | share | |", "|---|---:|---:|---|"]
    for row in rows:
        drawn = bar(row.piece.share / largest)
        lines.append(f"| {cell(row.piece.look.label)} | {cell(row.time)} | {cell(row.share)} | {drawn} |")
    return [*lines, ""]
