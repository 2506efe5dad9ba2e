"""The report for a terminal with all that is known: `--verbose`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from . import wording
from .anatomy import SliceText
from .content import CheckText, Content, FindingText
from .terminal import (
    CODE_INDENT,
    INDENT,
    LABEL_WIDTH,
    MARK_STYLES,
    SEVERITY_STYLES,
    Bar,
    Code,
    Line,
    columns,
    heading,
    note,
    rows,
)
from .trials import TrialsText, TrialText


def full_report(content: Content) -> list[RenderableType]:
    """Everything between the verdict and the next command."""
    blocks: list[RenderableType] = []
    if content.anatomy:
        blocks += [heading(f"Where the steady step goes ({content.step})"), *_anatomy(content.anatomy)]
    if content.job_anatomy:
        blocks += [heading(f"Where the job's time goes ({content.job})"), *_anatomy(content.job_anatomy)]
    for text in filter(None, (content.whole_job, content.device, content.whereabouts, content.ranks)):
        blocks += [Text(text), Text()]
    for section in content.sections:
        blocks.append(heading(section.heading))
        for finding in section.findings:
            blocks += [_finding(finding), Text()]
    if content.trials is not None:
        blocks += [heading("What trials of the fixes measured"), *_trials(content.trials), Text()]
    blocks += [heading("All checks"), _checks(content.checks), Text()]
    if content.suppressed:
        blocks += [_suppressed(content.suppressed), Text()]
    blocks += [heading("How far to trust this run"), _trust(content), Text()]
    blocks += [heading("Where it ran"), rows(content.environment), Text()]
    blocks.append(Text(content.summary + ".", style="bold"))
    blocks += [Text(sentence) for sentence in (content.overlap, content.accuracy) if sentence]
    return blocks


# ---------------------------------------------------------------------------------------------------------
# The step


def _anatomy(anatomy: tuple[SliceText, ...]) -> list[RenderableType]:
    legend = Table.grid(padding=(0, 2, 0, 0))
    legend.add_column(width=1)
    legend.add_column()
    legend.add_column(justify="right")
    legend.add_column(justify="right")
    if any(row.device for row in anatomy):
        legend.add_column(justify="right")
    for row in anatomy:
        mark = Text(row.piece.look.glyph, style=row.piece.look.style)
        device = [Text(f"on the device {row.device}", style="dim")] if row.device else []
        legend.add_row(mark, Text(row.piece.look.label), Text(row.time), Text(row.share), *device)
    return [Bar(tuple(row.piece for row in anatomy)), legend, Text()]


# ---------------------------------------------------------------------------------------------------------
# Findings


def _finding(text: FindingText) -> RenderableType:
    finding = text.finding
    style = SEVERITY_STYLES[finding.severity]
    head = Text.assemble(
        f"{text.number}. ",
        (f"[{text.mark}]", style),
        " ",
        (finding.id, style),
        (f"  {finding.severity.value}, {finding.confidence.value} confidence", "dim"),
    )
    blocks: list[RenderableType] = [head, Padding(Text(text.message, style="bold"), (0, 0, 0, INDENT))]
    above = columns(LABEL_WIDTH)
    _add(above, "where", text.where, text.ranks)
    _add(above, "why", text.reasoning)
    if text.evidence:
        above.add_row(Text("evidence", style="dim"), _evidence(text.evidence))
    _add(above, "saving", text.saves)
    _add(above, "", text.of_job)
    _add(above, "", text.method)
    for index, sentence in enumerate(text.tried):
        _add(above, "" if index else "tried", sentence)
    _add(above, "fix", text.fix)
    blocks.append(Padding(above, (0, 0, 0, INDENT)))
    if text.code:
        blocks += [Text(), Padding(Code(text.code), (0, 0, 0, CODE_INDENT)), Text()]
    if text.risk:
        below = columns(LABEL_WIDTH)
        _add(below, "risk", text.risk)
        blocks.append(Padding(below, (0, 0, 0, INDENT)))
    return Group(*blocks)


def _add(table: Table, label: str, *texts: str) -> None:
    text = ", ".join(part for part in texts if part)
    if text:
        table.add_row(Text(label, style="dim"), Text(text))


def _evidence(pairs: tuple[tuple[str, str], ...]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    return table


# ---------------------------------------------------------------------------------------------------------
# Trials


def trial_table(trials: Sequence[TrialText], *, whole: bool) -> Table:
    """A row for each; what it came to is folded, or cut where it need not be `whole`."""
    table = Table.grid(padding=(0, 2, 0, 0))
    words = [("remedy", "predicted", "speed-up"), *((row.remedy, row.predicted, row.measured) for row in trials)]
    for width in (3, *(max(len(text) for text in texts) for texts in zip(*words, strict=True))):
        table.add_column(width=width, no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", *(Text(name, style="dim") for name in words[0]))
    text = Text if whole else Line
    for row in trials:
        mark = Text(f"[{row.mark}]", style=MARK_STYLES[row.mark])
        table.add_row(mark, Text(row.remedy), Text(row.predicted), Text(row.measured), text(row.outcome))
    return table


def _trials(text: TrialsText) -> list[RenderableType]:
    blocks: list[RenderableType] = [trial_table(text.rows, whole=True)] if text.rows else []
    blocks += [Text(sentence) for sentence in (text.together, text.unit, text.warning, text.accuracy) if sentence]
    for remedy, _, lines in text.keep:
        blocks += [Text(f"To keep {remedy}:"), Padding(Code(lines), (0, 0, 0, CODE_INDENT))]
    if text.apply:
        lead = Text("To run the job to its end with what helped, its code unchanged:")
        blocks += [lead, Padding(Code(text.apply), (0, 0, 0, CODE_INDENT))]
    return blocks


# ---------------------------------------------------------------------------------------------------------
# Checks, trust, what next


def _checks(checks: tuple[CheckText, ...]) -> RenderableType:
    name_width = max((len(check.result.name) for check in checks), default=1)
    code_width = max((len(check.result.code) for check in checks), default=1)
    table = columns(3, code_width, name_width)
    for check in checks:
        style = MARK_STYLES[check.mark]
        text = Text(check.outcome, style=style)
        if check.text:
            text.append(f": {check.text}", style="default")
        for name, value in check.measurements:
            text.append(f"\n  {name}: {value}", style="dim")
        table.add_row(Text(f"[{check.mark}]", style=style), Text(check.result.code), Text(check.result.name), text)
    return table


def _suppressed(suppressed: tuple[tuple[FindingText, str], ...]) -> RenderableType:
    number = wording.plural(len(suppressed), "finding")
    table = Table.grid()
    table.add_column(overflow="fold")
    for item, reason in suppressed:
        where = f" at {item.where}" if item.where else ""
        table.add_row(Text(f"{item.finding.id}{where}: {reason}"))
        table.add_row(Text(f"  {item.message}", style="dim"))
    return Group(Text(f"{number} suppressed by the configuration:"), Padding(table, (0, 0, 0, INDENT)))


def _trust(content: Content) -> RenderableType:
    return Group(*(note(*one) for one in content.notes), rows(content.trust))
