"""Markdown as plain text for a terminal, by rich."""

from __future__ import annotations

import io
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement
from rich.segment import Segment


class _Code(CodeBlock):
    """As wide as it is: folded code can be neither read nor pasted."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from (Segment(f"    {line}\n") for line in self.text.plain.rstrip().splitlines())


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, markup: str) -> None:
        super().__init__(markup)
        for inline in (child for token in self.parsed for child in token.children or ()):
            if inline.type == "code_inline":
                # Without colour nothing else tells code from prose.
                inline.type, inline.content = "text", f"`{inline.content}`"


def plain_text(markup: str, width: int) -> str:
    """In so many columns, without blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(_Document(markup), crop=False)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n")
