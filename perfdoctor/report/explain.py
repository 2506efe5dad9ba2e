"""A check's documentation, made from its module docstring: text for the terminal, Markdown for the docs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..diagnosis.integrity import PAGES
from ..diagnosis.outcomes import Check
from ..diagnosis.thresholds import thresholds

if TYPE_CHECKING:
    from markdown_it.token import Token

THRESHOLDS = "Thresholds"
"""The section that is made from the check's limits."""
TEXT_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a docstring."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A docstring taken apart."""

    summary: str
    """What stands above the first section."""
    sections: tuple[Section, ...]


def parse(docstring: str) -> Explanation:
    """The summary and the sections, whichever there are: a title underlined with dashes is a heading of Markdown."""
    text = inspect.cleandoc(docstring)
    lines = text.splitlines()
    headings = [token.map for token in _blocks(text) if token.type == "heading_open" and token.markup == "-"]
    starts = [place for place in headings if place is not None]
    ends = [*(start for start, _ in starts), len(lines)][1:]
    sections = tuple(
        Section(lines[start].strip(), _block(lines[after:end]))
        for (start, after), end in zip(starts, ends, strict=True)
    )
    return Explanation(_block(lines[: starts[0][0]] if starts else lines), sections)


def explained(docstring: str, check: Check[Any]) -> Explanation:
    """The docstring's sections, and the thresholds that the configuration can change."""
    explanation = parse(docstring)
    items = [f"- `{t.name} = {_toml(t.value)}`{f': {t.reason}' if t.reason else ''}" for t in thresholds(check)]
    if not items:
        return explanation
    lead = f"To be changed under `[rules.{check.code}]` in perfdoctor.toml."
    return replace(explanation, sections=(*explanation.sections, Section(THRESHOLDS, "\n".join([lead, "", *items]))))


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def explain_text(docstring: str, check: Check[Any]) -> str:
    """The page for a terminal: no line of prose over `TEXT_WIDTH` columns, code as it is."""

    def section(title: str, body: str) -> str:
        return f"{title}\n{textwrap.indent(wrapped(body, TEXT_WIDTH - 2), '  ')}"

    return _page(docstring, check, "", wrapped, section)


def explain_markdown(docstring: str, check: Check[Any]) -> str:
    """The page for the docs: indented code becomes a fence, everything else is Markdown already."""
    return _page(docstring, check, "# ", _as_markdown, lambda title, body: f"## {title}\n\n{_as_markdown(body)}")


def _page(
    docstring: str, check: Check[Any], mark: str, prose: Callable[[str], str], section: Callable[[str, str], str]
) -> str:
    explanation = explained(docstring, check)
    blocks = [f"{mark}{check.code} {check.name}: {check.title}"]
    if explanation.summary:
        blocks.append(prose(explanation.summary))
    blocks += [section(one.title, one.body) for one in explanation.sections]
    return "\n\n".join(blocks) + "\n"


def trust_text(code: str) -> str:
    """What a code from PD90 on means, for a terminal."""
    page = PAGES[code]
    return f"{code}: {page.title}\n\n{wrapped(page.meaning)}\n\n{wrapped(page.advice)}\n"


def trust_markdown(code: str) -> str:
    """The same as a section of the docs."""
    page = PAGES[code]
    return f"## {code}: {page.title}\n\n{page.meaning}\n\n{page.advice}\n"


def _block(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


def _blocks(body: str) -> list[Token]:
    """The outermost blocks, with the lines that they take."""
    from rich.markdown import Markdown

    return [token for token in Markdown(body).parsed if token.level == 0 and token.map]


def _as_markdown(body: str) -> str:
    """Indented code in fences, which say in which language it is."""
    lines = body.splitlines()
    for token in reversed(_blocks(body)):
        if token.type == "code_block" and token.map:
            content = token.content.rstrip()
            language = "bash" if content.startswith(("$ ", "export ")) else "python"
            lines[slice(*token.map)] = [f"```{language}", *content.splitlines(), "```"]
    return "\n".join(lines)


def wrapped(body: str, width: int = TEXT_WIDTH) -> str:
    """Markdown as text in so many columns; lines of code are never folded."""
    from .explain_text import plain_text

    return plain_text(body, width)
