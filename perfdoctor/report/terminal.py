"""What reports on a terminal are drawn with.

Text goes in as `rich.text.Text`, never as markup: a message that says "[red]" prints "[red]". Without colour
every mark, bar and label still reads, because none of them means anything by its colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ..diagnosis.diagnoses import IntegrityNote
from ..diagnosis.findings import Severity
from .anatomy import Slice, cells
from .trust import Row

WIDEST = 120
"""Columns: longer lines are hard to read, however wide the terminal."""
INDENT = 3
LABEL_WIDTH = 9
CODE_INDENT = 4

SEVERITY_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}
MARK_STYLES = {
    "✓": "green",
    "-": "dim",
    "?": "magenta",
    "☠": "bold red",
    "✗": "bold red",
    "!": "bold yellow",
    "i": "bold blue",
    "=": "dim",
}


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


def heading(title: str) -> RenderableType:
    return Rule(Text(title, style="bold"), align="left", characters="─", style="dim")


def columns(*widths: int, gap: int = 1) -> Table:
    """Columns of fixed width and a last one that takes the rest and folds what does not fit."""
    table = Table.grid(padding=(0, gap, 0, 0))
    for width in widths:
        table.add_column(width=width, no_wrap=True)
    table.add_column(overflow="fold")
    return table


class Bar:
    """The step as one line of coloured characters, as wide as there is room."""

    def __init__(self, slices: tuple[Slice, ...]) -> None:
        self.slices = slices

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(no_wrap=True)
        for piece, n in zip(self.slices, cells(self.slices, options.max_width), strict=True):
            line.append(piece.look.glyph * n, style=piece.look.style)
        yield line


class Code:
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


def rows(table_rows: Sequence[Row]) -> RenderableType:
    table = columns(max((len(row.label) for row in table_rows), default=1), gap=2)
    for row in table_rows:
        table.add_row(Text(row.label, style="dim"), Text(row.text, style="bold red" if row.alarming else ""))
    return table


def marked(mark: str, text: RenderableType) -> RenderableType:
    row = columns(3)
    row.add_row(Text(f"[{mark}]", style=MARK_STYLES[mark]), text)
    return row


def note(mark: str, text: IntegrityNote) -> RenderableType:
    return marked(mark, Text(f"{text.code} {text.name}: {text.message}"))


class Line:
    """Text in one line, cut with an ellipsis where there is no room."""

    def __init__(self, text: str | Text) -> None:
        self.text = text if isinstance(text, Text) else Text(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from fitted(console, self.text, options.max_width, 1)


def fitted(console: Console, text: Text, width: int, most: int) -> list[Text]:
    """The text in at most so many lines; an ellipsis where that is not all of it."""
    width = max(1, width)
    lines = list(text.wrap(console, width, overflow="fold"))
    if len(lines) > most:
        last = lines[most - 1]
        last.truncate(width - 2)
        last.append(" …")
    return lines[:most]
