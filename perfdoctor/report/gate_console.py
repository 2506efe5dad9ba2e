"""A gate on a terminal: the verdict first, then what moved, why, and where the recordings are."""

from __future__ import annotations

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..gate.model import GateResult, Verdict
from .gate_words import SHOWN, prepare_gate
from .terminal import Page

_MARK_STYLES = {"✗": "bold red", "☠": "bold red", "?": "bold yellow", "✓": "green", "↑": "green"}


def render_gate_console(result: GateResult, *, verbose: bool = False) -> RenderableType:
    """The whole gate."""
    content = prepare_gate(result, verbose)
    blocks: list[RenderableType] = [Text(content.headline, style=SHOWN[result.verdict].style), Text(content.arms)]
    if content.groups:
        blocks.append(Text())
    for number, group in enumerate(content.groups):
        blocks.append(Text(group.title, style="bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        fine = [] if verbose or number == 0 else [line for line in group.lines if line.mark == SHOWN[Verdict.PASS].mark]
        for line in group.lines:
            if line in fine:
                continue
            values = f"{line.before} → {line.after}"
            row = (Text(f"  {line.mark}", style=_MARK_STYLES.get(line.mark, "dim")), Text(line.label), Text(values))
            table.add_row(*row, Text(line.change), Text(line.reason, style="dim"))
        if table.row_count:
            blocks.append(table)
        if fine:
            labels = ", ".join(line.label for line in fine)
            blocks.append(Text.assemble(("  ✓", _MARK_STYLES["✓"]), f"  within their margins: {labels}"))
        if group.rest:
            blocks.append(Text(f"  {group.rest}", style="dim"))
    if content.parts or content.why:
        blocks += [Text(), Text(content.why_title, style="bold")]
    if content.parts:
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, before, after, difference in content.parts:
            table.add_row(Text(f"  {name}"), Text(f"{before} → {after}"), Text(difference))
        blocks.append(table)
    blocks += [Text(f"  {text}") for text in content.why]
    if content.notes:
        blocks += [Text(), Text("Notes", style="bold"), *(Text(f"  {note}") for note in content.notes)]
    if content.recordings:
        blocks += [Text(), Text("Recordings (see them with `perfdoctor report DIRECTORY`)", style="bold")]
        blocks += [Text(f"  {line}") for line in content.recordings]
    return Page(Lines(*blocks))
