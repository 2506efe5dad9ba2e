"""A gate as GitHub-flavoured Markdown."""

from __future__ import annotations

from ..gate.model import GateResult
from .anatomy import bar
from .gate_words import Group, prepare_gate
from .markdown import cell, prose

MARKER = "<!-- perfdoctor gate -->"
"""By which a comment on a pull request is found again, to be updated in place."""


def render_gate_markdown(result: GateResult) -> str:
    """The whole gate, ending in a newline."""
    content = prepare_gate(result)
    lines = [MARKER, f"## {prose(content.headline)}", "", prose(content.arms), ""]
    for group in content.groups:
        lines += _group(group)
    if content.parts or content.why:
        lines += [f"### {content.why_title}", ""]
    if content.parts:
        lines += ["| part of the step | before | now | | ░ before, █ now |", "|---|---|---|---|---|"]
        lines += [
            f"| {' | '.join(cell(text) for text in row)} | {drawn} |"
            for row, drawn in zip(content.parts, _bars(result), strict=True)
        ]
        lines.append("")
    lines += [f"- {prose(text)}" for text in content.why] + ([""] if content.why else [])
    if content.notes:
        lines += ["### Notes", "", *(f"- {prose(note)}" for note in content.notes), ""]
    if content.recordings:
        lines += ["### Recordings", "", *(f"- {prose(line)}" for line in content.recordings), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _bars(result: GateResult) -> list[str]:
    """Both arms of each part, one above the other and all on one scale: GitHub shows no other picture of two runs."""
    parts = result.why.parts if result.why else ()
    longest = max((ms for _, *both in parts for ms in both), default=0.0) or 1.0
    return [f"{bar(old / longest, '░')}<br>{bar(new / longest)}" for _, old, new in parts]


def _group(group: Group) -> list[str]:
    lines = [f"### {group.title}", ""]
    if group.lines:
        lines += ["| | | before | now | change | |", "|---|---|---|---|---|---|"]
        for line in group.lines:
            values = (line.mark, line.label, line.before, line.after, line.change, line.reason)
            lines.append(f"| {' | '.join(cell(value) for value in values)} |")
        lines.append("")
    return [*lines, group.rest, ""] if group.rest else lines
