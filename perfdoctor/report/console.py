"""The report for a terminal.

Text goes in as `rich.text.Text`, never as markup: a message that says "[red]" prints "[red]". Without colour
every mark, bar and label still reads, because none of them means anything by its colour alone.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..diagnosis.findings import Diagnosis, Severity
from . import wording
from .anatomy import Slice, cells
from .content import CheckText, Content, FindingText, NoteText, SliceText, SuppressedText, prepare
from .trials import TrialsText
from .trust import Row

WIDEST = 120
"""Columns: longer lines are hard to read, however wide the terminal."""
INDENT = 3
LABEL_WIDTH = 9
CODE_INDENT = 4

_SEVERITY_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}
_MARK_STYLES = {
    "✓": "green",
    "-": "dim",
    "?": "magenta",
    "☠": "bold red",
    "✗": "bold red",
    "!": "bold yellow",
    "i": "bold blue",
    "=": "dim",
}
_PART_STYLES = {
    "input_wait": "red",
    "forward": "green",
    "backward": "cyan",
    "optimizer": "blue",
    "checkpoint": "magenta",
    "gc": "yellow",
    "other": "white",
    "rest": "dim",
}


def render_console(diagnosis: Diagnosis, *, next_command: str, verbose: bool = False) -> RenderableType:
    """The whole report; `verbose` adds each check's measurements, suppressed messages and the environment."""
    content = prepare(diagnosis)
    blocks: list[RenderableType] = [Text(content.verdict, style="bold"), Text()]
    if content.anatomy:
        blocks += [_heading(f"Where the steady step goes ({content.step})"), *_anatomy(content.anatomy)]
    if content.device:
        blocks += [Text(content.device), Text()]
    if content.whereabouts:
        blocks += [Text(content.whereabouts), Text()]
    if content.findings:
        blocks.append(_heading(content.order))
        for finding in content.findings:
            blocks += [_finding(finding), Text()]
    if content.trials is not None:
        blocks += [_heading("What trials of the fixes measured"), *_trials(content.trials), Text()]
    blocks += [_heading("All checks"), _checks(content.checks, verbose), Text()]
    if content.suppressed:
        blocks += [_suppressed(content.suppressed, verbose), Text()]
    blocks += [_heading("How far to trust this run"), _trust(content), Text()]
    if verbose:
        blocks += [_heading("Where it ran"), _rows(content.environment), Text()]
    blocks.append(Text(content.summary + ".", style="bold"))
    blocks += [Text(sentence) for sentence in (content.overlap, content.accuracy) if sentence]
    blocks += _next(next_command)
    return Page(Group(*blocks))


class Page:
    """At most `WIDEST` columns, and no blanks at the ends of lines, for a report is also piped and copied."""

    def __init__(self, body: RenderableType) -> None:
        self.body = body

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.update(width=min(options.max_width, WIDEST))
        for line in console.render_lines(self.body, narrow, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(), last.style, last.control))
            yield from line
            yield Segment.line()


def _heading(title: str) -> RenderableType:
    return Rule(Text(title, style="bold"), align="left", characters="─", style="dim")


def _grid(*widths: int, gap: int = 1) -> Table:
    """Columns of fixed width and a last one that takes the rest and folds what does not fit."""
    table = Table.grid(padding=(0, gap, 0, 0))
    for width in widths:
        table.add_column(width=width, no_wrap=True)
    table.add_column(overflow="fold")
    return table


# ---------------------------------------------------------------------------------------------------------
# The step


class _Bar:
    """The step as one line of coloured characters, as wide as there is room."""

    def __init__(self, slices: tuple[Slice, ...]) -> None:
        self.slices = slices

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(no_wrap=True)
        for piece, n in zip(self.slices, cells(self.slices, options.max_width), strict=True):
            line.append(piece.glyph * n, style=_PART_STYLES[piece.part])
        yield line


def _anatomy(anatomy: tuple[SliceText, ...]) -> list[RenderableType]:
    legend = Table.grid(padding=(0, 2, 0, 0))
    legend.add_column(width=1)
    legend.add_column()
    legend.add_column(justify="right")
    legend.add_column(justify="right")
    if any(row.device for row in anatomy):
        legend.add_column(justify="right")
    for row in anatomy:
        mark = Text(row.piece.glyph, style=_PART_STYLES[row.piece.part])
        device = [Text(f"on the device {row.device}", style="dim")] if row.device else []
        legend.add_row(mark, Text(row.piece.label), Text(row.time), Text(row.share), *device)
    return [_Bar(tuple(row.piece for row in anatomy)), legend, Text()]


# ---------------------------------------------------------------------------------------------------------
# Findings


class _Code:
    """Lines to paste: never re-flowed at spaces, cut only where the terminal ends."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width)
        for line in self.code.expandtabs(4).splitlines():
            yield from (Text(piece, style="cyan", no_wrap=True) for piece in _folded(line, width))


def _folded(line: str, width: int) -> list[str]:
    """The line in pieces of at most `width` columns, nothing lost: blanks at a cut go to the next piece."""
    pieces: list[str] = []
    piece = ""
    for character in line:
        if cell_len(piece + character) > width and piece.strip():
            kept = piece.rstrip()
            pieces.append(kept)
            piece = piece[len(kept) :]
        piece += character
    return [*pieces, piece]


def _finding(text: FindingText) -> RenderableType:
    finding = text.finding
    style = _SEVERITY_STYLES[finding.severity]
    head = Text.assemble(
        f"{text.number}. ",
        (f"[{text.mark}]", style),
        " ",
        (finding.id, style),
        (f"  {finding.severity.value}, {finding.confidence.value} confidence", "dim"),
    )
    blocks: list[RenderableType] = [head, Padding(Text(text.message, style="bold"), (0, 0, 0, INDENT))]
    above = _grid(LABEL_WIDTH)
    _add(above, "where", text.where, text.ranks)
    _add(above, "why", text.reasoning)
    if text.evidence:
        above.add_row(Text("evidence", style="dim"), _evidence(text.evidence))
    _add(above, "saving", text.saves)
    _add(above, "", text.method)
    for index, sentence in enumerate(text.tried):
        _add(above, "" if index else "tried", sentence)
    _add(above, "fix", text.fix)
    blocks.append(Padding(above, (0, 0, 0, INDENT)))
    if text.code:
        blocks += [Text(), Padding(_Code(text.code), (0, 0, 0, CODE_INDENT)), Text()]
    if text.risk:
        below = _grid(LABEL_WIDTH)
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


def _trials(text: TrialsText) -> list[RenderableType]:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    if text.rows:
        table.add_row("", *(Text(name, style="dim") for name in ("remedy", "predicted", "measured", "")))
    for row in text.rows:
        mark = Text(f"[{row.mark}]", style=_MARK_STYLES[row.mark])
        table.add_row(mark, Text(row.remedy), Text(row.predicted), Text(row.measured), Text(row.outcome))
    blocks: list[RenderableType] = [table] if text.rows else []
    blocks += [Text(sentence) for sentence in (text.together, text.unit, text.accuracy) if sentence]
    for remedy, _, lines in text.keep:
        blocks += [Text(f"To keep {remedy}:"), Padding(_Code(lines), (0, 0, 0, CODE_INDENT))]
    if text.apply:
        lead = Text("To run the job to its end with what helped, its code unchanged:")
        blocks += [lead, Padding(_Code(text.apply), (0, 0, 0, CODE_INDENT))]
    return blocks


# ---------------------------------------------------------------------------------------------------------
# Checks, trust, what next


def _checks(checks: tuple[CheckText, ...], verbose: bool) -> RenderableType:
    if len(checks) > 1 and not verbose and len({(check.mark, check.outcome, check.text) for check in checks}) == 1:
        same = checks[0]
        return Text(
            f"[{same.mark}] all {len(checks)} checks {same.outcome}: {same.text}", style=_MARK_STYLES[same.mark]
        )
    name_width = max((len(check.result.name) for check in checks), default=1)
    code_width = max((len(check.result.code) for check in checks), default=1)
    table = _grid(3, code_width, name_width)
    for check in checks:
        style = _MARK_STYLES[check.mark]
        text = Text(check.outcome, style=style)
        if check.text:
            text.append(f": {check.text}", style="default")
        if verbose:
            for name, value in check.measurements:
                text.append(f"\n  {name}: {value}", style="dim")
        table.add_row(Text(f"[{check.mark}]", style=style), Text(check.result.code), Text(check.result.name), text)
    return table


def _suppressed(suppressed: tuple[SuppressedText, ...], verbose: bool) -> RenderableType:
    number = wording.plural(len(suppressed), "finding")
    table = Table.grid()
    table.add_column(overflow="fold")
    for item in suppressed:
        where = f" at {item.where}" if item.where else ""
        table.add_row(Text(f"{item.id}{where}: {item.reason}"))
        if verbose:
            table.add_row(Text(f"  {item.message}", style="dim"))
    return Group(Text(f"{number} suppressed by the configuration:"), Padding(table, (0, 0, 0, INDENT)))


def _trust(content: Content) -> RenderableType:
    return Group(*(_note(note) for note in content.notes), _rows(content.trust))


def _rows(rows: tuple[Row, ...]) -> RenderableType:
    table = _grid(max((len(row.label) for row in rows), default=1), gap=2)
    for row in rows:
        table.add_row(Text(row.label, style="dim"), Text(row.text, style="bold red" if row.alarming else ""))
    return table


def _note(note: NoteText) -> RenderableType:
    table = _grid(3)
    table.add_row(
        Text(f"[{note.mark}]", style=_MARK_STYLES[note.mark]),
        Text(f"{note.code} {note.name}: {note.message}"),
    )
    return table


def _next(command: str) -> list[RenderableType]:
    if not command:
        return []
    return [Text.assemble("Next: ", (wording.clean(command), "cyan"), overflow="fold")]
